"""The lane: which tensors it reads, and what it does with every answer of the engine.

The engine's hvd_run is a Python function here, called through ctypes as the core's would be.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, Callable, ClassVar, Optional

import numpy as np
import pytest

from horovod._core.life.engine_port import IN_PROGRESS, OK
from horovod._core.tensors import dtypes
from horovod._native import abi, lane

if lane.missing:
    if os.environ.get("HVD_TEST_REQUIRE") and not lane.missing.startswith("it needs Python"):
        raise RuntimeError(f"The lane must be tested here, but it is missing: {lane.missing}.")
    pytest.skip(f"Not here: {lane.missing}.", allow_module_level=True)

STAMP = object()
SESSION = {"stamp": STAMP}
FLOAT32 = 7
RUN = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.POINTER(abi.HvdOp), ctypes.c_int32, ctypes.c_double, ctypes.POINTER(ctypes.c_int64)
)
Engine = Callable[[Any, Any], int]


def succeed(op: Any, handle: Any) -> int:
    return OK


class Call(lane.LaneEntry):
    """A call of one tensor, as `horovod._core.operations.lane_calls.LaneCall` is one."""

    def __init__(self, shape: tuple[int, ...] = (3,), dtype: int = FLOAT32, run: Engine = succeed) -> None:
        self.extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.op = abi.HvdOp(dtype=dtype, ndim=len(shape))
        self.op.shape = self.extents
        self.handle = ctypes.c_int64(-1)
        self.runs: list[tuple[int, int, int]] = []
        self.said: list[tuple[Any, ...]] = []
        self.failure: Optional[BaseException] = None
        self.stamp, self.session, self.what = STAMP, "the session", "allreduce 'x'"

        def noting(op: Any, n: int, slice_s: float, handle: Any) -> int:
            assert (n, slice_s, self.busy, handle[0]) == (1, 0.5, True, 0)
            self.runs.append((op[0].input, op[0].output, op[0].output_bytes))
            return run(op[0], handle)

        self._run = RUN(noting)
        self.door = (ctypes.cast(self._run, ctypes.c_void_p).value, 1, 1, 1)
        self.arm(ctypes.addressof(self.op), 1, ctypes.addressof(self.handle), self.door)

    def go_on(self, status: int, keep: Any) -> None:
        self.said.append(("go on", status, keep))
        if self.failure is not None:
            raise self.failure

    def rescue(self, keep: Any) -> None:
        self.said.append(("rescue", keep))

    def take_other(self, status: int, tensor: Any, output: Any, adapter: Any) -> Any:
        self.said.append(("take other", status, tensor, output, adapter))
        if self.failure is not None:
            raise self.failure
        return "the engine's"


class Parts(types.SimpleNamespace):
    """A lane and its table."""


@pytest.fixture
def numpy_lane() -> Iterator[Parts]:
    table: dict[Any, Any] = {}
    made = lane.Lane(table, SESSION, (np.ndarray,), None, np.empty_like, "me", flight_table(), 0.5)
    yield Parts(table=table, lane=made)


class Flight(lane.LaneFlight):
    """A submitted operation, as `horovod._core.life.handles.Pending` is one."""

    dropped_handles: ClassVar[list[int]] = []

    def dropped(self) -> None:
        self.dropped_handles.append(self.handle)


def flight_table(table: Optional[dict[int, Any]] = None) -> Any:
    return lane.FlightTable({} if table is None else table, itertools.count(1), Flight, 0.5)


def torch_lane(table: dict[Any, Any]) -> Any:
    from horovod.torch.adapter import adapter

    terms = adapter.lane_terms
    if terms is None:
        pytest.skip("The lane cannot read the tensors of this torch.")
    return lane.Lane(table, SESSION, terms.types, terms.hides, terms.empty_like, adapter, flight_table(), 0.5)


# ---- which tensors


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
)
def test_every_element_type_is_known(dtype: str, numpy_lane: Parts) -> None:
    from horovod.numpy.adapter import adapter

    array = np.zeros((2, 3), dtype)
    numpy_lane.table["key"] = call = Call((2, 3), adapter.dtype(array))
    assert numpy_lane.lane.run_in_place("key", array) is True
    assert call.runs == [(array.ctypes.data, array.ctypes.data, 0)]
    for other in ("int16", "float64"):
        if other != dtype:
            assert numpy_lane.lane.run_in_place("key", np.zeros((2, 3), other)) is False


def read_only() -> Any:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(4, np.float32),
        np.zeros((3, 1), np.float32),
        np.zeros(6, np.float32)[::2],
        np.zeros(3, ">f4"),
        np.zeros(3, "datetime64[s]").view("datetime64[s]"),
        read_only(),
        np.ma.masked_array(np.zeros(3, np.float32)),
        [0.0, 0.0, 0.0],
        None,
    ],
    ids=["length", "shape", "strided", "byte order", "dates", "read-only", "masked", "list", "None"],
)
def test_other_arrays_are_left_to_python(value: Any, numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call()
    assert numpy_lane.lane.run_in_place("key", value) is False
    assert numpy_lane.lane.run_alike("key", value) is None
    assert not call.runs and not call.busy


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    table: dict[Any, Any] = {"key": Call()}
    run = torch_lane(table).run_in_place
    good = [torch.zeros(3), torch.nn.Parameter(torch.zeros(3)), torch.zeros(5)[1:4], torch.zeros(3, requires_grad=True)]
    for tensor in good:
        assert run("key", tensor) is True
    assert [one[0] for one in table["key"].runs] == [tensor.data_ptr() for tensor in good]

    class Own(torch.Tensor):
        pass

    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    for tensor in (
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(3, dtype=torch.bfloat16),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(6)[::2],
        torch.zeros(3, device="meta"),
        torch.zeros(3).to_sparse(),
        torch._neg_view(torch.zeros(3)),
        torch.zeros(3).as_subclass(Own),
        freed,
        np.zeros(3, np.float32),
    ):
        assert run("key", tensor) is False
    torch.vmap(lambda row: [run("key", row) and pytest.fail("a batched tensor has no memory"), row][1])(
        torch.zeros(2, 3)
    )
    assert len(table["key"].runs) == len(good)
    # Of shape (), where nothing but the flag tells that the memory holds the negated value.
    table["key"] = Call(())
    assert run("key", torch.tensor(1 + 2j).conj().imag) is False and run("key", torch.tensor(1.0)) is True
    table["key"] = Call((0,))
    assert run("key", torch.zeros(0)) is False


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_floats_of_torch_that_numpy_lacks(name: str) -> None:
    torch = pytest.importorskip("torch")
    table = {"key": Call((3,), dtypes.NAMES.index(name))}
    assert torch_lane(table).run_in_place("key", torch.zeros(3, dtype=getattr(torch, name))) is True
    assert torch_lane(table).run_in_place("key", torch.zeros(3, dtype=torch.uint8)) is False


# ---- which entries


def test_entries_that_must_not_run(numpy_lane: Parts) -> None:
    run = numpy_lane.lane.run_in_place
    array = np.zeros(3, np.float32)
    old, disarmed = Call(), Call()
    old.stamp = object()
    disarmed.arm(0, 1, 0, (0, 0, 0, 0))
    no_handle, no_stamp = Call(), Call()
    no_handle.arm(ctypes.addressof(no_handle.op), 1, 0, no_handle.door)
    no_door, many = Call(), Call()
    no_door.arm(ctypes.addressof(no_door.op), 1, ctypes.addressof(no_door.handle), (*no_door.door[:3], 0))
    many.arm(ctypes.addressof(many.op), 2, ctypes.addressof(many.handle), many.door)
    del no_stamp.stamp
    numpy_lane.table.update(
        old=old, disarmed=disarmed, foreign="no entry at all", no_handle=no_handle, no_stamp=no_stamp,
        no_door=no_door, many=many,
    )  # fmt: skip
    keys = ("old", "disarmed", "foreign", "no_handle", "no_stamp", "no_door", "many", "unknown", ["no key"])
    assert [run(key, array) for key in keys] == [False] * len(keys)
    with pytest.raises(TypeError, match="Expected 2 arguments"):
        run("old")


def test_an_entry_that_another_thread_runs(numpy_lane: Parts) -> None:
    started, go = threading.Event(), threading.Event()

    def slow(op: Any, handle: Any) -> int:
        started.set()
        assert go.wait(10)
        return OK

    numpy_lane.table["key"] = call = Call(run=slow)
    array = np.zeros(3, np.float32)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(numpy_lane.lane.run_in_place("key", array)))
    thread.start()
    assert started.wait(10)
    assert numpy_lane.lane.run_in_place("key", array) is False
    go.set()
    thread.join(10)
    assert answers == [True] and not call.busy
    assert numpy_lane.lane.run_in_place("key", array) is True


# ---- what the engine answers


def test_python_goes_on_where_the_engine_has_not_ended(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call(run=lambda op, handle: IN_PROGRESS)
    array = np.zeros(3, np.float32)
    assert numpy_lane.lane.run_in_place("key", array) is True
    assert call.said == [("go on", IN_PROGRESS, array)]
    output = numpy_lane.lane.run_alike("key", array)
    assert call.said[1][:2] == ("go on", IN_PROGRESS) and call.said[1][2][1] is output


def test_python_goes_on_where_the_engine_keeps_what_has_ended(numpy_lane: Parts) -> None:
    """As it does for tensors on a GPU, whose stream is still to be ordered."""

    def keep(op: Any, handle: Any) -> int:
        handle[0] = 5
        return OK

    numpy_lane.table["key"] = call = Call(run=keep)
    array = np.zeros(3, np.float32)
    assert numpy_lane.lane.run_in_place("key", array) is True
    assert numpy_lane.lane.run_alike("key", array).shape == (3,)
    assert [(said[0], said[1]) for said in call.said] == [("go on", OK)] * 2


def test_what_python_raises_comes_out_and_the_tensors_live_on(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call(run=lambda op, handle: 8)
    call.failure = KeyboardInterrupt()
    call.placed, call.placed_elements, call.placed_bytes = np.zeros(3, np.float32), 3, 12
    array = np.zeros(3, np.float32)
    for method in ("run_in_place", "run_alike", "run_placed"):
        with pytest.raises(KeyboardInterrupt):
            getattr(numpy_lane.lane, method)("key", array)
        assert call.said[-1][0] == "rescue" and not call.busy and call.op.output_bytes == 0


def test_a_second_signal_in_the_middle_of_the_rescue(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call(run=lambda op, handle: IN_PROGRESS)
    call.failure = KeyboardInterrupt("first")
    raised = [KeyboardInterrupt("second"), KeyboardInterrupt("third")]

    def rescue(keep: Any) -> None:
        if raised:
            raise raised.pop(0)
        call.said.append(("rescue", keep))

    call.rescue = rescue  # type: ignore[method-assign]
    array = np.zeros(3, np.float32)
    with pytest.raises(KeyboardInterrupt, match="third"):
        numpy_lane.lane.run_in_place("key", array)
    assert call.said[-1] == ("rescue", array) and not raised


class Interrupting(str):
    """A name while whose comparison a signal arrives."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise KeyboardInterrupt


def interrupt(array: Any) -> bool:
    raise KeyboardInterrupt


def test_what_a_signal_handler_raises_on_the_way_comes_out(numpy_lane: Parts) -> None:
    array = np.zeros(3, np.float32)
    numpy_lane.table["key"] = call = Call()
    call.placed, call.placed_elements, call.placed_bytes = array, 3, 12
    for method in ("run_in_place", "run_alike", "run_placed"):
        with pytest.raises(KeyboardInterrupt):
            getattr(numpy_lane.lane, method)(Interrupting("key"), array)
        hiding = lane.Lane(numpy_lane.table, SESSION, (np.ndarray,), interrupt, None, None, flight_table(), 0.5)
        with pytest.raises(KeyboardInterrupt):
            getattr(hiding, method)("key", array)
    assert not call.runs and not call.busy


def test_an_entry_that_is_disarmed_on_the_way() -> None:
    call = Call()

    def disarm(array: Any) -> bool:
        call.arm(0, 1, 0, (0, 0, 0, 0))
        return False

    made = lane.Lane({"key": call}, SESSION, (np.ndarray,), disarm, None, None, flight_table(), 0.5)
    assert made.run_in_place("key", np.zeros(3, np.float32)) is True and len(call.runs) == 1
    assert made.run_in_place("key", np.zeros(3, np.float32)) is False


def test_a_result_of_the_same_form(numpy_lane: Parts) -> None:
    def doubled(op: Any, handle: Any) -> int:
        values = [2 * value for value in (ctypes.c_float * 3).from_address(op.input)]
        (ctypes.c_float * 3).from_address(op.output)[:] = values
        return OK

    numpy_lane.table["key"] = Call(run=doubled)
    assert numpy_lane.lane.run_alike("key", np.arange(3, dtype=np.float32)).tolist() == [0, 2, 4]


def test_a_result_of_a_foreseen_size(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call()
    array = np.zeros(3, np.float32)
    call.placed, call.placed_elements, call.placed_bytes = np.zeros(6, np.float32), 6, 24
    result = numpy_lane.lane.run_placed("key", array)
    assert result.shape == (6,) and call.runs == [(array.ctypes.data, result.ctypes.data, 24)]
    assert call.op.output_bytes == 0


def test_a_result_whose_prototype_is_of_another_kind(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call()
    for prototype, elements in (
        (np.zeros(6), 6),
        (np.zeros(6, np.float32), 5),
        (np.zeros((2, 3), np.float32, order="F"), 6),
        (np.zeros(0, np.float32), 0),
    ):
        call.placed, call.placed_elements, call.placed_bytes = prototype, elements, 24
        assert numpy_lane.lane.run_placed("key", np.zeros(3, np.float32)) is None
    assert not call.runs and not call.busy


def test_a_result_for_which_no_memory_is_given(numpy_lane: Parts) -> None:
    numpy_lane.table["key"] = call = Call()
    array = np.zeros(3, np.float32)
    assert numpy_lane.lane.run_placed("key", array) == "the engine's"
    assert call.runs == [(array.ctypes.data, None, 0)]
    assert call.said == [("take other", OK, array, None, "me")] and not call.busy


def test_a_result_of_another_size(numpy_lane: Parts) -> None:
    def other(op: Any, handle: Any) -> int:
        handle[0] = 5
        return OK

    numpy_lane.table["key"] = call = Call(run=other)
    call.placed, call.placed_elements, call.placed_bytes = np.zeros(6, np.float32), 6, 24
    array = np.zeros(3, np.float32)
    assert numpy_lane.lane.run_placed("key", array) == "the engine's"
    assert call.said[0][:3] == ("take other", OK, array) and call.said[0][4] == "me"


# ---- without it


def test_it_can_be_done_without() -> None:
    code = """if True:
        from horovod._native import lane

        assert lane.Lane is None
        print(lane.missing)
        lane.LaneFlight.__new__(lane.LaneFlight)  # dropped before anything is known of it
    """
    environment = {**os.environ, "HOROVOD_LANE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("HOROVOD_LANE=0", "")


def test_an_interpreter_that_does_not_know_its_suffix_goes_without() -> None:
    """As free-threaded CPython: ".abi3.so" is not among its suffixes, because the stable interface is not its own."""
    code = """if True:
        import sys
        from importlib import machinery

        suffixes = [suffix for suffix in machinery.EXTENSION_SUFFIXES if ".abi3" not in suffix]
        assert len(suffixes) == len(machinery.EXTENSION_SUFFIXES) - 1
        finder = machinery.FileFinder.path_hook(
            (machinery.ExtensionFileLoader, suffixes), (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES)
        )
        sys.path_hooks[:] = [finder]
        sys.path_importer_cache.clear()
        from horovod._native import lane

        assert lane.Lane is lane.FlightTable is None
        print(lane.missing)
        import horovod.numpy as hvd

        hvd.init()
        import numpy as np

        assert hvd.synchronize(hvd.allreduce_async_(np.ones(3), name="x")).tolist() == [1, 1, 1]
        hvd.shutdown()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "_lane" in done.stdout, done.stderr


def test_wrong_terms_are_refused() -> None:
    with pytest.raises(TypeError, match="must hold types"):
        lane.Lane({}, {}, (3,), None, None, None, flight_table(), 1.0)
    with pytest.raises(ValueError, match="At most 4 types"):
        lane.Lane({}, {}, (int,) * 5, None, None, None, flight_table(), 1.0)
    with pytest.raises(TypeError, match="FlightTable"):
        lane.Lane({}, {}, (int,), None, None, None, {}, 1.0)
    for numbers, kind in ((3, Flight), (itertools.count(), lane.LaneFlight), (itertools.count(), int)):
        with pytest.raises(TypeError, match="An iterator of numbers and a class"):
            lane.FlightTable({}, numbers, kind, 1.0)
