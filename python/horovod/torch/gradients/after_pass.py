"""`AfterPass`: the end of a backward pass, for the gradients of an optimizer.

The program must see reduced gradients from then on (design 0026). Most are reduced by then, or a moment later; the
others are replaced by tensors that wait when they are used. Waiting for all of them could hang: a rank may compute a
gradient in this pass that another rank computes in its next pass, after a collective operation of both.
"""

from __future__ import annotations

import contextlib
import time
import warnings
import weakref
from typing import Any, Callable, Final

import torch

from horovod._core.callers import users_level
from horovod._core.errors import HorovodError, HorovodInternalError
from horovod._core.life import handles, waiting
from horovod.torch.gradients.pending import PendingGradient

__all__ = ["AfterPass", "EndOfPass", "call_after_pass", "pass_number"]

# The number of autograd's running backward pass; -1: there is none, as in a compiled one.
pass_number: Final[Callable[[], int]] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
call_after_pass: Final[Any] = torch.autograd.Variable._execution_engine.queue_callback

_HELD_S: Final = 30.0


class AfterPass:
    """See the module. Made for each pass.

    Args:
        access: see `horovod.torch.gradients.reducer.GradientAccess`.
    """

    def __init__(self, access: Any) -> None:
        self._reference = weakref.ref(access)

    @property
    def _access(self) -> Any:
        # Not kept alive: stand-ins refer to this, and no collector sees that parameters have them as gradients.
        found = self._reference()
        if found is None:
            raise HorovodInternalError(
                "This gradient was being reduced when its optimizer was deleted. Call optimizer.synchronize() before."
            )
        return found

    def end(self) -> None:
        """Delivers the gradients that are reduced, or will be in a moment, and replaces the others by stand-ins."""
        access = self._access
        with access.handover.revived(), access.lock:
            if self._land_within(handles.BRIEF_S) or self._land_held():
                access.under_way.deliver()
                self.stand_in_for_missing()
            else:
                self.stand_in()

    def stand_in(self) -> None:
        """Replaces gradients under way, and those that this rank has left out, by stand-ins."""
        access = self._access
        with access.handover.revived():
            for number in list(access.under_way.sent):
                access.under_way.stand_in(number, self)
            self.stand_in_for_missing()

    def stand_in_for_missing(self) -> None:
        """Replaces gradients that this rank has left out by stand-ins: other ranks may have computed them."""
        access = self._access
        under_way = access.under_way
        for number in access.missing():
            parameter = access.parameters[number]
            if number in under_way.stand_ins or not parameter.requires_grad:
                continue
            grad = parameter.grad if parameter.grad is not None else access.zero_gradient(number)
            if type(grad) is not PendingGradient:  # or the program has put that of another parameter there
                under_way.put_stand_in(number, grad, self)

    def submit(self, pending: PendingGradient) -> None:
        """Called when a stand-in is used: if this rank has left the gradient out, submits its replacement."""
        access, number = self._access, pending.number
        under_way = access.under_way
        is_adding = pass_number() >= 0  # autograd, the gradient of another pass
        with access.handover.revived(), access.lock:
            if number in under_way.sent:
                if is_adding:
                    access.reducer_of[number].end_round(number)
            elif under_way.stand_ins.get(number) is pending:
                if is_adding:
                    under_way.take_away(number)
                else:
                    access.reducer_of[number].submit(number)

    def wait_for(self, pending: PendingGradient) -> None:
        """Called when a stand-in is used: waits for the gradient, also if the stand-in is of an earlier step."""
        if not self._is_under_way(pending):
            return
        access, number = self._access, pending.number
        with access.handover.revived():
            if access.check is not None:
                access.check.confirm((number,))
            # Without the lock: another thread may step meanwhile, for which the other ranks may wait.
            reducer = access.reducer_of[number]
            while self._is_under_way(pending) and not reducer.have_ended(waiting.SLICE_S, (number,)):
                pass
            with access.lock:
                if self._is_under_way(pending):
                    access.land((number,))

    def _is_under_way(self, pending: PendingGradient) -> bool:
        sent = self._access.under_way.sent.get(pending.number)
        return sent is not None and sent[0] is pending.given

    def _land_within(self, timeout_s: float) -> bool:
        return all(reducer.land_within(timeout_s) for reducer in self._access.reducers)

    def _land_held(self) -> bool:
        """Waits if the program could look at gradients without asking the parameters for them. Not for ever: ranks that
        have left out different ones would wait for each other."""
        if not self._access.waits_for_held or not self._access.under_way.is_any_held():
            return False
        end = time.monotonic() + _HELD_S
        if self._land_within(_HELD_S):
            return True
        if time.monotonic() < end:
            return False  # one has failed, which `synchronize` will raise
        self._access.waits_for_held = False
        warnings.warn(
            f"The program holds gradients elsewhere than in parameter.grad. After {_HELD_S:g} s one of them has not "
            "been reduced, because a rank has not computed it; using them now gives different values on each rank. Use "
            "parameter.grad, which waits, or call optimizer.synchronize() before.",
            stacklevel=users_level(),
        )
        return False


class EndOfPass:
    """Autograd calls this when it has ended a backward pass, and only lets go of it when the pass has failed.

    Args:
        reference: to the access of an optimizer whose gradients the pass has computed.
    """

    __slots__ = ("_has_ended", "_reference")

    def __init__(self, reference: weakref.ref[Any]) -> None:
        self._reference = reference
        self._has_ended = False

    def __call__(self) -> None:
        self._has_ended = True
        access = self._reference()
        if access is not None and access.ends_pass():
            AfterPass(access).end()

    def __del__(self) -> None:
        access = None if self._has_ended else self._reference()
        if access is not None:
            access.deferred.clear()  # what has not been submitted counts as left out
            with contextlib.suppress(HorovodError):  # such as when the engine is gone; the next submission meets it too
                if access.ends_pass():
                    AfterPass(access).stand_in()
