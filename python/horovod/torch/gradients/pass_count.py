"""`PassCount`: the backward passes of a step, and the remarks on a step with too few of them, or none.

Gradients that this rank has not accumulated as often as was announced, or has not computed, are submitted as they are
when the step ends. What the program did to them before was done to this rank's own ones. Used by `reducer`.
"""

from __future__ import annotations

import warnings
from typing import Any, Optional

from horovod._core.callers import users_level

__all__ = ["PassCount"]


class PassCount:
    """See the module.

    Attributes:
        passes: those of this step.
    """

    def __init__(self) -> None:
        self.passes = 0
        self._ever = False
        self._has_warned = False
        # A gradient that was not complete at the end of the last pass: its number, itself and its version.
        self._incomplete: Optional[tuple[int, Any, int]] = None

    def begin(self) -> None:
        """A pass begins."""
        self.passes += 1
        self._incomplete = None

    def is_last(self, access: Any) -> bool:
        """A pass has ended. True if there were as many as announced, and gradients are not complete all the same:
        other ranks may have completed them. One pass alone that completes nothing is not a pass of this optimizer."""
        self._incomplete = None
        if access.passes == 1:
            return False
        if self.passes < access.passes:
            for number, reducer in access.reducer_of.items():
                grad = access.parameters[number].grad
                if grad is not None and not reducer.has_submitted(number):
                    self._incomplete = number, grad, grad._version
                    break
            return False
        return bool(access.missing())

    def end_step(self, access: Any) -> None:
        """The step ends, and what is missing is about to be submitted: warns once if the program may have changed this
        rank's own gradients in it."""
        if not self._has_warned:
            if self._incomplete is not None:
                self._remark_changes(access)
            elif not self.passes and self._ever:
                self._remark_absence(access)
        self._ever = self._ever or self.passes > 0
        self.reset()

    def reset(self) -> None:
        """Another step begins."""
        self.passes = 0
        self._incomplete = None

    def _remark_changes(self, access: Any) -> None:
        number, grad, version = self._incomplete or (0, None, 0)
        if access.parameters[number].grad is grad and grad._version == version:
            return
        self._has_warned = True
        warnings.warn(
            f"The gradient of '{access.names.name(number)}' was changed after {self.passes} of "
            f"backward_passes_per_step={access.passes} passes, before it was reduced; clipping and unscaling then "
            "give different values on each rank. Call optimizer.synchronize() before, or "
            "optimizer.set_backward_passes_per_step before the passes of a shorter step.",
            stacklevel=users_level(),
        )

    def _remark_absence(self, access: Any) -> None:
        missing = access.missing()
        if not missing or any(access.parameters[number].grad is not None for number in missing):
            return
        self._has_warned = True
        warnings.warn(
            "This rank has computed no gradient in this step, and steps with the gradients of the other ranks. "
            "Where they clip or scale gradients before step(), this rank has not done so, and the parameters differ "
            "from now on. Call optimizer.synchronize() before, on all ranks, or hvd.join() where a rank has no more "
            "data.",
            stacklevel=users_level(),
        )
