"""Repeated named operations: what is reused, and when it must not be."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, Callable

import numpy as np
import pytest
from fake_engine import FakeEngine
from fake_ranks import run_ranks

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import handles, session, waiting
from horovod._core.operations import prepared_calls
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.prepared import Prepared
from horovod._core.operations.reduce_ops import Max, Sum
from horovod.numpy.adapter import NumpyAdapter, adapter


class Counting(Collectives):
    """Counts how often a reduction takes the long way."""

    def __init__(self) -> None:
        super().__init__(adapter)
        self.long_ways = 0

    def _prepare(self, *arguments: Any) -> Any:
        self.long_ways += 1
        return super()._prepare(*arguments)


def ones(n: int = 3, dtype: Any = np.float32) -> Any:
    return np.ones(n, dtype)


@pytest.mark.parametrize("kind", ["allreduce", "allreduce_", "allreduce_async", "allreduce_async_"])
def test_the_second_call_is_prepared(kind: str) -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for _ in range(5):
            tensor = ones()
            result = getattr(ops, kind)(tensor, name="x", op=Sum)
            result = ops.synchronize(result) if "async" in kind else result
            assert (result is tensor) == kind.endswith("_")
            assert result.tolist() == [2, 2, 2]
        return ops.long_ways

    assert run_ranks(2, body) == [1, 1]


def test_groups_are_prepared_too() -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for _ in range(3):
            assert ops.grouped_allreduce_([ones(), ones(2)], name="g", op=Sum)[1].tolist() == [2, 2]
        assert ops.grouped_allreduce_([ones(), ones(2), ones(1)], name="g", op=Sum)[2].tolist() == [2]
        return ops.long_ways

    assert run_ranks(2, body) == [2, 2]


def test_another_shape_or_dtype_is_prepared_anew() -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for tensor in (ones(3), ones(4), ones(4, np.int32), np.ones((2, 2), np.int32), ones(3)):
            assert np.all(ops.allreduce_(tensor, name="x", op=Sum) == 2)
        return ops.long_ways

    assert run_ranks(2, body) == [5, 5]


def test_another_op_is_another_submission() -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for op, right in ((Sum, 2), (Max, 1), (Sum, 2), (Max, 1)):
            assert ops.allreduce_(ones(1), name="x", op=op).tolist() == [right]
        return ops.long_ways

    assert run_ranks(2, body) == [2, 2]


def test_a_read_only_array_is_refused_also_when_prepared() -> None:
    def body(rank: int) -> None:
        ops = Collectives(adapter)
        ops.allreduce_(ones(1), name="x")
        frozen = ones(1)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            ops.allreduce_(frozen, name="x")
        with pytest.raises(ValueError, match="read-only"):
            ops.broadcast_(frozen, 0, name="x")
        # As an input it is fine.
        assert ops.allreduce(frozen, name="y", op=Sum).tolist() == [1]

    run_ranks(1, body)


def test_gaps_are_refused_also_when_prepared() -> None:
    def body(rank: int) -> None:
        ops = Collectives(adapter)
        ops.allreduce_(ones(2), name="x")
        with pytest.raises(ValueError, match="contiguous"):
            ops.allreduce_(ones(4)[::2], name="x")

    run_ranks(1, body)


@pytest.mark.parametrize("kind", ["allreduce", "allreduce_", "allreduce_async_"])
def test_a_new_stamp_makes_it_stale(kind: str) -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for _ in range(2):
            for _ in range(2):
                result = getattr(ops, kind)(ones(), name="x")
                if "async" in kind:
                    ops.synchronize(result)
            session.renew_stamp()
        return ops.long_ways

    assert run_ranks(2, body) == [2, 2]


def test_a_broadcast_of_an_earlier_session_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(rank: int) -> Any:
        ops = Collectives(adapter)
        for _ in range(2):
            for _ in range(3):
                ops.broadcast_(ones(), 0, name="x")
            session.renew_stamp()
        return [each for each in remembered if each is ops.prepared]

    remembered: list[Any] = []
    remember = prepared_calls.PreparedCalls.remember
    monkeypatch.setattr(
        prepared_calls.PreparedCalls,
        "remember",
        lambda self, *arguments: remembered.append(self) or remember(self, *arguments),
    )
    assert [len(once_in_each_session) for once_in_each_session in run_ranks(2, body)] == [2, 2]


def test_names_for_ever_do_not_fill_the_memory() -> None:
    def body(rank: int) -> Any:
        ops = Collectives(adapter)
        ops.allreduce_(ones(1), name="x")
        ready = made[0]
        most = 0
        for number in range(30_000):
            ops.prepared.keep(f"x{number}", ready)
            most = max(most, len(ops.prepared))
        return most

    made: list[Prepared] = []
    keep = prepared_calls.PreparedCalls.keep

    def noted(self: prepared_calls.PreparedCalls, key: Any, ready: Prepared) -> None:
        made.append(ready)
        keep(self, key, ready)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared_calls.PreparedCalls, "keep", noted)
        assert 100 < run_ranks(1, body)[0] < 10_000


def test_unnamed_operations_are_prepared_too() -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        for _ in range(3):
            handles = [ops.allreduce_async_(ones(n), op=Sum) for n in (1, 1, 2)]
            assert [ops.synchronize(handle).tolist() for handle in handles] == [[2], [2], [2, 2]]
            assert ops.allgather(ones(rank + 1)).tolist() == [1, 1, 1]
        return ops.long_ways

    assert run_ranks(2, body) == [6, 6]  # another shape is another submission


Kind = Callable[[Collectives, Any], Any]
with_results = pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (lambda ops, tensor: ops.allgather(tensor, name="x"), 8),
        (lambda ops, tensor: ops.alltoall(tensor, name="x"), 4),
        (lambda ops, tensor: ops.reducescatter(tensor, name="x", op=Sum), 2),
    ],
)


@with_results
def test_results_of_a_known_size_go_into_memory_of_their_own(kind: Kind, rows: int) -> None:
    def body(rank: int) -> Any:
        made: list[Any] = []

        class Watched(NumpyAdapter):
            def empty_like(self, tensor: Any) -> Any:
                made.append(super().empty_like(tensor))
                return made[-1]

        ops = Collectives(Watched())
        kept = [kind(ops, ones(4) * (rank + 1)) for _ in range(3)]
        assert [len(result) for result in kept] == [rows] * 3
        assert all((result == kept[0]).all() for result in kept)
        return [result is one for result, one in zip(kept[1:], made)]

    assert run_ranks(2, body) == [[True, True]] * 2


@with_results
def test_large_results_lie_in_the_memory_of_the_core(kind: Kind, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    long_ways: list[Any] = []
    submit = prepared_calls.PreparedCalls.submit_allocated
    monkeypatch.setattr(
        prepared_calls.PreparedCalls,
        "submit_allocated",
        lambda self, *arguments: long_ways.append(arguments) or submit(self, *arguments),
    )

    def body(rank: int) -> Any:
        ops = Collectives(adapter)
        kept = [kind(ops, np.ones((4, 200_000), np.float32) * (rank + 1)) for _ in range(3)]
        assert [result.shape for result in kept] == [(rows, 200_000)] * 3 and kept[0].nbytes > 1 << 20
        return kept

    for results in run_ranks(2, body):
        assert all((result == results[0]).all() for result in results)
    assert len(long_ways) == 2  # the first of each rank


def interrupted(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("at", ["take_result", "take_other"])
def test_a_signal_while_a_large_result_is_taken(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(rank: int) -> Any:
        ops, engine = Collectives(adapter), session.require().engine
        large = ones(200_000)
        ops.allgather(large, name="x")
        release, released = engine.release, []
        engine.release = lambda handle: released.append(handle) or release(handle)  # type: ignore[method-assign]
        both.wait()
        monkeypatch.setattr(subject, at, interrupted)  # of both ranks
        with pytest.raises(KeyboardInterrupt):
            ops.allgather(large, name="x")
        assert len(released) == 1  # nothing is left in the engine
        both.wait()
        monkeypatch.setattr(subject, at, plain)
        got = ops.allgather(large, name="x")
        return len(got), bool((got == 1).all())

    subject: Any = FakeEngine if at == "take_result" else Prepared
    plain, both = getattr(subject, at), threading.Barrier(2, timeout=60)
    assert run_ranks(2, body) == [(400_000, True)] * 2


def test_a_signal_before_an_operation_under_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SLICE_S", 0.01)
    go_on = Prepared.go_on
    told = threading.Event()

    def body(rank: int) -> Any:
        ops, array = Collectives(adapter), ones()
        ops.allreduce_(array, name="x", op=Sum)
        if rank == 1:
            assert told.wait(60)
            return ops.allreduce_(array, name="x", op=Sum).tolist()
        monkeypatch.setattr(Prepared, "go_on", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ops.allreduce_(array, name="x", op=Sum)
        monkeypatch.setattr(Prepared, "go_on", go_on)
        alive = weakref.ref(array)
        del array
        gc.collect()
        assert alive() is not None  # the engine still uses it
        told.set()
        while (array := alive()) is not None:
            seen = array.tolist()
            del array
            handles.forget_finished()
            gc.collect()
        return seen

    assert run_ranks(2, body) == [[4] * 3] * 2


def test_a_result_of_another_size_than_foreseen() -> None:
    def body(rank: int) -> Any:
        ops = Collectives(adapter)
        got = []
        for step in range(4):
            # Rank 0 always has two rows, and so foresees four.
            tensor = np.full(2 if rank == 0 else 2 + step % 2 * 3, rank, np.int64)
            got.append(ops.allgather(tensor, name="x").tolist())
        return got

    short, long = [0, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1]
    assert run_ranks(2, body) == [[short, long] * 2] * 2


def test_an_asynchronous_call_between_does_not_write_into_an_older_result() -> None:
    def body(rank: int) -> Any:
        ops = Collectives(adapter)
        ops.allgather(ones(2), name="x")
        older = ops.allgather(ones(2), name="x")
        newer = ops.synchronize(ops.allgather_async(ones(2) * 7, name="x"))
        return older.tolist(), newer.tolist()

    assert run_ranks(2, body) == [([1] * 4, [7] * 4)] * 2


def test_a_failed_submission_does_not_spoil_the_next() -> None:
    def body(rank: int) -> Any:
        ops = Counting()
        ops.allreduce_(ones(1), name="x", op=Sum)
        if rank == 0:
            handle = ops.allreduce_async_(ones(1), name="x", op=Sum)
            with pytest.raises(ValueError, match="in flight"):
                ops.allreduce_async_(ones(1), name="x", op=Sum)
            ops.barrier()
            ops.synchronize(handle)
        else:
            ops.barrier()
            ops.allreduce_(ones(1), name="x", op=Sum)
        return ops.allreduce_(ones(1), name="x", op=Sum).tolist()

    assert run_ranks(2, body) == [[2], [2]]


def test_a_tensor_twice_in_a_group_is_refused_also_when_prepared() -> None:
    def body(rank: int) -> None:
        ops = Counting()
        twice = ones()
        ops.grouped_allreduce([twice, twice], name="g", op=Sum)  # legal: the results are apart
        with pytest.raises(InvalidArgumentError, match="the same tensor twice"):
            ops.grouped_allreduce_([twice, twice], name="g", op=Sum)
        assert ops.grouped_allreduce_([ones(), ones()], name="g", op=Sum)[0].tolist() == [1, 1, 1]

    run_ranks(1, body)


def test_factors_that_are_no_plain_numbers_are_read_every_time() -> None:
    def body(rank: int) -> Any:
        ops, factor = Counting(), np.array(0.5)
        results = []
        for factor[...] in (0.5, 2.0):
            results.append(ops.synchronize(ops.allreduce_async_(ones(1), name="x", op=Sum, prescale_factor=factor))[0])
            results.append(ops.synchronize(ops.broadcast_async(ones(1), np.array(0), name="b"))[0])
        return results

    assert run_ranks(2, body) == [[1.0, 1.0, 4.0, 1.0]] * 2
