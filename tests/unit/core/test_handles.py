"""The table of handles: who keeps what alive, what interrupts and shutdowns leave behind."""

from __future__ import annotations

import dataclasses
import gc
import subprocess
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from fakes.engine import FakeJob
from fakes.ranks import run_ranks, session_of

from horovod._core.errors import MismatchError, ShutdownError
from horovod._core.life import context, handles, session, waiting
from horovod._core.life.engine_port import IN_PROGRESS
from horovod._core.life.process_sets import add_process_set, global_process_set
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import Sum
from horovod._core.operations.reduction_calls import ReduceArguments
from horovod.numpy.adapter import adapter

ops = Collectives(adapter)


class Tracked(np.ndarray[Any, Any]):
    """An array that can be referred to weakly."""


def tracked(n: int) -> Any:
    return np.ones(n, np.float32).view(Tracked)


def interrupted_wait(number: int, timeout_s: float) -> int:
    raise KeyboardInterrupt


def test_tensors_live_until_the_end() -> None:
    def body(rank: int) -> None:
        if rank == 1:
            ops.barrier()
            ops.allreduce_(np.ones(4, np.float32), name="x")
            return
        tensor = tracked(4)
        alive = weakref.ref(tensor)
        handle = ops.allreduce_async(tensor, name="x")
        del tensor
        gc.collect()
        assert alive() is not None
        assert not ops.poll(handle)
        ops.barrier()
        ops.synchronize(handle)
        gc.collect()
        assert alive() is None

    run_ranks(2, body)


def test_an_operation_that_nobody_waited_for_prints_nothing_at_the_exit() -> None:
    script = (
        "import numpy as np\n"
        "import horovod.numpy as hvd\n"
        "hvd.init()\n"
        "handle = hvd.allreduce_async(np.ones(4, np.float32), name='x')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupted_synchronize_leaves_the_handle_valid() -> None:
    def body(rank: int) -> None:
        handle = ops.allreduce_async(np.ones(1), name="x", op=Sum)
        engine: Any = session.require().engine
        plain = engine.wait
        engine.wait = interrupted_wait
        with pytest.raises(KeyboardInterrupt):
            ops.synchronize(handle)
        engine.wait = plain
        assert ops.synchronize(handle).tolist() == [1]

    run_ranks(1, body)


@pytest.mark.parametrize("kind", ["allreduce", "allreduce_"])
def test_an_interrupted_call_keeps_its_tensors_alive(kind: str) -> None:
    def body(rank: int) -> None:
        if rank == 1:
            # Rank 0's interrupt comes before this one submits.
            ops.barrier()
            assert ops.allreduce(np.ones(4, np.float32), name="x", op=Sum).tolist() == [2] * 4
            ops.barrier()
            return
        engine: Any = session.require().engine
        plain = engine.wait
        tensor = tracked(4)
        alive = weakref.ref(tensor)
        engine.wait = interrupted_wait
        with pytest.raises(KeyboardInterrupt):
            getattr(ops, kind)(tensor, name="x", op=Sum)
        engine.wait = plain
        del tensor
        gc.collect()
        assert alive() is not None
        ops.barrier()
        ops.barrier()
        handles.forget_finished()
        gc.collect()
        assert alive() is None

    run_ranks(2, body)


def test_an_interrupt_keeps_all_tensors_that_are_waited_for_together() -> None:
    def body(rank: int) -> None:
        engine: Any = session.require().engine
        plain = engine.finish_all
        arguments = [ReduceArguments(f"x{i}", None, Sum, 1.0, 1.0, global_process_set) for i in range(3)]
        pendings = [ops.start_allreduce([tracked(2)], arguments[i], True) for i in range(3)]
        alive = [weakref.ref(pending.result) for pending in pendings]
        engine.poll, known = lambda number: IN_PROGRESS, engine.poll
        engine.finish_all = lambda numbers, timeout_s: interrupted_wait(0, timeout_s)
        with pytest.raises(KeyboardInterrupt):
            handles.finish_all(pendings)
        del pendings
        gc.collect()
        assert all(reference() is not None for reference in alive)
        engine.finish_all, engine.poll = plain, known
        handles.forget_finished()
        gc.collect()
        assert all(reference() is None for reference in alive)

    run_ranks(1, body)


def test_an_interrupt_inside_a_run_keeps_the_tensor() -> None:
    def body(rank: int) -> None:
        own = Collectives(adapter)
        engine: Any = session.require().engine
        plain, raises = engine.run, []

        def run(address: int, n: int, timeout_s: float, handle: int) -> int:
            if not raises:
                return int(plain(address, n, timeout_s, handle))
            # The engine has taken the operation, and a signal handler raises on the way back.
            engine.submit(address, n, 0, handle)
            raise raises.pop()

        engine.run = run
        own.allreduce_(tracked(1), name="x")
        raises.append(KeyboardInterrupt())
        tensor = tracked(1)
        alive = weakref.ref(tensor)
        engine.poll, known = lambda number: IN_PROGRESS, engine.poll
        with pytest.raises(KeyboardInterrupt):
            own.allreduce_(tensor, name="x")
        assert raises == []
        del tensor
        gc.collect()
        assert alive() is not None
        engine.poll = known
        handles.forget_finished()
        gc.collect()
        assert alive() is None
        assert own.allreduce_(np.ones(1, np.float32), name="x").tolist() == [1]

    run_ranks(1, body)


def test_what_is_dropped_while_the_engine_uses_it_lives_on() -> None:
    def body(rank: int) -> None:
        engine: Any = session.require().engine
        tensor = tracked(2)
        alive = weakref.ref(tensor)
        # As after a signal handler that raised between the submission and whatever would have kept the Pending.
        pending = ops.start_allreduce([tensor], ReduceArguments("x", None, Sum, 1.0, 1.0, global_process_set), True)
        engine.poll, known = lambda number: IN_PROGRESS, engine.poll
        del tensor, pending
        gc.collect()
        assert alive() is not None
        engine.poll = known
        handles.forget_finished()
        gc.collect()
        assert alive() is None

    run_ranks(1, body)


def test_slices_that_end_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "SLICE_S", 0.0001)

    def body(rank: int) -> Any:
        alone = add_process_set([1])
        for _ in range(2):
            if rank == 1:
                for _ in range(50):
                    ops.barrier(process_set=alone)
            assert ops.allreduce_(np.ones(1), name="x", op=Sum).tolist() == [2]

    run_ranks(2, body)


def test_handles_of_an_earlier_session() -> None:
    def body(rank: int) -> None:
        handle = ops.allreduce_async(np.ones(1), name="x")
        session.install(session_of(FakeJob(1), 0, True))
        assert ops.poll(handle)
        with pytest.raises(ShutdownError, match="allreduce 'x'.*shutdown"):
            ops.synchronize(handle)
        assert ops.synchronize(handle) is None

    run_ranks(1, body)


def test_unknown_and_used_handles() -> None:
    def body(rank: int) -> None:
        handle = ops.allreduce_async(np.ones(1))
        assert ops.synchronize(handle) is not None
        assert ops.synchronize(handle) is None
        assert ops.poll(handle)
        for unknown in (-1, 0, 10**9, None, "1", 1.0):
            for function in (ops.synchronize, ops.poll):
                with pytest.raises(ValueError, match="needs a handle"):
                    function(unknown)
        later = ops.allreduce_async(np.ones(1))
        assert ops.synchronize(later) is not None

    run_ranks(1, body)


def test_numbers_never_repeat() -> None:
    def body(rank: int) -> Any:
        started = [ops.allreduce_async(np.ones(1)) for _ in range(3)]
        for handle in started:
            ops.synchronize(handle)
        return started

    assert len({*run_ranks(1, body)[0], *run_ranks(1, body)[0]}) == 6


def test_what_failed_has_failed_for_every_thread_that_waits() -> None:
    def body(rank: int) -> None:
        handle = ops.allreduce_async(np.ones(3 + rank), name="x")
        engine = session.require().engine
        real = engine.finish
        known: list[int] = []

        def another_thread_is_faster(number: int, timeout_s: float) -> int:
            if known:
                return known[0]
            status = int(real(number, timeout_s))
            if status != IN_PROGRESS:
                known.append(status)
                with pytest.raises(MismatchError):
                    ops.synchronize(handle)
            return status

        engine.finish = another_thread_is_faster  # type: ignore[method-assign]
        with pytest.raises(MismatchError):
            ops.synchronize(handle)
        assert ops.synchronize(handle) is None

    run_ranks(2, body)


@pytest.mark.parametrize("path", [None, "", 5, "a\0b", "\ud800", object()])
def test_a_timeline_without_a_path_is_refused_on_all_ranks(path: Any) -> None:
    def body(rank: int) -> None:
        session.install(dataclasses.replace(session.require(), timeline_allowed=True))
        with pytest.raises(ValueError, match="the path of a file"):
            context.start_timeline(path)
        with pytest.raises(ValueError, match="mark_cycles"):
            context.start_timeline("/tmp/x.json", mark_cycles="yes")  # type: ignore[arg-type]

    run_ranks(2, body)
