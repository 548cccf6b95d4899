"""Life of the engine in this process: `init`, `shutdown`, and the questions about rank, size and what is usable here.

Every framework module re-exports these functions. `init` reads the settings and the placement once, connects the ranks,
starts the engine and registers static process sets; `session` then holds the result. It knows no tensor.
"""

from __future__ import annotations

import atexit
import json
import operator
import os
import threading
from collections.abc import Sequence
from typing import Any, Final, Optional, Union

from horovod._core import engine_start, handles, process_sets, session, settings
from horovod._core.errors import HorovodError, InvalidArgumentError, NotInitializedError, UnsupportedError
from horovod._core.process_sets import ProcessSet

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

# How long shutdown lets operations end that can still end.
_GOODBYE_S: Final = 5.0
_EPOCH_VARIABLE: Final = "HOROVOD_EPOCH"

_lock = threading.Lock()  # guards init and shutdown against each other
_attempts_of_epoch: dict[int, int] = {}  # job epoch -> how often this process has tried to initialise in it


def init(comm: Any = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Connects this process with the other ranks of its job and starts the engine. A second call does nothing.

    Collective over all ranks of the job (with `comm`: over the listed ones).

    Args:
        comm: None: all processes that the launcher started; or a list of their ranks, which become ranks 0, 1, ... of a
            job of their own.
        process_sets: sets to register, in the same order on all ranks; or "dynamic", to allow `add_process_set` and
            `remove_process_set` later.

    Raises:
        InvalidArgumentError: a bad argument, or a setting that cannot be read.
        UnsupportedError: an MPI communicator.
        HorovodInternalError: a rank is missing or failed while the job connected.
    """
    with _lock:
        if session.current is not None:
            return
        if session.forked:
            raise InvalidArgumentError(session.not_initialized_reason())
        ranks = _ranks_of(comm)
        sets, dynamic = _sets_of(process_sets)
        chosen = settings.from_environ(os.environ)
        epoch = _job_epoch()
        session.install(_start(chosen, epoch, ranks, dynamic))
        _register_sets(sets)


def shutdown() -> None:
    """Stops the engine. Called at exit by itself; does nothing when not initialised.

    Operations of other ranks that need this one fail there; `init` may be called again on all ranks.
    """
    with _lock:
        current = session.current
        if current is None:
            return
        try:
            current.engine.shutdown(_GOODBYE_S)
        finally:
            session.install(None)
            handles.forget_all()
            process_sets.on_shutdown()


def is_initialized() -> bool:
    """True between `init` and `shutdown`."""
    return session.current is not None


def size() -> int:
    """Number of ranks of the job."""
    return session.require().size


def rank() -> int:
    """Number of this process among the ranks of the job, from 0."""
    return session.require().rank


def local_size() -> int:
    """Number of ranks on this host."""
    return session.require().local_size


def local_rank() -> int:
    """Number of this process among the ranks on this host, from 0."""
    return session.require().local_rank


def cross_size() -> int:
    """Number of hosts that have a rank with this local rank."""
    return session.require().cross_size


def cross_rank() -> int:
    """Number of this host among them, from 0."""
    return session.require().cross_rank


def is_homogeneous() -> bool:
    """True if every host has the same number of ranks."""
    return session.require().is_homogeneous


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Begins to write a trace of all operations (Chrome trace format) on rank 0.

    Collective.

    Args:
        file_path: of the trace; an earlier one there is replaced.
        mark_cycles: also mark where each batch starts.

    Raises:
        InvalidArgumentError: HOROVOD_TIMELINE was not set when `init` was called (DYNAMIC allows this call without a
            trace from the start).
        NotInitializedError: `init` has not been called.
    """
    current = session.require()
    if not current.timeline_allowed:
        raise InvalidArgumentError(
            "start_timeline needs HOROVOD_TIMELINE=DYNAMIC (or a path) to be set before hvd.init()."
        )
    if current.rank == 0:
        current.engine.timeline_start(os.fspath(file_path), bool(mark_cycles))


def stop_timeline() -> None:
    """Ends the trace. Collective.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    current = session.require()
    if current.rank == 0:
        current.engine.timeline_stop()


def mpi_enabled() -> bool:
    """False: the MPI controller comes with the MPI backend."""
    return False


def gloo_enabled() -> bool:
    """True if the built-in MPI-free backend (shared memory and TCP) is in use."""
    session.require()
    return True


def mpi_threads_supported() -> bool:
    """Whether MPI was initialised with full multithreading.

    Raises:
        InvalidArgumentError: always, since MPI is not in use.
        NotInitializedError: `init` has not been called.
    """
    session.require()
    raise InvalidArgumentError("mpi_threads_supported needs MPI, which is not in use in this job; see mpi_enabled().")


def gloo_built() -> bool:
    """True if the built-in MPI-free backend is usable on this machine."""
    return engine_start.library_usable()


def mpi_built() -> bool:
    """True if MPI is usable on this machine."""
    return _backend_usable("mpi")


def nccl_built() -> int:
    """0 if NCCL is not usable on this machine, else its version as one integer."""
    return _backend_version("nccl")


def cuda_built() -> bool:
    """True if tensors on CUDA devices can be reduced there."""
    return _backend_version("nccl") != 0


def ddl_built() -> bool:
    """False: there is no DDL backend."""
    return False


def ccl_built() -> bool:
    """False: there is no oneCCL backend."""
    return False


def rocm_built() -> bool:
    """False: there is no ROCm backend."""
    return False


def _ranks_of(comm: Any) -> Optional[list[int]]:
    if comm is None:
        return None
    if hasattr(comm, "Get_rank"):
        raise UnsupportedError(
            "init(comm=...) with an MPI communicator needs the MPI backend, which comes later. Give a list of ranks, "
            "or nothing for all ranks."
        )
    try:
        return [operator.index(rank) for rank in comm] or None
    except TypeError:
        raise InvalidArgumentError(f"comm must be a list of ranks (integers). Received: {comm!r}.") from None


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


def _register_sets(sets: Sequence[ProcessSet]) -> None:
    try:
        process_sets.on_init(session.require().size)
        for process_set in sets:
            # An object that was registered in an earlier session keeps no id, so that it may be given again.
            process_sets.register(process_set)
    except HorovodError:
        session.require().engine.shutdown(0.0)
        session.install(None)
        process_sets.on_shutdown()
        raise


def _start(chosen: settings.Settings, job_epoch: int, ranks: Optional[Sequence[int]], dynamic: bool) -> session.Session:
    """Starts the engine. The number of the attempt must be equal on all ranks: one that fails before it has met the
    others does not count."""
    attempt = _attempts_of_epoch.get(job_epoch, 0) + 1
    try:
        # The launcher's epoch counts changes of the job; below it there is room for re-initialisations by the program.
        started = engine_start.start(chosen, (job_epoch << 20) + attempt, ranks, dynamic)
    except (ImportError, InvalidArgumentError):
        raise
    except BaseException:
        _attempts_of_epoch[job_epoch] = attempt
        raise
    _attempts_of_epoch[job_epoch] = attempt
    return started


def _job_epoch() -> int:
    """The launcher's count of changes of the job; 0 for a job that does not change."""
    text = os.environ.get(_EPOCH_VARIABLE, "") or "0"
    if not text.isdecimal():
        raise InvalidArgumentError(f"{_EPOCH_VARIABLE} must be an integer >= 0. Received: {text!r}.")
    return int(text)


def _backends() -> dict[str, Any]:
    try:
        text = engine_start.describe()
    except NotInitializedError:  # scripts ask while they are imported
        return {}
    if text is None:
        return {}
    return {backend["name"]: backend for backend in json.loads(text).get("backends", [])}


def _backend_usable(name: str) -> bool:
    return bool(_backends().get(name, {}).get("usable", False))


def _backend_version(name: str) -> int:
    return int(_backends().get(name, {}).get("version", 0)) if _backend_usable(name) else 0


def _at_exit() -> None:
    # A forked child has no session: `disown_after_fork` took it away.
    shutdown()


def _after_fork() -> None:
    global _lock
    # The parent's lock may have been held by another thread at the time of the fork.
    _lock = threading.Lock()
    session.disown_after_fork()
    process_sets.on_shutdown()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
