"""The life of a session: arguments of init, what is answered when, process sets at init, forks. The engine is the fake
one."""

from __future__ import annotations

import os
import pathlib
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from fakes.engine import FakeEngine, FakeJob
from fakes.ranks import session_of

import horovod.numpy as hvd
from horovod._core import public
from horovod._core.compat.basics import HorovodBasics, basics
from horovod._core.errors import (
    HorovodInternalError,
    InvalidArgumentError,
    NotInitializedError,
    PeerLostError,
    ShutdownError,
)
from horovod._core.life import communicators, context, engine_start, process_sets, session
from horovod._core.life.planes import gpu_plane


class Starts:
    """Stands in for `engine_start.start`: notes its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any, bool]] = []
        self.failure: BaseException | None = None

    def __call__(self, settings: Any, epoch: int, ranks: Any, dynamic: bool) -> session.Session:
        self.calls.append((epoch, ranks, dynamic))
        if self.failure is not None:
            raise self.failure
        return self.made(dynamic)

    def made(self, dynamic: bool) -> session.Session:
        return session_of(FakeJob(1), 0, dynamic)


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Starts]:
    made = Starts()
    monkeypatch.setattr(engine_start, "start", made)
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


QUESTIONS = "rank size local_rank local_size cross_rank cross_size mpi_threads_supported"


@pytest.mark.parametrize("question", [*QUESTIONS.split(), "stop_timeline", "metrics"])
def test_questions_before_init(question: str) -> None:
    with pytest.raises(NotInitializedError, match=r"Horovod has not been initialized; use hvd\.init\(\)\.") as caught:
        getattr(hvd, question)()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, HorovodInternalError)


def test_questions_that_never_raise() -> None:
    assert (hvd.is_homogeneous(), hvd.gloo_enabled(), hvd.mpi_enabled(), hvd.is_initialized()) == (
        True,
        True,
        False,
        False,
    )


@pytest.mark.parametrize("operation", ["allreduce", "allgather", "alltoall", "reducescatter", "allreduce_"])
def test_operations_before_init(operation: str) -> None:
    with pytest.raises(NotInitializedError):
        getattr(hvd, operation)(np.ones(1), name="x")
    with pytest.raises(NotInitializedError):
        hvd.broadcast_object(1)


def test_a_second_init_does_nothing_and_says_so(starts: Starts) -> None:
    hvd.init()
    for wanted in ({"comm": [1, 0]}, {"process_sets": "dynamic"}, {"process_sets": [hvd.ProcessSet([0])]}):
        with pytest.warns(UserWarning, match=rf"{next(iter(wanted))}.* has no effect"):
            hvd.init(**wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in ({}, {"comm": [0]}, {"comm": []}, {"process_sets": []}):
            hvd.init(**same)
    assert len(starts.calls) == 1


def test_a_signal_handler_may_call_shutdown_at_any_time(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    made = starts.made
    monkeypatch.setattr(starts, "made", lambda dynamic: (hvd.shutdown(), made(dynamic))[1])
    hvd.init()
    assert hvd.is_initialized(), "init goes on where the handler found it"
    engine = session.require().engine
    stop = engine.shutdown
    nested: list[None] = []

    def handler(timeout_s: float) -> None:
        stop(timeout_s)
        if not nested:
            nested.append(None)
            hvd.shutdown()
            hvd.init()

    monkeypatch.setattr(engine, "shutdown", handler)
    monkeypatch.setattr(starts, "made", made)
    hvd.shutdown()
    assert hvd.is_initialized(), "the handler's init was the last call"


def test_a_signal_handler_cannot_call_init_in_the_midst_of_it(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starts, "made", lambda dynamic: hvd.init())
    with pytest.raises(InvalidArgumentError, match="signal handler called hvd.init"):
        hvd.init()
    assert not hvd.is_initialized()


def test_each_init_gets_the_launchers_epoch(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    hvd.init()
    hvd.shutdown()
    monkeypatch.setenv("HOROVOD_EPOCH", "2")
    hvd.init()
    assert [call[0] for call in starts.calls] == [0, 2]


def test_a_start_that_fails_leaves_no_session(starts: Starts) -> None:
    for failure in (InvalidArgumentError("x"), ImportError("x"), PeerLostError("x"), HorovodInternalError("x")):
        starts.failure = failure
        with pytest.raises(type(failure)):
            hvd.init()
        assert not hvd.is_initialized()
    starts.failure = None
    hvd.init()


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


class Comm:
    """A communicator of this process alone, in the form of mpi4py's."""

    def Get_rank(self) -> int:  # noqa: N802
        return 0

    def Get_size(self) -> int:  # noqa: N802
        return 1

    def Iallgather(self, mine: Any, every: Any) -> Any:  # noqa: N802
        every[:] = mine
        return self

    def Test(self) -> bool:  # noqa: N802
        return True


def test_a_communicator_is_the_list_of_its_ranks(starts: Starts) -> None:
    hvd.init(comm=Comm())
    assert starts.calls[-1][1] == [0]


def test_a_set_by_a_communicator_needs_one_in_init() -> None:
    process_set = hvd.ProcessSet(Comm())
    assert process_set.ranks is None and process_set.mpi_comm is not None
    with pytest.raises(NotImplementedError, match=r"needs hvd.init\(comm=...\) with one, too"):
        hvd.init(process_sets=[process_set])
    assert not hvd.is_initialized()


def test_sets_by_communicators_are_those_that_the_ranks_give() -> None:
    split = [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert communicators.grouped(split, 1) == ([[0, 2], [1, 3]], [1, 3])
    with_null = [(-1, 0), (1, 2), (1, 2)]
    assert communicators.grouped(with_null, -1) == ([[1, 2]], [1, 2])
    assert communicators.grouped([(-1, 0), (1, 1), (2, 1)], -1) == ([[1], [2]], None)


@pytest.mark.parametrize("told", [[(0, 3), (0, 3)], [(0, 2), (0, 1)], [(-1, 0), (-1, 0)]])
def test_communicators_that_do_not_fit_together_are_refused(told: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidArgumentError, match="process set"):
        communicators.grouped(told, 0)


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
    assert hvd.gloo_built() is True
    hvd.init()
    assert (hvd.mpi_enabled(), hvd.gloo_enabled()) == (False, True)
    assert (hvd.ddl_built(), hvd.ccl_built(), hvd.rocm_built()) == (False, False, False)
    with pytest.raises(ValueError, match="MPI"):
        hvd.mpi_threads_supported()


@pytest.mark.parametrize("there", [True, False])
def test_mpi_can_be_used_where_its_library_is(
    there: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "libmpi.so.40"
    monkeypatch.setenv("HOROVOD_MPI_LIBRARY", str(library))
    if there:
        library.touch()
    assert hvd.mpi_built() is there


def test_what_gpus_are_good_for_is_reported_before_and_after_init(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, driver in ((22809, True), (0, True), (0, False)):
        monkeypatch.setattr(gpu_plane, "nccl_version", lambda settings, version=version: version)
        monkeypatch.setattr(gpu_plane, "cuda_usable", lambda driver=driver: driver)
        for _ in range(2):
            assert (hvd.nccl_built(), hvd.cuda_built()) == (version, driver)
            hvd.init()
        hvd.shutdown()
    monkeypatch.setattr(gpu_plane, "cuda_usable", lambda: True)
    monkeypatch.setattr(engine_start, "library_usable", lambda: False)
    assert (hvd.nccl_built(), hvd.cuda_built()) == (0, False)


def _place() -> str:
    known = hvd.global_process_set
    return str(
        [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()]
        + [hvd.is_initialized(), hvd.is_homogeneous(), known.rank(), known.size(), known.included(), known.ranks]
    )


def test_a_forked_child_knows_its_parents_place_and_is_no_rank() -> None:
    hvd.init(process_sets="dynamic")
    place = _place()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for call in (hvd.init, hvd.barrier, hvd.join, lambda: hvd.add_process_set([0])):
            try:
                call()
            except Exception as error:
                texts.append(str(error))
        texts.append(_place())
        hvd.shutdown()
        os.write(writer, "\n".join([*texts, str(hvd.is_initialized())]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        texts = file.read().splitlines()
    os.waitpid(child, 0)
    assert len(texts) == 6
    assert all("forked" in text for text in texts[:4])
    assert texts[4:] == [place, "False"]
    assert hvd.rank() == 0


def test_a_shutdown_in_a_finally_tells_why() -> None:
    hvd.init()
    job = session.require().engine.job
    with pytest.raises(ValueError, match="bad batch"):
        try:
            raise ValueError("bad batch")
        finally:
            hvd.shutdown()
    assert job.last_words == {0: "ValueError: bad batch"}


def test_last_words_that_cannot_be_said_keep_nobody_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    def speechless(why: str) -> None:
        raise HorovodInternalError("no room for words")

    hvd.init()
    engine = session.require().engine
    monkeypatch.setattr(engine, "last_words", speechless)
    with pytest.raises(ValueError, match="bad batch"):
        try:
            raise ValueError("bad batch")
        finally:
            hvd.shutdown()
    assert engine.job.left == {0} and not hvd.is_initialized()


def test_the_set_of_all_ranks_is_not_made_twice() -> None:
    hvd.init(process_sets="dynamic")
    with pytest.raises(ValueError, match="exists already"):
        hvd.add_process_set([0])


def test_a_set_that_cannot_be_made_says_all_that_the_core_says(monkeypatch: pytest.MonkeyPatch) -> None:
    why = "rank 1 has shut down, and process set 0 needs it; call join()"

    def left(ranks: Sequence[int], by_members: bool) -> int:
        raise ShutdownError(why + ".")

    hvd.init(process_sets="dynamic")
    monkeypatch.setattr(session.require().engine, "process_set_add", left)
    with pytest.raises(ShutdownError, match=re.escape(f"cannot be made: {why}. A set or group")):
        process_sets.register(hvd.ProcessSet([0]))


def test_ids_are_forgotten_at_shutdown(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    job = FakeJob(2)
    monkeypatch.setattr(starts, "made", lambda dynamic: session_of(job, 0, dynamic))
    hvd.init(process_sets="dynamic")
    FakeEngine(job, 1).process_set_add([0])
    registered = hvd.add_process_set([0])
    assert registered.process_set_id == 1
    hvd.shutdown()
    assert registered.process_set_id is None
