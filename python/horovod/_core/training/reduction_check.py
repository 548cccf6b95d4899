"""What is compared where the user has said nothing about `--check-parameters` and reductions meet by a name, step after
step: gradients of TensorFlow's tapes and of Keras' optimizers. `default_check` is for optimizers whose steps are seen.

At each of the first reductions of a name, which all ranks make in the same order, every rank says which shapes it
reduces, and after two changes of the variables what values they have. So what a rank submits never depends on what it
alone knows: when it traced a function, or collected garbage. Other shapes fail, other values are a warning of rank 0.

A rank waits some seconds at most, and then never again: no program hangs by this check.
"""

from __future__ import annotations

import struct
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Optional

from horovod._core.errors import HorovodError, MismatchError
from horovod._core.life import session
from horovod._core.training.default_check import Exchange, wanted, warn_of
from horovod._core.training.default_findings import (
    Form,
    Measure,
    forms_in,
    forms_story,
    measures_story,
    packed_forms,
    packed_measures,
)
from horovod._core.training.digest_sum import Claim, claim

__all__ = ["Reduced", "ReductionCheck", "Value", "check_of"]

_REDUCTIONS: Final = 8  # of a name are compared: enough for two lists of variables that take turns
_EACH: Final = 4  # of several lists, one of which needs three to have changed twice
_LISTS: Final = 8  # at most: some programs make new variables all the time
_CHANGES: Final = 2  # public programs broadcast after the first step
_LOOKS: Final = 64  # reductions after which an answer that has not come is given up
_PATIENCE_S: Final = 10.0
_SLICE_S: Final = 0.1
_LENGTH: Final = struct.Struct("<I")

_checks: Final[dict[tuple[str, str], ReductionCheck]] = {}
# Sessions in which a rank did not come in time: nobody is waited for any more.
_impatient: Final[weakref.WeakSet[session.Session]] = weakref.WeakSet()


class Value(NamedTuple):
    """The values of a variable: bytes of an element, their sum, and their Euclidean norm."""

    item_bytes: int
    total: float
    norm: float


class Reduced(NamedTuple):
    """What is about to be reduced.

    Attributes:
        forms: the gradients, in their order.
        variables: those of them that have values to compare; weakly, as a traced function may outlive them.
        names: of these variables.
        measured: gives their values as they are now; empty if they are not available.
        remedy: for values that differ, a sentence; see `default_check.equal_by`.
    """

    forms: Sequence[Form]
    variables: Sequence[weakref.ref[Any]]
    names: Sequence[str]
    measured: Callable[[], Sequence[Value]]
    remedy: str


_UNKNOWN: Final = Reduced((), (), (), tuple, "")


class _Track:
    """How one list of variables changes.

    Attributes:
        is_settled: its values have been compared.
    """

    def __init__(self, variables: Sequence[weakref.ref[Any]]) -> None:
        self.is_settled = False
        self._variables = variables
        self._last: Optional[Sequence[Value]] = None
        self._changes = 0

    @property
    def is_alive(self) -> bool:
        """False if one of the variables is gone."""
        return all(ref() is not None for ref in self._variables)

    def is_of(self, variables: Sequence[weakref.ref[Any]]) -> bool:
        """True if this is the track of these variables."""
        own = self._variables
        return len(own) == len(variables) and all(ref() is each() for ref, each in zip(own, variables))

    def measures(self, reduced: Reduced) -> list[Measure]:
        """Their values, if the last of two changes or more has just been; else nothing. A variable that stayed as it
        was has no gradient and may differ."""
        if self.is_settled or not reduced.variables:
            return []
        before, self._last = self._last, reduced.measured()
        if not before or len(before) != len(self._last):
            return []
        changed = [one != other for one, other in zip(before, self._last)]
        self._changes += any(changed)
        if self._changes < _CHANGES or not any(changed):
            return []
        return [Measure(name, c, *value) for name, c, value in zip(reduced.names, changed, self._last)]


class _Open(NamedTuple):
    """An exchange whose answer has not been read."""

    exchange: Exchange
    track: _Track
    names: Sequence[str]
    remedy: str


class ReductionCheck:
    """Compares what is reduced by one name. Its methods cost nothing when it is over.

    Args:
        label: of the framework, for names.
        name: equal on the ranks whose reductions meet.
    """

    def __init__(self, label: str, name: str) -> None:
        self._name = f"default_check.{label}.{name}"
        self._lock = threading.Lock()  # a framework's threads may reduce by one name at the same time
        self._session: Optional[session.Session] = None
        self._reductions = 0
        self._tracks: list[_Track] = []
        self._expected: list[_Track] = []
        self._open: list[_Open] = []
        self.is_over = False  # for ever: other sessions begin with other counts

    def expect(self, variables: Sequence[weakref.ref[Any]]) -> bool:
        """Reductions of these variables have been put into a function, which will run when it is called. Nothing is
        concluded from reductions of several lists that may run in any order: ranks could meet with different ones.

        Returns:
            True if these are the first.
        """
        with self._lock:
            is_first = not self.is_over and not self._expected
            if not self.is_over and not any(track.is_of(variables) for track in self._expected):
                self._expected.append(_Track(variables))
            return is_first

    def compare(self, reduced: Reduced) -> None:
        """A reduction is about to be submitted.

        Raises:
            MismatchError: numbers or shapes differ between the ranks; on every rank that got the answer in time.
        """
        with self._lock:
            if self._session is None:
                self._session = session.current
            if self._session is not session.current or not wanted():
                self._end()
            if self.is_over:
                return
            self._reductions += 1
            own = self._submitted(reduced) if self._reductions <= self._compared else None
        if own is not None:
            _await(own.exchange)
        with self._lock:
            if own is not None:  # not before: one thread drives an exchange
                self._open.append(own)
            self._read(own)
            if self._reductions >= self._compared and (not self._open or self._reductions >= _LOOKS):
                self._end()

    @property
    def _compared(self) -> int:
        """How many reductions are compared: more where several lists take turns by one name. Not where they are in
        functions, as ranks may run these in different orders."""
        lists = 0 if self._expected else min(len(self._tracks), _LISTS)
        return max(_REDUCTIONS, _EACH * lists)

    def _end(self) -> None:
        self.is_over = True
        self._tracks, self._expected, self._open = [], [], []

    def _submitted(self, reduced: Reduced) -> Optional[_Open]:
        if sum(track.is_alive for track in self._expected) > 1:
            reduced = _UNKNOWN
        track = next((each for each in self._tracks if each.is_of(reduced.variables)), None)
        if track is None:
            track = _Track(reduced.variables)
            self._tracks.append(track)
        measures = track.measures(reduced)
        text = _packed(reduced.forms, measures)
        try:
            exchange = Exchange(f"{self._name}.{self._reductions}", text, len(reduced.forms))
        except HorovodError:  # gradients will tell what is wrong
            self._end()
            return None
        return _Open(exchange, track, [each.name for each in measures], reduced.remedy)

    def _read(self, own: Optional[_Open]) -> None:
        for entry in list(self._open):
            has_ended = entry.exchange.ends_within(0.0)
            if not has_ended and entry is not own:
                continue
            try:
                _judge(entry)
            finally:
                if has_ended and entry in self._open:
                    self._open.remove(entry)


def check_of(label: str, name: str) -> ReductionCheck:
    """The check of what this process reduces by a name; see `ReductionCheck`."""
    return _checks.get((label, name)) or _checks.setdefault((label, name), ReductionCheck(label, name))


def _await(exchange: Exchange) -> None:
    current = session.require()
    if current in _impatient:
        return
    deadline = time.monotonic() + _PATIENCE_S
    while not exchange.ends_within(_SLICE_S):
        if time.monotonic() >= deadline:
            _impatient.add(current)
            return


def _judge(entry: _Open) -> None:
    """Raises or warns of what an exchange has found.

    Raises:
        MismatchError: numbers or shapes differ.
    """
    exchange = entry.exchange
    if exchange.claims is None or exchange.has_failed or not all(each.parameters for each in exchange.claims.values()):
        return
    if exchange.agrees:
        entry.track.is_settled |= bool(entry.names)
        return
    texts = {rank: _unpacked(each) for rank, each in exchange.texts.items()}
    if not texts:  # not yet, and of so many parameters there is no doubt
        _require_equal(exchange.claims, {})
        return
    forms = {rank: each[0] for rank, each in texts.items()}
    _require_equal({rank: claim(each, exchange.claims[rank].parameters) for rank, each in forms.items()}, forms)
    if all(measures for _, measures in texts.values()):
        entry.track.is_settled = True
        story = measures_story(entry.names, {rank: measures for rank, (_, measures) in texts.items()})
        if story and session.require().rank == 0:
            warn_of(story, entry.remedy)


def _require_equal(claims: Mapping[int, Claim], forms: Mapping[int, bytes]) -> None:
    numbers = {entry.parameters for entry in claims.values()}
    # Names may differ where the program numbers its operations.
    shapes = {tuple(form for _, form in forms_in(each)) for each in forms.values()}
    if len(numbers) > 1 or len(shapes) > 1:
        raise MismatchError(
            f"{forms_story(claims, forms)} All ranks must make the same model and reduce gradients of the same shapes "
            "in the same order."
        )


def _packed(forms: Sequence[Form], measures: Sequence[Measure]) -> bytes:
    packed = packed_forms(forms)
    return _LENGTH.pack(len(packed)) + packed + packed_measures(measures)


def _unpacked(text: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH.size + _LENGTH.unpack_from(text)[0]
    return text[_LENGTH.size : end], text[end:]
