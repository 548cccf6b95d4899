"""What is compared where the user has said nothing about `--check-parameters`: names and shapes of an optimizer's
parameters at its first step, which must be equal, and their values after its second one, of which rank 0 warns.

No rank waits for it that would not wait anyway, and it cannot make a program hang: a rank submits what it says before
its first gradient of a step, which all ranks must have submitted before any gradient is reduced. So optimizers are
numbered by their first reductions. Used by the optimizers of every framework; `parameter_check` is for users that ask
for it.

Not compared: process sets other than the global one, steps that are combined (Adasum), elastic jobs, whose ranks come
and go between two steps and get the state that they train with, and everything after a `join`.
"""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable, Final, Optional

from horovod._core.callers import users_level
from horovod._core.errors import HorovodError, MismatchError
from horovod._core.life import handles, session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import Sum
from horovod._core.operations.reduction_calls import ReduceArguments
from horovod._core.tensors import byte_adapter
from horovod._core.training.default_findings import (
    Form,
    Measure,
    forms_story,
    have_common_names,
    measures_story,
    packed_forms,
    packed_measures,
)
from horovod._core.training.digest_sum import Claim, agree, claim, read_claims, read_texts, with_claim, with_text
from horovod._core.training.ordinals import Ordinals

__all__ = ["DefaultCheck", "Exchange", "equal_by", "is_unasked", "warn_of", "wanted"]

_VALUES_AFTER: Final = 2  # steps: public programs broadcast after the first one
# How long a step that will fail may go on: its gradients may bring an error of their own, which says more.
_HOLD_S: Final = 5.0
_SLICE_S: Final = 0.1
# How much later than gradients submitted after them the ranks' claims may end: a gradient fails as soon as its ranks
# are known to disagree, a sum is still to be exchanged then.
_GRACE_S: Final = 1.0
_NUMBERS: Final = 1024  # maximum number of names, if a program goes on making optimizers

_bytes: Final = Collectives(byte_adapter.adapter)
_numbers: Final = Ordinals(weakref.WeakKeyDictionary())


def wanted(process_set: ProcessSet = global_process_set) -> bool:
    """True if an optimizer of this process set is to be compared now: ranks that have joined made other steps."""
    return is_unasked(process_set) and not session.has_joined()


def is_unasked(process_set: ProcessSet = global_process_set) -> bool:
    """True if optimizers of this process set are compared in this session: nobody has said otherwise, and there is
    somebody to compare with."""
    current = session.current
    if current is None or current.size < 2 or current.settings.check_parameters is not None:
        return False
    return not current.settings.elastic and process_set.process_set_id == 0


def warn_of(story: str, remedy: str) -> None:
    """Warns of values that differ.

    Args:
        story: which, in words.
        remedy: a sentence that names the call that was forgotten.
    """
    warnings.warn(
        f"After step {_VALUES_AFTER} of an optimizer {story} {remedy} (--check-parameters {_VALUES_AFTER} makes this "
        "an error, --check-parameters 0 switches it off.)",
        stacklevel=users_level(),
    )


def equal_by(call: str) -> str:
    """The remedy for parameters that have never been equal: this call."""
    return f"They must be equal when training begins: call {call} after the model is made, loaded and moved."


class Exchange:
    """Whether all ranks say the same, and if not, what they say: two sums at most, asynchronous.

    Args:
        name: of the sums, equal on all ranks.
        text: what this rank says.
        count: of parameters.

    Attributes:
        claims: what the ranks say in short, once known.
        texts: what the ranks say, once known and if they say different things.
        has_failed: nothing will be known, for example because the engine is gone.

    Raises:
        HorovodError: nothing can be submitted.
    """

    def __init__(self, name: str, text: bytes, count: int) -> None:
        self.claims: Optional[dict[int, Claim]] = None
        self.texts: dict[int, bytes] = {}
        self.has_failed = False
        self._name = name
        self._own = text
        self._sum = bytearray()
        self._pending: Optional[handles.Pending] = None
        current = session.require()
        self._submit(with_claim(current.rank, current.size, claim(text, count)), "claims")

    @property
    def agrees(self) -> bool:
        """True if all ranks are known to agree."""
        return self.claims is not None and agree(self.claims)

    @property
    def differs(self) -> bool:
        """True if ranks are known to differ."""
        return self.claims is not None and not agree(self.claims)

    def ends_within(self, timeout_s: float) -> bool:
        """Polls the sums; True if nothing more will arrive."""
        while self._pending is not None and handles.end_within([self._pending], timeout_s):
            pending, self._pending = self._pending, None
            try:
                handles.finish(pending)
                self._go_on()
            except HorovodError:
                self.has_failed = True
        return self._pending is None

    def _go_on(self) -> None:
        if self.claims is not None:
            self.texts = read_texts(self._sum, self.claims)
            return
        self.claims = read_claims(self._sum)
        if not agree(self.claims):
            self._submit(with_text(session.require().rank, self.claims, self._own), "texts")

    def _submit(self, summand: bytearray, which: str) -> None:
        self._sum = summand
        arguments = ReduceArguments(f"{self._name}.{which}", None, Sum, 1.0, 1.0, global_process_set)
        self._pending = _bytes.start_allreduce([summand], arguments, True)


class DefaultCheck:
    """Compares the parameters of one optimizer, or of one list of variables. Its methods cost nothing when it is over.

    Args:
        label: of the framework, for names.
        remedy: for values that differ, a sentence; see `equal_by`.
        reducer: what the user gives parameters to, for the message.
    """

    def __init__(self, label: str, remedy: str, reducer: str) -> None:
        self._label = label
        self._remedy = remedy
        self._reducer = reducer
        self._session: Optional[session.Session] = None
        self.is_over = False  # nothing is left to do in this session
        self._finding = ""
        self._steps = 0
        self._name = ""
        self._forms: Optional[Exchange] = None
        self._grace_s = 0.0  # what is left of it for this session
        self._values: Optional[Exchange] = None
        self._value_names: list[str] = []
        # A thread of the program may look at gradients, and so wait, while the main thread steps.
        self._lock = threading.RLock()

    def begin(self, forms: Callable[[], Iterable[Form]], process_set: ProcessSet = global_process_set) -> None:
        """The first gradient of a step is about to be submitted. Compares names and shapes if it is the first step of
        this session; waits for nobody.

        Args:
            forms: gives the parameters.
            process_set: that reduces their gradients.
        """
        if self._session is not session.current:
            with self._lock:
                self._begin(forms, process_set)

    def _begin(self, forms: Callable[[], Iterable[Form]], process_set: ProcessSet) -> None:
        self._session = session.current
        self._finding, self._steps, self._forms, self._values = "", 0, None, None
        self._grace_s = _GRACE_S
        self.is_over = not wanted(process_set)
        if self.is_over:
            return
        self._name = f"default_check.{self._label}.{_numbers.of(self) % _NUMBERS}"
        found = list(forms())
        self._forms = self._exchange("forms", packed_forms(found), len(found))

    def skip(self) -> None:
        """In this session these parameters are compared by another one."""
        self._session = session.current
        self._finding = ""
        self.is_over = True

    @property
    def is_waited_for(self) -> bool:
        """True while `confirm` has something to do."""
        return self._forms is not None and self._session is session.current

    def confirm(self, ended: Callable[[float], bool]) -> None:
        """This rank is going to wait for gradients: waits first until the ranks' names and shapes have been compared,
        as all ranks send these before their gradients.

        Args:
            ended: says whether those gradients have been reduced, or have failed, within some seconds.

        Raises:
            MismatchError: on every rank, at each call: names or shapes differ.
        """
        if not self.is_waited_for:
            return
        with self._lock:
            self._confirm(ended)

    def _confirm(self, ended: Callable[[float], bool]) -> None:
        exchange = self._forms
        if exchange is None or self._session is not session.current:  # another thread was faster
            return
        if self._finding:
            raise MismatchError(self._finding)
        while exchange.claims is None and not exchange.ends_within(_SLICE_S):
            if exchange.claims is None and ended(0.0):
                self._grace_s -= _SLICE_S
                if self._grace_s <= 0.0:  # the other ranks reduce these gradients without an optimizer
                    return
        if exchange.claims is None or exchange.agrees:
            self._forms = None
            return
        self._settle(exchange, exchange.claims, ended)

    def _settle(self, exchange: Exchange, claims: Mapping[int, Claim], ended: Callable[[float], bool]) -> None:
        """The ranks say different things: raises that, unless they speak of different optimizers."""
        while not exchange.ends_within(0.0) and not ended(_SLICE_S):
            pass
        deadline = time.monotonic() + _HOLD_S
        while time.monotonic() < deadline and not ended(_SLICE_S):
            pass
        is_known = exchange.ends_within(_HOLD_S)
        if ended(0.0):
            if not is_known:
                return  # the others wait for another optimizer's gradients; looked at again at the next wait
            if exchange.texts and not have_common_names(exchange.texts):
                # The ranks began with different optimizers, whose gradients have met nevertheless.
                self._forms = None
                self.is_over = True
                return
        self._finding = (
            f"{forms_story(claims, exchange.texts)} All ranks must make the same model and give "
            f"{self._reducer} parameters of the same names and shapes."
        )
        raise MismatchError(self._finding)

    def step_over(self, measures: Callable[[], Sequence[Measure]]) -> None:
        """A step is over: compares values if it is the second of this session, and looks what has become of that.
        Waits for nobody. Rank 0 warns where they differ.

        Args:
            measures: gives the values of the parameters, in the same order on all ranks.
        """
        if self.is_over or self._session is not session.current or self._session is None:
            return
        if session.has_joined():
            self.is_over = True
            return
        self._steps += 1
        if self._steps == _VALUES_AFTER:
            found = list(measures())
            self._value_names = [entry.name for entry in found]
            self._values = self._exchange("values", packed_measures(found), len(found))
        elif self._steps > _VALUES_AFTER:
            self._look()

    def _look(self) -> None:
        exchange = self._values
        if exchange is None or not exchange.ends_within(0.0):
            self.is_over = exchange is None
            return
        self.is_over = True
        if exchange.differs and not exchange.has_failed and session.require().rank == 0:
            story = measures_story(self._value_names, exchange.texts)
            if story:
                warn_of(story, self._remedy)

    def _exchange(self, what: str, text: bytes, count: int) -> Optional[Exchange]:
        try:
            return Exchange(f"{self._name}.{what}", text, count)
        except HorovodError:  # gradients will tell what is wrong
            return None
