"""The life of a session: arguments of init, what is answered when, process sets at init, forks. The engine is the fake
one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeJob
from fake_ranks import session_of

import horovod.numpy as hvd
from horovod._core import context, engine_start, process_sets, public, session
from horovod._core.basics import HorovodBasics, basics
from horovod._core.errors import (
    HorovodInternalError,
    InvalidArgumentError,
    NotInitializedError,
    PeerLostError,
    UnsupportedError,
)


class Starts:
    """Stands in for `engine_start.start`: notes its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any, bool]] = []
        self.failure: BaseException | None = None

    def __call__(self, settings: Any, epoch: int, ranks: Any, dynamic: bool) -> session.Session:
        self.calls.append((epoch, ranks, dynamic))
        if self.failure is not None:
            raise self.failure
        return session_of(FakeJob(1), 0, dynamic)


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starts]:
    made = Starts()
    monkeypatch.setattr(engine_start, "start", made)
    monkeypatch.setattr(context, "_attempts_of_epoch", {})
    yield made
    context.shutdown()


def test_init_and_shutdown() -> None:
    assert not hvd.is_initialized()
    hvd.init()
    assert hvd.is_initialized()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (
        0,
        1,
        0,
        1,
        0,
        1,
    )
    assert hvd.is_homogeneous() is True
    assert hvd.global_process_set.ranks == [0]
    hvd.shutdown()
    hvd.shutdown()
    assert not hvd.is_initialized()
    assert hvd.global_process_set.ranks is None
    assert hvd.global_process_set.process_set_id == 0


QUESTIONS = "rank size local_rank local_size cross_rank cross_size is_homogeneous gloo_enabled mpi_threads_supported"


@pytest.mark.parametrize("question", [*QUESTIONS.split(), "stop_timeline"])
def test_questions_before_init(question: str) -> None:
    with pytest.raises(NotInitializedError, match=r"hvd.init\(\)") as caught:
        getattr(hvd, question)()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HorovodInternalError)


@pytest.mark.parametrize("operation", ["allreduce", "allgather", "alltoall", "reducescatter", "allreduce_"])
def test_operations_before_init(operation: str) -> None:
    with pytest.raises(NotInitializedError):
        getattr(hvd, operation)(np.ones(1), name="x")
    with pytest.raises(NotInitializedError):
        hvd.broadcast_object(1)


def test_a_second_init_does_nothing(starts: Starts) -> None:
    hvd.init()
    hvd.init(process_sets="dynamic")
    assert len(starts.calls) == 1


def test_each_init_has_its_epoch(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        hvd.init()
        hvd.shutdown()
    monkeypatch.setenv("HOROVOD_EPOCH", "2")
    hvd.init()
    epochs = [call[0] for call in starts.calls]
    assert epochs == [1, 2, 3, (2 << 20) + 1]


def test_only_attempts_that_met_others_count(starts: Starts) -> None:
    for failure in (InvalidArgumentError("x"), ImportError("x"), PeerLostError("x"), HorovodInternalError("x"), None):
        starts.failure = failure
        if failure is None:
            hvd.init()
            continue
        with pytest.raises(type(failure)):
            hvd.init()
        assert not hvd.is_initialized()
    assert [call[0] for call in starts.calls] == [1, 1, 1, 2, 3]


def test_comm(starts: Starts) -> None:
    for comm, ranks in ((None, None), ([], None), ([2, 0], [2, 0]), (np.array([1, 3]), [1, 3]), (range(2), [0, 1])):
        hvd.init(comm=comm)
        assert starts.calls[-1][1] == ranks
        hvd.shutdown()


@pytest.mark.parametrize("comm", ["world", 5, [0.5], [None]])
def test_bad_comm(comm: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="comm must be a list of ranks"):
        hvd.init(comm=comm)
    assert not hvd.is_initialized()


def test_an_mpi_communicator_comes_later() -> None:
    class Comm:
        def Get_rank(self) -> int:  # noqa: N802
            return 0

    with pytest.raises(NotImplementedError, match="MPI backend"):
        hvd.init(comm=Comm())
    with pytest.raises(UnsupportedError, match="MPI backend"):
        hvd.ProcessSet(Comm())


@pytest.mark.parametrize("word", ["dynamic", "Dynamic", "DYNAMIC"])
def test_dynamic(word: str, starts: Starts) -> None:
    hvd.init(process_sets=word)
    assert starts.calls[-1][2] is True


def test_bad_process_sets() -> None:
    for wrong, words in (("static", "'dynamic'"), ([[0]], "ProcessSet objects"), ([hvd.ProcessSet([0])] * 2, "twice")):
        with pytest.raises(InvalidArgumentError, match=words):
            hvd.init(process_sets=wrong)
        assert not hvd.is_initialized()


def test_a_set_that_cannot_be_registered_undoes_init() -> None:
    with pytest.raises(InvalidArgumentError, match="from 0 to 0"):
        hvd.init(process_sets=[hvd.ProcessSet([1])])
    assert not hvd.is_initialized()
    hvd.init()


def test_dynamic_sets_must_be_allowed() -> None:
    hvd.init()
    for call in (lambda: hvd.add_process_set([0]), lambda: hvd.remove_process_set(hvd.global_process_set)):
        with pytest.raises(ValueError, match="HOROVOD_DYNAMIC_PROCESS_SETS"):
            call()


def test_ids_and_ranks() -> None:
    hvd.init()
    assert basics._get_process_set_ids_and_ranks() == {0: [0]}
    assert HorovodBasics.rank() == 0


def test_every_module_exports_all_of_it() -> None:
    assert set(context.__all__) <= set(public.__all__) <= set(hvd.__all__)


def test_abilities() -> None:
    assert (hvd.nccl_built(), hvd.cuda_built(), hvd.mpi_built(), hvd.gloo_built()) == (0, False, False, True)
    hvd.init()
    assert (hvd.mpi_enabled(), hvd.gloo_enabled()) == (False, True)
    assert (hvd.ddl_built(), hvd.ccl_built(), hvd.rocm_built()) == (False, False, False)
    with pytest.raises(ValueError, match="MPI"):
        hvd.mpi_threads_supported()


def test_what_a_backend_is_good_for(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"backends": [{"name": "host", "usable": true}, {"name": "nccl", "usable": true, "version": 22304}]}'
    monkeypatch.setattr(engine_start, "describe", lambda: text)
    assert (hvd.nccl_built(), hvd.cuda_built(), hvd.mpi_built()) == (22304, True, False)
    monkeypatch.setattr(engine_start, "describe", lambda: text.replace('true, "version"', 'false, "version"'))
    assert (hvd.nccl_built(), hvd.cuda_built()) == (0, False)
    monkeypatch.setattr(engine_start, "describe", lambda: None)
    assert hvd.nccl_built() == 0


def test_a_forked_child_is_no_rank() -> None:
    hvd.init()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (hvd.rank, hvd.init, hvd.barrier):
            try:
                call()
            except Exception as error:
                texts.append(str(error))
        hvd.shutdown()
        os.write(writer, "\n".join([*texts, str(hvd.is_initialized())]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        texts = file.read().splitlines()
    os.waitpid(child, 0)
    assert len(texts) == 4
    assert all("forked" in text for text in texts[:3])
    assert texts[3] == "False"
    assert hvd.rank() == 0


def test_ids_are_forgotten_at_shutdown() -> None:
    hvd.init(process_sets="dynamic")
    assert process_sets._registered == []
    with pytest.raises(ValueError, match="exists already"):
        hvd.add_process_set([0])


def test_upstreams_paths() -> None:
    import horovod.common.basics
    import horovod.common.elastic
    import horovod.common.exceptions
    import horovod.common.process_sets
    import horovod.common.util

    assert horovod.common.exceptions.HorovodInternalError is HorovodInternalError
    assert horovod.common.process_sets.global_process_set is hvd.global_process_set
    assert horovod.common.basics.HorovodBasics is HorovodBasics
    assert callable(horovod.common.elastic.run_fn)
    assert horovod.common.util.split_list([1, 2, 3], 2) == [[1, 2], [3]]
