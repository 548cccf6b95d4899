"""Cases of operations that come again under their names: what is repeated, and when it must not be.

Those called `case_lane_...` are of the lane; the others must hold without it, too.
"""

import contextlib
import gc
import weakref

import numpy as np
from jobs.case_runner import expect_raises, run_cases

import horovod.numpy as hvd
from horovod._core.life import handles, session, waiting
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.lane_calls import LaneCall
from horovod._native import lane
from horovod.numpy.adapter import NumpyAdapter, adapter

RESULTS_OF_OTHER_SHAPES = (
    (lambda ops, tensor: ops.allgather(tensor, name="x"), 8),
    (lambda ops, tensor: ops.alltoall(tensor, name="x"), 4),
    (lambda ops, tensor: ops.reducescatter(tensor, name="x", op=hvd.Sum), 2),
)


class Counting(Collectives):
    """Counts how often an operation takes the plain way."""

    def __init__(self, adapter=adapter):
        super().__init__(adapter)
        self.plain = 0

    def _described(self, *arguments):
        self.plain += 1
        return super()._described(*arguments)

    def count(self, repeated, of=None):
        """True if `repeated` of the operations were the first of their kind, and the lane repeated the others."""
        plain, self.plain = self.plain, 0
        return plain == (repeated if not lane.missing else of)


def ones(n=3, dtype=np.float32):
    return np.ones(n, dtype)


@contextlib.contextmanager
def patched(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def interrupted(*_):
    raise KeyboardInterrupt


def case_values_of_five_calls():
    ops = Counting()
    for kind in ("allreduce", "allreduce_", "allreduce_async", "allreduce_async_"):
        for _ in range(5):
            tensor = ones()
            result = getattr(ops, kind)(tensor, name=kind, op=hvd.Sum)
            result = ops.synchronize(result) if "async" in kind else result
            assert (result is tensor) == kind.endswith("_")
            assert result.tolist() == [2, 2, 2]
        assert ops.count(1, of=5), kind


def case_groups():
    ops = Counting()
    for _ in range(3):
        assert ops.grouped_allreduce_([ones(), ones(2)], name="g", op=hvd.Sum)[1].tolist() == [2, 2]
    assert ops.grouped_allreduce_([ones(), ones(2), ones(1)], name="g", op=hvd.Sum)[2].tolist() == [2]
    assert ops.count(2, of=4)


def case_another_shape_or_dtype():
    ops = Counting()
    for tensor in (ones(3), ones(4), ones(4, np.int32), np.ones((2, 2), np.int32), ones(3)):
        assert np.all(ops.allreduce_(tensor, name="x", op=hvd.Sum) == 2)
    assert ops.count(5, of=5)


def case_another_op():
    ops = Counting()
    for op, right in ((hvd.Sum, 2), (hvd.Max, 1), (hvd.Sum, 2), (hvd.Max, 1)):
        assert ops.allreduce_(ones(1), name="x", op=op).tolist() == [right]
    assert ops.count(2, of=4)


def case_without_names():
    ops = Counting()
    for _ in range(3):
        numbers = [ops.allreduce_async_(ones(n), op=hvd.Sum) for n in (1, 1, 2)]
        assert [ops.synchronize(number).tolist() for number in numbers] == [[2], [2], [2, 2]]
        assert ops.allgather(ones(hvd.rank() + 1)).tolist() == [1, 1, 1]
    assert ops.count(7, of=12)  # another shape is another call; the allgather's is always the same


def case_a_read_only_array_or_one_with_gaps_is_refused_the_second_time_too():
    ops = Collectives(adapter)
    ops.allreduce_(ones(2), name="x")
    ops.broadcast_(ones(2), 0, name="x")
    frozen = ones(2)
    frozen.flags.writeable = False
    expect_raises(ValueError, lambda: ops.allreduce_(frozen, name="x"), "read-only")
    expect_raises(ValueError, lambda: ops.broadcast_(frozen, 0, name="x"), "read-only")
    expect_raises(ValueError, lambda: ops.allreduce_(ones(4)[::2], name="x"), "contiguous")
    assert ops.allreduce(frozen, name="y", op=hvd.Sum).tolist() == [2, 2]  # as an input it is fine


def case_a_tensor_twice_in_a_group_is_refused_the_second_time_too():
    ops, twice = Collectives(adapter), ones()
    ops.grouped_allreduce([twice, twice], name="g", op=hvd.Sum)  # legal: the results are apart
    expect_raises(
        ValueError,
        lambda: ops.grouped_allreduce_([twice, twice], name="g", op=hvd.Sum),
        "the same tensor twice",
    )
    assert ops.grouped_allreduce_([ones(), ones()], name="g", op=hvd.Sum)[0].tolist() == [2, 2, 2]


def case_factors_that_are_no_plain_numbers_are_read_every_time():
    ops, factor = Collectives(adapter), np.array(0.5)
    results = []
    for factor[...] in (0.5, 2.0):
        results.append(ops.synchronize(ops.allreduce_async_(ones(1), name="x", op=hvd.Sum, prescale_factor=factor))[0])
        results.append(ops.synchronize(ops.broadcast_async(ones(1), np.array(0), name="b"))[0])
    assert results == [1.0, 1.0, 4.0, 1.0], results


def case_a_failed_submission_does_not_spoil_the_next():
    ops = Collectives(adapter)
    ops.allreduce_(ones(1), name="x", op=hvd.Sum)
    if hvd.rank() == 0:
        handle = ops.allreduce_async_(ones(1), name="x", op=hvd.Sum)
        expect_raises(ValueError, lambda: ops.allreduce_async_(ones(1), name="x", op=hvd.Sum), "in flight")
        ops.barrier()
        ops.synchronize(handle)
    else:
        ops.barrier()
        ops.allreduce_(ones(1), name="x", op=hvd.Sum)
    assert ops.allreduce_(ones(1), name="x", op=hvd.Sum).tolist() == [2]


def case_another_state_of_the_session():
    ops = Counting()
    for kind in (ops.allreduce, ops.allreduce_, ops.allreduce_async_):
        for _ in range(2):
            for _ in range(2):
                result = kind(ones(), name="x", op=hvd.Sum)
                assert (ops.synchronize(result) if isinstance(result, int) else result).tolist() == [2] * 3
                ops.broadcast_(ones(), 0, name="x")
            session.renew_stamp()
    assert ops.count(3 * 2 * 2, of=3 * 2 * 4)


def case_a_result_of_another_size_than_foreseen():
    ops = Collectives(adapter)
    got = []
    for step in range(4):
        # Rank 0 always has two rows, and so foresees four.
        tensor = np.full(2 if hvd.rank() == 0 else 2 + step % 2 * 3, hvd.rank(), np.int64)
        got.append(ops.allgather(tensor, name="x").tolist())
    short, long = [0, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1]
    assert got == [short, long] * 2, got


def case_an_asynchronous_call_between_does_not_write_into_an_older_result():
    ops = Collectives(adapter)
    ops.allgather(ones(2), name="x")
    older = ops.allgather(ones(2), name="x")
    newer = ops.synchronize(ops.allgather_async(ones(2) * 7, name="x"))
    assert (older.tolist(), newer.tolist()) == ([1] * 4, [7] * 4)


def case_large_results_lie_in_the_memory_of_the_core():
    for kind, rows in RESULTS_OF_OTHER_SHAPES:
        ops = Counting()
        kept = [kind(ops, np.ones((4, 200_000), np.float32) * (hvd.rank() + 1)) for _ in range(3)]
        assert [result.shape for result in kept] == [(rows, 200_000)] * 3 and kept[0].nbytes > 1 << 20
        assert all((result == kept[0]).all() and not result.flags.owndata for result in kept)
        assert ops.count(1, of=3)


def case_lane_results_of_a_known_size_go_into_memory_of_their_own():
    made = []

    def empty_like(tensor):
        made.append(np.empty_like(tensor))
        return made[-1]

    class Watched(NumpyAdapter):
        lane_terms = adapter.lane_terms._replace(empty_like=empty_like)

    for kind, rows in RESULTS_OF_OTHER_SHAPES:
        ops = Collectives(Watched())
        made.clear()
        kept = [kind(ops, ones(4) * (hvd.rank() + 1)) for _ in range(3)]
        assert [len(result) for result in kept] == [rows] * 3
        assert all((result == kept[0]).all() for result in kept)
        assert len(made) == 2 and all(result is one for result, one in zip(kept[1:], made))


def case_lane_names_for_ever_do_not_fill_the_memory():
    ops = Collectives(adapter)
    most = 0
    for number in range(10_000):
        ops.allreduce_(ones(1), name=f"x{number}")
        most = max(most, len(ops.lane_calls))
    assert 100 < most < 10_000


def case_lane_a_signal_while_a_large_result_is_taken():
    ops, engine = Collectives(adapter), session.require().engine
    large = ones(200_000)
    for owner, name in ((engine, "take_result"), (LaneCall, "take_other")):
        ops.allgather(large, name="x")
        release, released = engine.release, []

        def noted(handle, release=release, released=released):
            released.append(handle)
            return release(handle)

        with patched(owner, name, interrupted), patched(engine, "release", noted):
            expect_raises(KeyboardInterrupt, lambda: ops.allgather(large, name="x"))
        assert len(released) == 1  # nothing is left in the engine
        got = ops.allgather(large, name="x")
        assert len(got) == 400_000 and (got == 1).all()


def case_lane_a_signal_before_an_operation_under_way_is_waited_for():
    with patched(waiting, "SLICE_S", 0.01):
        ops = Collectives(adapter)
    memory = ones()
    array = memory[:]
    ops.allreduce_(array, name="x", op=hvd.Sum)
    if hvd.rank() == 1:
        hvd.barrier()
        assert ops.allreduce_(array, name="x", op=hvd.Sum).tolist() == [4] * 3
        return
    with patched(LaneCall, "go_on", interrupted):
        expect_raises(KeyboardInterrupt, lambda: ops.allreduce_(array, name="x", op=hvd.Sum))
    alive = weakref.ref(array)
    del array
    gc.collect()
    assert alive() is not None  # the engine still uses it
    hvd.barrier()
    while (array := alive()) is not None:
        del array
        handles.forget_finished()
        gc.collect()
    assert memory.tolist() == [4] * 3


if __name__ == "__main__":
    run_cases(globals(), hvd)
