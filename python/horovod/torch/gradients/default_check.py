"""The default check of the parameters of PyTorch's optimizers, where `--check-parameters` is not given; see
`horovod._core.training.default_check`. Used by `reducer` and `distributed_methods`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, Optional

import torch

from horovod._core.errors import HorovodError, MismatchError
from horovod._core.life import session
from horovod._core.training.default_check import DefaultCheck, equal_by, wanted
from horovod._core.training.default_findings import Form, Measure

__all__ = ["AccessCheck", "sums"]


class _Compared:
    """The names of parameters that have been compared in this session. One rank may step a copy of an optimizer, which
    has its names, where another steps the original; only one of them may be compared."""

    def __init__(self) -> None:
        self._session: object = None
        self._names: set[str] = set()

    def take(self, names: set[str]) -> bool:
        """Adds names; True if one of them is new."""
        if self._session is not session.current:
            self._session = session.current
            self._names.clear()
        is_new = not names <= self._names
        self._names |= names
        return is_new


_compared: Final = _Compared()


class AccessCheck:
    """The default check of one optimizer.

    Args:
        access: see `horovod.torch.gradients.reducer.GradientAccess`.
    """

    def __init__(self, access: Any) -> None:
        self._access = access
        self._session: object = None
        self._check = DefaultCheck(
            "torch", equal_by("hvd.broadcast_parameters(model.state_dict(), root_rank=0)"), "hvd.DistributedOptimizer"
        )

    def begin(self) -> None:
        """Called before the first gradient of a step is submitted: sends names and shapes, once in a session."""
        access = self._access
        if self._session is session.current:
            return
        self._session = session.current
        names = {access.names.negotiated(number) for number in access.reducer_of}
        # Only the members of another set know what it reduces.
        if not wanted(access.options.process_set) or not _compared.take(names):
            self._check.skip()
            return
        self._check.begin(lambda: [_form(access, number) for number in access.reducer_of], access.options.process_set)

    def confirm(self, numbers: Optional[Collection[int]] = None, submit: bool = False) -> None:
        """This rank is going to wait for all gradients under way, or some of them.

        Args:
            submit: what is missing, first.

        Raises:
            MismatchError: names or shapes differ between the ranks.
        """
        access = self._access
        if not self._check.is_waited_for:
            return
        try:
            for number in access.missing() if submit else ():
                access.reducer_of[number].submit(number)
        except HorovodError:
            pass  # such as when the engine is gone; the reducers see the error again, and handle it

        def ended(timeout_s: float) -> bool:
            return all(reducer.have_ended(timeout_s, numbers) for reducer in access.reducers)

        try:
            self._check.confirm(ended)
        except MismatchError as finding:
            if ended(0.0):
                for reducer in access.reducers:
                    try:
                        reducer.land(numbers)
                    except MismatchError as error:  # says more of one parameter
                        raise MismatchError(f"{error} {finding}") from error
                    except HorovodError as error:
                        raise finding from error
            raise

    def step_over(self) -> None:
        """Called after `step()`: sends the values after the second one of a session."""
        if not self._check.is_over:
            self._check.step_over(lambda: _measures(self._access))


def _form(access: Any, number: int) -> Form:
    parameter = access.parameters[number]
    return Form(access.names.negotiated(number), f"{str(parameter.dtype)[6:]} {list(parameter.shape)}")


@torch.no_grad()
def _measures(access: Any) -> list[Measure]:
    found = []
    for name, number in sorted((access.names.negotiated(number), number) for number in access.reducer_of):
        parameter = access.parameters[number].detach()
        if not parameter.is_floating_point():
            continue
        grad = access.parameters[number].grad
        has_gradient = grad is None or bool(grad.coalesce().values().any() if grad.is_sparse else grad.any())
        found.append(Measure(name, has_gradient, parameter.element_size(), *sums(parameter)))
    return found


@torch.no_grad()
def sums(parameter: torch.Tensor) -> tuple[float, float]:
    """The sum of the elements, and their Euclidean norm."""
    norm = torch.linalg.vector_norm(parameter, dtype=torch.float64)
    return float(parameter.sum(dtype=torch.float64)), float(norm)
