"""Life of the engine in this process: `init`, `shutdown`, and the questions about rank, size and what is usable here.

Every framework module re-exports these functions. `init` reads the settings and the placement once, connects the ranks,
starts the engine and registers static process sets; `session` then holds the result. It knows no tensor.
"""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Final, Optional, Union

from horovod._core import settings
from horovod._core.callers import users_level
from horovod._core.errors import (
    CollectiveTimeoutError,
    HorovodError,
    InvalidArgumentError,
    PeerLostError,
)
from horovod._core.life import (
    communicators,
    connecting,
    counters_page,
    engine_start,
    fact_exchange,
    given_placement,
    handles,
    membership,
    process_sets,
    session,
)
from horovod._core.life.autotuning import autotune
from horovod._core.life.dumps import dump_service
from horovod._core.life.ending import last_words
from horovod._core.life.process_sets import ProcessSet

__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

# How long shutdown lets operations end that can still end, and the others take to hear the goodbye: at least so long.
_GOODBYE_S: Final = 5.0
_EPOCH_VARIABLE: Final = "HOROVOD_EPOCH"

# Guards init and shutdown against each other. A signal handler may call one of them while its thread is in one.
_lock = threading.RLock()
_starting = False  # init is at work
_ranks_in_force: Optional[list[int]] = None  # of init's comm


def init(comm: Any = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Connects this process with the other ranks of its job and starts the engine. A second call does nothing.

    Collective over all ranks of the job (with `comm`: over the listed ones).

    Args:
        comm: None: all processes that the launcher started; or a list of their ranks, or a communicator of mpi4py,
            which become ranks 0, 1, ... of a job of their own.
        process_sets: sets to register, in the same order on all ranks; or "dynamic", to allow `add_process_set` and
            `remove_process_set` later.

    Raises:
        InvalidArgumentError: a bad argument, or a setting that cannot be read.
        UnsupportedError: process sets by communicators, without one in `comm`.
        HorovodInternalError: a rank is missing or failed while the job connected; ResourceError: this process lacks
            memory, descriptors or threads.
    """
    global _starting, _ranks_in_force
    with _lock:
        if session.current is not None:
            _warn_of_other(comm, process_sets)
            return
        if session.forked:
            raise InvalidArgumentError(session.not_initialized_reason())
        if _starting:
            raise InvalidArgumentError(
                "A signal handler called hvd.init() while hvd.init() was running in the same thread."
            )
        _starting = True
        try:
            _ranks_in_force = _ranks_of(comm)
            sets, dynamic = _sets_of(process_sets)
            communicators.note(comm if communicators.is_one(comm) else None)
            chosen = settings.of_this_process()
            session.install(_start(chosen, dynamic))
            last_words.watch()
            dump_service.begin(session.require())
            _begin_with(sets)
        finally:
            _starting = False


def shutdown() -> None:
    """Stops the engine. Called at exit by itself; does nothing when not initialised. A forked child only forgets its
    parent's place.

    Operations of other ranks that need this one fail there; `init` may be called again on all ranks.
    """
    with _lock:
        current = session.current
        if current is None:
            _forget_inherited()
            return
        why = last_words.now()
        for end in session.on_end:
            end(current)
        dump_service.end()
        counters_page.pause()
        try:
            if why:
                with contextlib.suppress(HorovodError):  # the others then hear that this rank ends, not why
                    current.engine.last_words(why)
            current.engine.shutdown(_patience_s(current))
        finally:
            connecting.end()
            autotune.end()
            if session.current is current:  # no signal handler was faster
                session.install(None)
                handles.forget_all()
                process_sets.on_shutdown()


def stop_engine() -> None:
    """Fails what is under way, as `shutdown` does; but `rank` and `size` answer until that is called."""
    with _lock:
        if session.current is not None:
            counters_page.pause()
            session.current.engine.shutdown(_patience_s(session.current))
            connecting.end()


def _patience_s(current: session.Session) -> float:
    """How long a goodbye may take. A rank that leaves unheard fails all others, so it gives them as long as they may
    stand still in a collective: on a busy machine, or after a stop, seconds are little."""
    return max(_GOODBYE_S, current.settings.standstill_s)


def process_sets_are_dynamic() -> bool:
    """Process sets may be added and removed now."""
    return session.current is not None and session.current.dynamic_process_sets


def is_initialized() -> bool:
    """True between `init` and `shutdown`; in a forked child, as in its parent at the fork."""
    return session.place() is not None


def size() -> int:
    """Number of ranks of the job."""
    return session.require_place().size


def rank() -> int:
    """Number of this process among the ranks of the job, from 0."""
    return session.require_place().rank


def local_size() -> int:
    """Number of ranks on this host."""
    return session.require_place().local_size


def local_rank() -> int:
    """Number of this process among the ranks on this host, from 0."""
    return session.require_place().local_rank


def cross_size() -> int:
    """Number of hosts that have a rank with this local rank."""
    return session.require_place().cross_size


def cross_rank() -> int:
    """Number of this host among them, from 0."""
    return session.require_place().cross_rank


def is_homogeneous() -> bool:
    """True if every host has the same number of ranks. Never raises: before `init` this process is alone."""
    place = session.place()
    return place is None or place.is_homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins to write a trace of all operations of all ranks (Chrome trace format), on rank 0's host.

    Collective.

    Args:
        file_path: of the trace; an earlier one there is replaced. After `init(comm=[...])`, each of the jobs needs a
            file of its own.
        mark_cycles: also mark where each batch starts.

    Raises:
        InvalidArgumentError: on all ranks: no path, or HOROVOD_TIMELINE was not set when `init` was called (DYNAMIC
            allows this call without a trace from the start). On rank 0: the file cannot be written.
        NotInitializedError: `init` has not been called.
    """
    current = session.require()
    if not current.timeline_allowed:
        raise InvalidArgumentError(
            "start_timeline needs HOROVOD_TIMELINE=DYNAMIC (or a path) to be set before hvd.init()."
        )
    path = _path_of_timeline(file_path)
    if not isinstance(mark_cycles, (bool, int)):
        raise InvalidArgumentError(f"start_timeline: mark_cycles must be True or False. Received: {mark_cycles!r}.")
    if current.rank == 0:
        current.engine.timeline_start(path, bool(mark_cycles))


def _path_of_timeline(file_path: Any) -> str:
    """Checked on all ranks, though rank 0 alone writes the file: a wrong program fails everywhere."""
    try:
        path: str = os.fsdecode(file_path)
        valid = bool(path) and "\0" not in path and bool(path.encode())
        if valid:
            return path
    except (TypeError, UnicodeError):
        pass
    raise InvalidArgumentError(f"start_timeline needs the path of a file. Received: {file_path!r}.")


def stop_timeline() -> None:
    """Ends the trace. Collective. Rank 0 waits 2 s at most for what the other ranks have recorded.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    current = session.require()
    if current.rank == 0:
        current.engine.timeline_stop()


def mpi_enabled() -> bool:
    """True if the ranks of this job have met through MPI, or MPI moves their tensors. Never raises."""
    return session.place() is not None and fact_exchange.in_use()


def gloo_enabled() -> bool:
    """True: the ranks find one another without MPI. Never raises."""
    return True


def mpi_threads_supported() -> bool:
    """Whether MPI was initialised with full multithreading.

    Raises:
        InvalidArgumentError: MPI is not in use.
        NotInitializedError: `init` has not been called.
    """
    session.require()
    if fact_exchange.in_use():
        return fact_exchange.thread_multiple()
    raise InvalidArgumentError("mpi_threads_supported needs MPI, which is not in use in this job; see mpi_enabled().")


def gloo_built() -> bool:
    """True if the built-in MPI-free backend is usable on this machine."""
    return engine_start.library_usable()


def mpi_built() -> bool:
    """True if there is an MPI library on this machine, through which ranks on several hosts can meet and which can move
    tensors."""
    return fact_exchange.installed(settings.of_this_process())


def nccl_built() -> int:
    """NCCL's version as one integer, such as 22809, if this machine has an NVIDIA GPU, its driver and an NCCL that can
    be opened, or a GPU of AMD's, HIP and an RCCL, which tells NCCL's version; else 0. Starts no CUDA. Before `init` as
    after it, and whatever HOROVOD_GPU_OPERATIONS asks for.
    """
    from horovod._core.life.planes import gpu_plane  # few programs ask

    return gpu_plane.nccl_version(settings.of_this_process()) if engine_start.library_usable() else 0


def cuda_built() -> bool:
    """True if this machine has an NVIDIA GPU and its driver can be opened: tensors on it are moved by NCCL, or without
    one through the host's memory. Starts no CUDA."""
    from horovod._core.life.planes import gpu_plane

    return engine_start.library_usable() and gpu_plane.cuda_usable()


def ddl_built() -> bool:
    """False: there is no DDL backend."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL backend."""
    return False


def rocm_built() -> bool:
    """True if this process works on GPUs of AMD's, and HIP's library and RCCL can be opened. Starts no HIP."""
    from horovod._core.life.planes import gpu_plane

    return engine_start.library_usable() and gpu_plane.rocm_usable(settings.of_this_process())


def _ranks_of(comm: Any) -> Optional[list[int]]:
    if comm is None:
        return None
    if communicators.is_one(comm):
        return communicators.launcher_ranks(comm)
    try:
        return [operator.index(rank) for rank in comm] or None
    except TypeError:
        raise InvalidArgumentError(
            f"comm must be a list of ranks (integers), or a communicator of mpi4py. Received: {comm!r}."
        ) from None


def _sets_of(given: Any) -> tuple[list[ProcessSet], bool]:
    """The sets to register, and whether `init` itself asks for dynamic sets."""
    if given is None:
        return [], False
    if isinstance(given, str):
        if given.lower() != "dynamic":
            raise InvalidArgumentError(
                f"process_sets must be a list of hvd.ProcessSet or the text 'dynamic'. Received: {given!r}."
            )
        return [], True
    return process_sets.check_static_list(given), False


def _start(chosen: settings.Settings, dynamic: bool) -> session.Session:
    """Starts the engine with the ranks that there are: in an elastic job with those of the next epoch, as often as one
    is lost meanwhile."""
    why = ""
    while True:
        if membership.is_enrolled() or not given_placement.is_given():
            membership.take_place(why)
        if membership.is_member() and _ranks_in_force is not None:
            raise InvalidArgumentError("hvd.init(comm=...) names ranks, which change in an elastic job; leave it out.")
        try:
            return engine_start.start(chosen, _job_epoch(), _ranks_in_force, dynamic)
        except (PeerLostError, CollectiveTimeoutError) as error:
            if not membership.is_member():
                raise
            why = str(error)


def _warn_of_other(comm: Any, given: Any) -> None:
    """Of arguments of a second `init` that ask for something else than what is in force."""
    wanted, now = None if communicators.is_one(comm) else _ranks_of(comm), session.require()
    in_force = _ranks_in_force or list(range(now.size))
    ignored = [] if wanted is None or wanted == in_force else [f"comm={wanted}"]
    if isinstance(given, str) and not now.dynamic_process_sets:
        ignored.append(f"process_sets={given!r}")
    elif isinstance(given, (list, tuple)):
        ignored += [f"process_sets with {one}" for one in given if getattr(one, "process_set_id", None) is None]
    if ignored:
        warnings.warn(
            f"hvd.init() has been called before and does nothing now: {', '.join(ignored)} has no effect. Give it to "
            "the first call, or call hvd.shutdown() before.",
            stacklevel=users_level(),
        )


def _begin_with(sets: Sequence[ProcessSet]) -> None:
    """What follows the engine's start, and ends it when it fails."""
    try:
        autotune.begin(session.require())
        for begin in session.on_begin:
            begin(session.require())
        process_sets.on_init(session.require().size)
        for process_set in sets:
            # An object that was registered in an earlier session keeps no id, so that it may be given again.
            process_sets.register(process_set)
    except HorovodError as error:
        if session.current is not None:  # no signal handler has called shutdown
            dump_service.end()
            with contextlib.suppress(HorovodError):
                session.current.engine.last_words(f"{type(error).__name__}: {error}")
            session.current.engine.shutdown(0.0)
            counters_page.pause()
            autotune.end()
            session.install(None)
            process_sets.on_shutdown()
        raise


def _job_epoch() -> int:
    """The launcher's count of changes of the job; 0 for a job that does not change."""
    epoch = membership.epoch()
    if epoch is not None:
        return epoch
    if given_placement.is_given():
        return 0
    text = os.environ.get(_EPOCH_VARIABLE, "") or "0"
    if not text.isdecimal():
        raise InvalidArgumentError(f"{_EPOCH_VARIABLE} must be an integer >= 0. Received: {text!r}.")
    return int(text)


def _forget_inherited() -> None:
    if session.place() is not None:
        session.forget_inherited()
        process_sets.on_shutdown()


def _at_exit() -> None:
    # A forked child has no session: `disown_after_fork` took it away.
    failed = bool(last_words.now())
    shutdown()
    fact_exchange.end(failed)


def _after_fork() -> None:
    global _lock, _starting
    # The parent's lock may have been held by another thread at the time of the fork.
    _lock, _starting = threading.RLock(), False
    dump_service.forget()
    counters_page.forget()
    autotune.forget()
    connecting.forget()
    membership.forget()
    session.disown_after_fork()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
