"""The lane's flights: what it submits without waiting, and how it ends what was submitted.

The engine's functions are Python functions here, called through ctypes as the core's would be.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import weakref
from typing import Any, NamedTuple, Optional

import numpy as np
import pytest
from jobs import exchange_table

from horovod._core.life.engine_port import IN_PROGRESS, OK
from horovod._native import abi, lane

if lane.missing:
    if os.environ.get("HVD_TEST_REQUIRE") and not lane.missing.startswith("it needs Python"):
        raise RuntimeError(f"The lane must be tested here, but it is missing: {lane.missing}.")
    pytest.skip(f"Not here: {lane.missing}.", allow_module_level=True)

STAMP = object()
FLOAT32 = 7
WILL_WAIT = 1
_OPS, _HANDLE, _INT = ctypes.POINTER(abi.HvdOp), ctypes.POINTER(ctypes.c_int64), ctypes.c_int32
RUN = ctypes.CFUNCTYPE(_INT, _OPS, _INT, ctypes.c_double, _HANDLE)
SUBMIT = ctypes.CFUNCTYPE(_INT, _OPS, _INT, ctypes.c_uint32, _HANDLE)
FINISH = ctypes.CFUNCTYPE(_INT, ctypes.c_int64, ctypes.c_double)
FINISH_ALL = ctypes.CFUNCTYPE(_INT, _HANDLE, _INT, ctypes.c_double)


class Engine:
    """Answers what it is told to, and notes what it was asked.

    Attributes:
        status: of all that comes.
        end_status: of waits; None: `status`.
        submitted: the addresses (input, output) of each tensor, per submission.
        flags: per submission.
        finished: the handles, per call.
        waits_s: how long the last of these calls may have waited.
    """

    def __init__(self) -> None:
        self.status = OK
        self.submitted: list[list[tuple[int, int]]] = []
        self.flags: list[int] = []
        self.finished: list[list[int]] = []
        self.end_status: Optional[int] = None
        self.waits_s = -1.0
        self._numbers = itertools.count(100)
        functions = (RUN(self._run), SUBMIT(self._submit), FINISH(self._finish), FINISH_ALL(self._finish_all))
        self._keep = functions
        self.door = tuple(ctypes.cast(function, ctypes.c_void_p).value for function in functions)

    def _note(self, ops: Any, n: int) -> None:
        self.submitted.append([(ops[i].input, ops[i].output) for i in range(n)])

    def _run(self, ops: Any, n: int, slice_s: float, handle: Any) -> int:
        self._note(ops, n)
        handle[0] = next(self._numbers) if self.status == IN_PROGRESS else 0
        return self.status

    def _submit(self, ops: Any, n: int, flags: int, handle: Any) -> int:
        assert handle[0] == 0
        self._note(ops, n)
        self.flags.append(flags)
        if self.status == OK:
            handle[0] = next(self._numbers)
        return self.status

    def _finish(self, handle: int, slice_s: float) -> int:
        self.finished.append([handle])
        return self.status

    def _finish_all(self, handles: Any, n: int, slice_s: float) -> int:
        self.finished.append([handles[i] for i in range(n)])
        self.waits_s = slice_s
        return self.status if self.end_status is None else self.end_status


class Refused(Exception):
    """What the entry raises for a status that is a failure."""


class Call(lane.LaneEntry):
    """A prepared call of n tensors of 3 elements."""

    def __init__(self, engine: Engine, n: int = 1) -> None:
        self.extents = (ctypes.c_int64 * 1)(3)
        self.ops = (abi.HvdOp * n)(*(abi.HvdOp(dtype=FLOAT32, ndim=1) for _ in range(n)))
        for op in self.ops:
            op.shape = self.extents
        self.handle = ctypes.c_int64(-1)
        self.rescued: list[Any] = []
        self.stamp, self.session, self.what = STAMP, "the session", "allreduce 'x'"
        self.arm(ctypes.addressof(self.ops), n, ctypes.addressof(self.handle), engine.door)

    def go_on(self, status: int, keep: Any) -> None:
        raise Refused(status)

    def rescue(self, keep: Any) -> None:
        self.rescued.append((self.handle.value, keep))


class Flight(lane.LaneFlight):
    """As `horovod._core.life.handles.Pending`."""

    kept: list[Any]

    def dropped(self) -> None:
        Setting.kept.append(self)


class Setting:
    """A lane over an engine that Python plays."""

    kept: list[Any]  # flights that were dropped on their way

    def __init__(self, numbers: Any = None) -> None:
        Setting.kept = []
        self.engine = Engine()
        self.calls: dict[Any, Any] = {}
        self.filed: dict[int, Any] = {}
        self.flights = lane.FlightTable(self.filed, itertools.count(1) if numbers is None else numbers, Flight, 0.5)
        self.lane = lane.Lane(self.calls, {"stamp": STAMP}, (np.ndarray,), None, np.empty_like, "me", self.flights, 0.5)


@pytest.fixture
def setting() -> Setting:
    return Setting()


def start(setting: Setting, calls: list[Any], tensors: list[Any]) -> list[Any]:
    """The flights of `start_each`."""
    started: list[Any] = []
    assert setting.lane.start_each(calls, tensors, started, 0.0) is False
    return started


def arrays(n: int) -> list[Any]:
    return [np.zeros(3, np.float32) for _ in range(n)]


# ---- one tensor


def test_a_tensor_is_submitted_filed_and_waited_for(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine)
    (array,) = arrays(1)
    number = setting.lane.submit_in_place("key", array)
    flight = setting.filed[number]
    assert number == 1 and not call.busy and setting.engine.submitted == [[(array.ctypes.data, array.ctypes.data)]]
    assert (flight.session, flight.what, flight.handle) == ("the session", "allreduce 'x'", 100)
    assert flight.keep is array and flight.result is array and flight.finisher is None
    assert setting.flights.finish(number) is array
    assert setting.engine.finished == [[100]] and not setting.filed and flight.handle == 0
    assert setting.flights.finish(number) is None
    del flight
    assert not setting.kept


def test_one_that_has_not_ended_is_left_to_python(setting: Setting) -> None:
    setting.calls["key"] = Call(setting.engine)
    number = setting.lane.submit_in_place("key", *arrays(1))
    for status in (IN_PROGRESS, 7, 11):
        setting.engine.status = status
        assert setting.flights.finish(number) is None and setting.filed[number].handle == 100
    setting.engine.status = OK
    setting.filed[number].finisher = len
    assert setting.flights.finish(number) is None and len(setting.engine.finished) == 3
    for stranger in ("1", 5, None, ["no number"]):
        assert setting.flights.finish(stranger) is None
    setting.filed[5] = "no flight"  # type: ignore[assignment]
    assert setting.flights.finish(5) is None


def test_a_flight_of_python_is_left_to_python(setting: Setting) -> None:
    setting.filed[1] = made = Flight()
    made.handle = 7
    assert setting.flights.finish(1) is None and setting.flights.finish_all([made]) is False
    assert not setting.engine.finished
    made.handle = 0


def test_a_tensor_that_does_not_fit_is_left_to_python(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine)
    for tensor in (np.zeros(4, np.float32), np.zeros(3), None):
        assert setting.lane.submit_in_place("key", tensor) is None
        assert start(setting, [call], [tensor]) == []
    assert setting.lane.submit_in_place("unknown", *arrays(1)) is None
    assert start(setting, ["no entry"], arrays(1)) == []
    assert not setting.engine.submitted and not call.busy


def test_a_result_goes_into_another_tensor(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine)
    call.placed_elements = 4
    tensor, output = np.zeros(3, np.float32), np.zeros((2, 2), np.float32)
    number = setting.lane.submit_into("key", tensor, output, len)
    flight = setting.filed[number]
    assert setting.engine.submitted == [[(tensor.ctypes.data, output.ctypes.data)]] and not call.busy
    assert flight.keep[0] is tensor and flight.keep[1] is output and flight.finisher is len and flight.handle == 100
    # Another number of elements, another type, and an input of another form.
    for one, other in ((tensor, tensor), (tensor, output.astype(np.float64)), (output, output)):
        assert setting.lane.submit_into("key", one, other, len) is None
    assert setting.lane.submit_into("unknown", tensor, output, len) is None
    assert len(setting.engine.submitted) == 1 and not call.busy
    setting.engine.status = 7
    with pytest.raises(Refused):
        setting.lane.submit_into("key", tensor, output, len)
    flight.handle = 0


def test_entries_of_no_table(setting: Setting) -> None:
    tensors = arrays(3)
    flights = start(setting, [Call(setting.engine) for _ in tensors], tensors)
    assert [type(flight) for flight in flights] == [Flight] * 3 and not setting.filed
    assert all(flight.keep is tensor for flight, tensor in zip(flights, tensors))
    assert [[pair[0] for pair in one] for one in setting.engine.submitted] == [[each.ctypes.data] for each in tensors]
    assert setting.flights.finish_all(flights) is True and all(flight.handle == 0 for flight in flights)


def test_they_start_up_to_the_first_that_does_not_fit(setting: Setting) -> None:
    calls = [Call(setting.engine) for _ in range(3)]
    assert len(start(setting, calls, [*arrays(1), np.zeros(4, np.float32), *arrays(1)])) == 1
    assert len(start(setting, calls, arrays(2))) == 2  # fewer tensors than entries
    assert start(setting, [], arrays(1)) == []
    for lists in ((tuple(calls), arrays(3), []), (calls, None, []), (calls, arrays(3), ())):
        assert setting.lane.start_each(*lists, 0.0) is False
    assert len(setting.engine.submitted) == 3


@pytest.mark.parametrize("status, ended", [(OK, True), (IN_PROGRESS, False), (7, False)])
def test_all_are_submitted_before_they_are_waited_for_together(setting: Setting, status: int, ended: bool) -> None:
    setting.engine.end_status = status
    started: list[Any] = []
    calls = [Call(setting.engine) for _ in range(3)]
    assert setting.lane.start_each(calls, arrays(3), started, 0.25) is ended
    assert setting.engine.flags == [WILL_WAIT] * 3 and setting.engine.finished == [[100, 101, 102]]
    assert setting.engine.waits_s == 0.25
    assert [flight.handle for flight in started] == ([0, 0, 0] if ended else [100, 101, 102])
    for flight in started:
        flight.handle = 0


def test_what_is_submitted_is_passed_on_if_the_next_does_not_fit(setting: Setting) -> None:
    started: list[Any] = []
    calls = [Call(setting.engine) for _ in range(3)]
    setting.engine.end_status = IN_PROGRESS
    assert setting.lane.start_each(calls, [*arrays(2), np.zeros(4, np.float32)], started, 0.25) is False
    assert setting.engine.finished == [[100, 101]] and setting.engine.waits_s == 0
    for flight in started:
        flight.handle = 0
    with pytest.raises(TypeError):
        setting.lane.start_each(calls, arrays(3), [], "soon")
    assert setting.lane.start_each([], [], [], 0.25) is False and len(setting.engine.finished) == 1


@pytest.mark.parametrize("wait_s", [0.0, 0.25])
def test_those_before_a_refused_one_are_not_lost(setting: Setting, wait_s: float) -> None:
    calls = [Call(setting.engine) for _ in range(3)]
    started: list[Any] = []
    refusing = Engine()
    refusing.status = 1
    calls[1].arm(ctypes.addressof(calls[1].ops), 1, ctypes.addressof(calls[1].handle), refusing.door)
    with pytest.raises(Refused):
        setting.lane.start_each(calls, arrays(3), started, wait_s)
    assert len(started) == 1 and not any(call.busy for call in calls)
    # With a wait, which passes on what was submitted, it has ended.
    assert started[0].handle == (0 if wait_s else 100) and setting.engine.finished == ([[100]] if wait_s else [])


def test_a_refusal_is_raised(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine)
    setting.engine.status = 1
    with pytest.raises(Refused):
        setting.lane.submit_in_place("key", *arrays(1))
    assert not setting.filed and not call.busy


def test_a_flight_that_cannot_be_filed_is_not_lost() -> None:
    setting = Setting(numbers=iter(()))
    setting.calls["key"] = Call(setting.engine)
    with pytest.raises(SystemError):  # no number, and no error either: that is Python's word for it
        setting.lane.submit_in_place("key", *arrays(1))
    assert [flight.handle for flight in setting.kept] == [100]


def test_the_tensor_lives_as_long_as_the_flight(setting: Setting) -> None:
    setting.calls["key"] = Call(setting.engine)
    (array,) = arrays(1)
    alive = weakref.ref(array)
    number = setting.lane.submit_in_place("key", array)
    del array
    gc.collect()
    assert alive() is not None
    assert setting.flights.finish(number) is not None
    gc.collect()
    assert alive() is None


def test_dropped_flights_and_circles(setting: Setting) -> None:
    call = Call(setting.engine)
    (flight,) = start(setting, [call], arrays(1))
    flight.result = [flight]  # a circle: the collector must find it, and say so before it takes it apart
    del flight
    gc.collect()
    assert [one.handle for one in setting.kept] == [100] and setting.kept[0].keep is not None
    setting.kept[0].handle = 0
    setting.kept[0].result = None
    setting.kept.clear()
    (ended,) = start(setting, [call], arrays(1))
    ended.handle = 0
    ended.result = [ended]
    seen = weakref.WeakSet([Marker.hang_on(ended)])
    del ended
    gc.collect()
    assert not seen and not setting.kept


class Marker:
    """Something in a circle that can be looked for."""

    @staticmethod
    def hang_on(flight: Any) -> Marker:
        marker = Marker()
        flight.finisher = [flight, marker]
        return marker


# ---- several


def test_a_group_in_place(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine, 3)
    group = arrays(3)
    flight = setting.lane.start_alike("key", group, True, False, False)
    assert setting.engine.submitted == [[(array.ctypes.data, array.ctypes.data) for array in group]]
    assert flight.result is group and flight.keep == (group, group) and not call.busy
    assert setting.flights.finish_all([flight]) is True


def test_a_group_with_new_results(setting: Setting) -> None:
    setting.calls["key"] = Call(setting.engine, 2)
    group = arrays(2)
    flight = setting.lane.start_alike("key", group, False, False, False)
    outputs = flight.result
    expected = [(given.ctypes.data, made.ctypes.data) for given, made in zip(group, outputs)]
    assert setting.engine.submitted == [expected] and len({*expected[0], *expected[1]}) == 4
    flight.handle = 0


@pytest.mark.parametrize("status", [OK, IN_PROGRESS])
def test_one_that_is_waited_for(status: int, setting: Setting) -> None:
    setting.calls["key"] = Call(setting.engine)
    setting.engine.status = status
    (array,) = arrays(1)
    flight = setting.lane.start_alike("key", [array], False, True, True)
    assert flight.result.shape == (3,) and flight.result is not array
    assert flight.handle == (0 if status == OK else 100)
    flight.handle = 0


def test_groups_that_do_not_fit(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine, 2)
    first, second = arrays(2)
    for group in ([first], [first, second, second], [first, np.zeros(4, np.float32)], (first, second), None, []):
        assert setting.lane.start_alike("key", group, True, False, False) is None
    assert setting.lane.start_alike("key", [first, first], True, False, False) is None
    assert not setting.engine.submitted and not call.busy
    flight = setting.lane.start_alike("key", [first, first], False, False, False)  # read twice, written once each
    assert flight is not None
    flight.handle = 0


def test_a_group_that_is_refused(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine, 2)
    setting.engine.status = 9
    for waits in (False, True):
        with pytest.raises(Refused):
            setting.lane.start_alike("key", arrays(2), True, False, waits)
    assert not call.busy


def test_many_are_waited_for_at_once(setting: Setting) -> None:
    started = start(setting, [Call(setting.engine) for _ in range(3)], arrays(3))
    setting.engine.status = IN_PROGRESS
    assert setting.flights.finish_all(started) is False and all(flight.handle for flight in started)
    setting.engine.status = OK
    for others in ([], (), None, [*started, "no flight"]):
        assert setting.flights.finish_all(others) is False
    assert len(setting.engine.finished) == 1
    assert setting.flights.finish_all(started) is True
    assert setting.engine.finished[-1] == [100, 101, 102] and not any(flight.handle for flight in started)
    assert setting.flights.finish_all(started) is False


def test_a_result_that_nobody_can_make(setting: Setting) -> None:
    def no_memory(like: Any) -> Optional[Any]:
        raise MemoryError

    setting.calls["key"] = call = Call(setting.engine, 2)
    made = lane.Lane(setting.calls, {"stamp": STAMP}, (np.ndarray,), None, no_memory, None, setting.flights, 0.5)
    with pytest.raises(MemoryError):
        made.start_alike("key", arrays(2), False, False, False)
    assert not setting.engine.submitted and not call.busy


# ---- on a GPU


class Thing:
    """A tensor on a GPU, or elsewhere."""

    def __init__(self, device_type: int = exchange_table.CUDA, device: int = 1) -> None:
        self.seen = exchange_table.Seen(4096, device_type, device, "f4", (3,))
        self.extents: Any = None


exchange_table.give(Thing, lambda thing: thing.seen)


class Finisher(NamedTuple):
    """What the lane makes for a flight that waits for a stream."""

    device: int
    stream: int
    result: Any


@pytest.fixture
def gpu_setting() -> Setting:
    """Its current stream is 77 on every device; the call "key" is of a tensor on device 1, "two" of a group there."""
    setting = Setting()
    setting.lane = lane.Lane(
        setting.calls, {"stamp": STAMP}, (Thing,), None, lambda thing: Thing(*thing.seen[1:3]), "me", setting.flights,
        0.5, lambda device: 77, Finisher,
    )  # fmt: skip
    setting.calls["key"], setting.calls["two"] = Call(setting.engine), Call(setting.engine, 2)
    for call in setting.calls.values():
        for op in call.ops:
            op.place = 2
    return setting


@pytest.mark.parametrize("kind", [exchange_table.CUDA, exchange_table.ROCM])
def test_a_tensor_on_a_gpu_follows_its_stream(kind: int, gpu_setting: Setting) -> None:
    thing = Thing(kind)
    number = gpu_setting.lane.submit_in_place("key", thing)
    flight = gpu_setting.filed[number]
    assert gpu_setting.engine.submitted == [[(4096, 4096)]] and gpu_setting.calls["key"].ops[0].stream == 77
    assert flight.finisher == (1, 77, thing) and flight.keep is thing
    assert gpu_setting.flights.finish(number) is None, "a finisher is Python's"
    flight.handle = 0


def test_a_group_on_a_gpu_follows_its_stream(gpu_setting: Setting) -> None:
    things = [Thing(), Thing()]
    flight = gpu_setting.lane.start_alike("two", things, False, False, False)
    assert [op.stream for op in gpu_setting.calls["two"].ops] == [77, 77]
    assert flight.finisher.result is flight.result and len(flight.result) == 2
    flight.handle = 0
    waited = gpu_setting.lane.start_alike("key", [things[0]], False, True, True)
    assert waited.finisher is None, "who waits does so on the stream of the operation"
    assert gpu_setting.lane.run_in_place("key", things[0]) is True


@pytest.mark.parametrize("where", [(exchange_table.CPU, 0), (exchange_table.CUDA, 0), (3, 1)])
def test_a_tensor_elsewhere_is_left_to_python(where: tuple[int, int], gpu_setting: Setting) -> None:
    thing = Thing(*where)
    assert gpu_setting.lane.submit_in_place("key", thing) is None
    assert gpu_setting.lane.run_in_place("key", thing) is False
    assert not gpu_setting.engine.submitted and not gpu_setting.calls["key"].busy


def test_a_call_on_a_gpu_without_a_stream_is_left_to_python(setting: Setting) -> None:
    setting.calls["key"] = call = Call(setting.engine)
    call.ops[0].place = 1
    assert setting.lane.submit_in_place("key", arrays(1)[0]) is None and not call.busy


def test_what_the_frameworks_stream_raises_comes_out(gpu_setting: Setting) -> None:
    def broken(device: int) -> int:
        raise OSError("no stream")

    made = lane.Lane(
        gpu_setting.calls, {"stamp": STAMP}, (Thing,), None, Thing, "me", gpu_setting.flights, 0.5, broken, Finisher
    )
    with pytest.raises(OSError, match="no stream"):
        made.submit_in_place("key", Thing())
    assert not gpu_setting.calls["key"].busy
