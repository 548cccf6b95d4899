"""Starting the native engine: placement, connections, configuration, `hvd_init`. Used by `context` only; tests replace
`start`."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import hashlib
import logging
import os
import re
from collections.abc import Sequence
from typing import Any, Final, Optional

from horovod._core.errors import (
    CollectiveTimeoutError,
    HorovodError,
    HorovodInternalError,
    InvalidArgumentError,
    PeerLostError,
    ResourceError,
    error_from_status,
)
from horovod._core.life import connecting, counters_page, fact_exchange, given_placement, logs, membership, session
from horovod._core.life.engine_port import OP_NAMES
from horovod._core.life.seal import Seal
from horovod._core.settings import Settings, say_notices
from horovod._core.tensors.adapter import ResultBlock
from horovod._native import abi, library
from horovod._native.config import make_config, tree
from horovod._native.engine import Engine
from horovod._native.mxnet import MxnetEngine
from horovod._net import failures
from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.clusters import lone
from horovod._net.clusters.launchers import mpi_family
from horovod._net.clusters.placement import Placement
from horovod._net.clusters.promises import refuse_other_job
from horovod._net.connections import Connections
from horovod._net.handshake.frames import tcp_options

__all__ = ["describe", "library_problem", "library_usable", "start"]

log = logging.getLogger("horovod")

# The engine's names begin with the operation, which its messages tell already.
_ENGINE_NAME: Final = re.compile(rf"\b({'|'.join(OP_NAMES)}) '\1\.")

# Files of traces that this process has been given, and the jobs that they name.
_traces_begun: Final[dict[str, str]] = {}


def start(settings: Settings, epoch: int, ranks: Optional[Sequence[int]], dynamic: bool) -> session.Session:
    """Connects this process with the ranks of its job and starts the engine. Collective.

    Args:
        settings: of this process.
        epoch: the launcher's count of changes of the job.
        ranks: connect only these ranks of the job, in this order; None: all.
        dynamic: process sets may be added later, whatever the settings say.

    Raises:
        ImportError: the core library cannot be used.
        HorovodError: a bad placement or setting, a rank that is missing or failed.
    """
    engine: Engine[Any, Any] = Engine(library.load(), _error, ResultBlock)
    try:
        interfaces = tuple(settings.gloo_iface or ())
        placement = membership.placed(given_placement.of_this_process())
        placement = dataclasses.replace(placement, interfaces=interfaces or placement.interfaces)
        logs.follow(settings, placement.rank)
        if placement.rank == 0:
            say_notices(settings)
        if placement.launcher == "single process":
            _remark_on_being_alone()
        # Before the ranks have met through MPI, how many hosts there are is a guess.
        hosts = None if placement.lacks_a_place_to_meet else settings.expected_hosts
        refuse_other_job(placement, settings.expected_size, hosts)
        place = placement if ranks is None else placement.restricted_to(ranks)
        # HOROVOD_START_TIMEOUT and HOROVOD_GLOO_TIMEOUT_SECONDS both promise time to connect: the longer is kept.
        timeout_s = max(settings.start_timeout_s, settings.standstill_s)
        tcp_options.believe_silence_of(settings.link_timeout_s)
        place, board = fact_exchange.exchanged(settings, placement, place, timeout_s)
        if board is not None and ranks is None:
            refuse_other_job(place, settings.expected_size, settings.expected_hosts)
        fields = settings.engine_fields(place.local_rank, place.local_size)
        # Where a profiler that starts programs says how it receives NVTX ranges.
        fields["nvtx_library"] = "" if settings.disable_nvtx_ranges else os.environ.get("NVTX_INJECTION64_PATH", "")
        fields.update(_trace_fields(_trace_of(fields["timeline_path"], ranks), place, epoch))
        connections = bootstrap(
            place,
            epoch=epoch,
            region_bytes=engine.region_bytes(place.local_size, fields["resident_bytes"]),
            timeout_s=timeout_s,
            # "shm" asks for what "auto" does on one host, and to be refused elsewhere.
            ways=Ways(
                "auto" if settings.transport == "shm" else settings.transport,
                settings.full_mesh_ranks,
                lambda hosts: tree(library.load(), hosts),
                board,
                by_mpi=settings.cpu_operations == "mpi",
            ),
            start=lambda connections: _start_engine(engine, connections, settings.transport, fields),
        )
        if settings.cpu_operations == "mpi":
            from horovod._core.life.planes import mpi_plane  # most jobs do without

            pids = tuple(peer.pid for peer in connections.peers if peer.same_host and peer.pid)
            mpi_plane.begin(settings, mpi_plane.Members(placement, connections.placement, pids), engine, timeout_s)
        elif settings.cpu_operations is None and placement.rank == 0 and mpi_family(placement.launcher) is not None:
            log.info(
                "our own shared memory and connections move the tensors; they were faster wherever both were measured "
                "(docs/mpi.md). Set HOROVOD_CPU_OPERATIONS=mpi to let the MPI library move them."
            )
    except BaseException as error:
        if engine.initialized():  # another rank's has failed to start
            engine.shutdown(0.0)
        counters_page.pause()
        connecting.end()
        if isinstance(error, failures.NetError):
            raise _translated(error) from None  # it says the same, in words that a user can catch
        raise
    _traces_begun[fields["timeline_path"]] = fields["timeline_job"]
    return _session(engine, connections, settings, dynamic)


def _trace_of(path: str, ranks: Optional[Sequence[int]]) -> str:
    """The file of a job made of these ranks of the launcher's: several such jobs have been given one path."""
    writer = ranks[0] if ranks else 0  # one process writes a file, whatever it belongs to later
    if not path or writer == 0:
        return path
    root, suffix = os.path.splitext(path)
    return f"{root}.rank{writer}{suffix}"


def _trace_fields(path: str, place: Placement, epoch: int) -> dict[str, Any]:
    """An elastic job has one trace, and so has a program that initialises again."""
    named = hashlib.sha256(f"trace/{membership.job() or place.job_key}".encode()).hexdigest()[:16]
    return {
        "timeline_path": path,
        "timeline_continues": int(epoch > 0 or path in _traces_begun),
        "timeline_job": _traces_begun.get(path) or named,
    }


@functools.lru_cache(maxsize=1)  # once in a process that leaves and joins again
def _remark_on_being_alone() -> None:
    if remark := lone.numbers_of_nodes(os.environ):
        log.warning("%s", remark)
    keeper = lone.keeper_above()
    if keeper is not None:
        lone.leave_mark(keeper)
        log.warning(
            "horovodrun has started this process or one of its ancestors, but its variables are missing here: "
            "something in between, such as env -i, sudo or a module wrapper, has cleared the environment. This "
            "process trains alone. Let the variables that begin with HOROVOD_ and _HOROVOD_ through."
        )


def _start_engine(engine: Engine[Any, Any], connections: Connections, transport: str, fields: dict[str, Any]) -> None:
    _require_shared_memory(connections, transport)
    place = connections.placement
    page = counters_page.begin(place.meeting_directory, place.launcher_rank(place.rank))
    page.place(place.rank, place.size, connections.epoch)
    fields = {**fields, "wish_fd": connecting.begin(connections, engine), "counters": page.words}
    config = _config(connections, fields)
    # Whatever hvd_init answers, the descriptors are the core's now.
    connections.disown()
    engine.init(config)
    connecting.serve()


def _require_shared_memory(connections: Connections, transport: str) -> None:
    strangers = [peer.rank for peer in connections.peers if not peer.same_host]
    if transport == "shm" and strangers:
        raise InvalidArgumentError(
            f"HOROVOD_TRANSPORT=shm, but rank {connections.placement.rank} shares no memory with rank {strangers[0]}. "
            "Use HOROVOD_TRANSPORT=auto."
        )


def library_problem() -> Optional[str]:
    """Why the core library cannot be loaded; None if it can."""
    try:
        library.load()
    except ImportError as error:
        return str(error)
    return None


def library_usable() -> bool:
    """True if the core library can be loaded."""
    return library_problem() is None


def describe() -> Optional[str]:
    """The engine's description of itself and its backends (JSON), or None if the library cannot be used."""
    if not library_usable():
        return None
    engine: Engine[Any, Any] = Engine(library.load(), _error, ResultBlock)
    return engine.describe()


def tensorflow_library() -> str:
    """The path of what `tf.load_op_library` loads; the core is loaded before it.

    Raises:
        ImportError: the core is missing or unusable.
    """
    library.load()
    return library.beside("libhorovod_tensorflow.so")


def tensorflow_problem() -> str:
    """Why the core's operators could not be added to the loaded TensorFlow; empty if they were."""
    text: bytes = library.load().hvd_register_tensorflow()
    return text.decode()


def tensorflow_xla_problem() -> str:
    """Why functions that TensorFlow compiles with XLA cannot hold collectives; empty if they can."""
    text: bytes = library.load().hvd_register_tensorflow_xla()
    return text.decode()


def tensorflow_gpu_problem(stream_of: Any) -> str:
    """Why TensorFlow's operators cannot take tensors on the GPU as they lie; empty if they can from now on.

    Args:
        stream_of: the address of an hvd_tensorflow_stream_fn, which stays loaded.
    """
    text: bytes = library.load().hvd_register_tensorflow_gpu(ctypes.cast(stream_of, abi.HvdTensorflowStreamFn))
    return text.decode()


def jax_handlers() -> dict[str, Any]:
    """The core's handlers of the XLA FFI, functions of ctypes, by XLA's name of the platform.

    Raises:
        ImportError: the core is missing or unusable.
    """
    core = library.load()
    return {"cpu": core.hvd_jax_collective, "CUDA": core.hvd_jax_collective_on_cuda}


def mxnet_engine(mxnet: Any) -> MxnetEngine:
    """What gives MXNet's engine operations of the core.

    Args:
        mxnet: its library, as ctypes has loaded it.

    Raises:
        ImportError: the core is missing or unusable, or MXNet's library lacks a function.
    """
    try:
        return MxnetEngine(library.load(), mxnet)
    except AttributeError as error:
        raise ImportError(
            f"MXNet's engine cannot run Horovod's operations: {error}. Remedy: pip install mxnet==1.9.1."
        ) from error


def _error(status: int, message: str) -> HorovodError:
    """The public error, in the user's words: "allreduce 'allreduce.w'" is the tensor that they called 'w'."""
    return error_from_status(status, _ENGINE_NAME.sub(r"\1 '", message))


def _translated(error: failures.NetError) -> HorovodError:
    """The public error for one of `horovod._net`."""
    if isinstance(error, failures.PlacementError):
        return InvalidArgumentError(str(error))
    if isinstance(error, failures.StartTimeoutError):
        return CollectiveTimeoutError(str(error))
    if isinstance(error, failures.ResourceError):
        return ResourceError(str(error))
    if isinstance(error, failures.ConnectError):
        return PeerLostError(str(error))
    return HorovodInternalError(str(error))


def _config(connections: Connections, fields: dict[str, Any]) -> Any:
    place = connections.placement
    if place.rank != 0:
        fields = {**fields, "timeline_path": ""}  # one trace per job; all ranks may be given the same path
    return make_config(
        connections.peers,
        connections.host_of_rank or [0] * place.size,
        rank=place.rank,
        size=place.size,
        local_rank=place.local_rank,
        local_size=place.local_size,
        cross_rank=place.cross_rank,
        cross_size=place.cross_size,
        epoch=connections.epoch,
        memory_fd=connections.memory_fd,
        doorbell_fd=connections.doorbell_fd,
        hostname=place.hostname,
        **fields,
    )


def _session(engine: Any, connections: Connections, settings: Settings, dynamic: bool) -> session.Session:
    place = connections.placement
    if settings.dump_call_sites:
        from horovod._core.life.dumps.call_sites import NotingEngine

        engine = NotingEngine(engine)
    return session.Session(
        engine=engine,
        rank=place.rank,
        size=place.size,
        local_rank=place.local_rank,
        local_size=place.local_size,
        cross_rank=place.cross_rank,
        cross_size=place.cross_size,
        is_homogeneous=place.size == place.local_size * place.cross_size,
        dynamic_process_sets=dynamic or bool(settings.dynamic_process_sets),
        timeline_allowed=settings.timeline_path is not None,
        epoch=connections.epoch,
        seal=Seal(connections.object_key, place.rank) if connections.object_key else None,
        settings=settings,
        hostname=place.hostname,
        meeting_directory=None if place.launcher_ranks else place.meeting_directory,
    )
