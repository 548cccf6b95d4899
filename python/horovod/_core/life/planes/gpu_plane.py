"""Tensors on a GPU: which libraries the core opens for them, and whether it can. Used by adapters, and by `context` for
what is usable here.

The members of a process set agree in the core whether NCCL moves their tensors or they go through the host
(docs/design/0022, decision 3); this file only tells what this rank brings. A job without GPUs never comes here.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Final, NamedTuple, Optional

from horovod._core.errors import BackendUnavailableError, UnsupportedError
from horovod._core.gpu import libraries, platforms
from horovod._core.life import session as sessions
from horovod._core.life.session import Session
from horovod._core.settings import BY_NAME, Settings

log = logging.getLogger("horovod")

_WHOLE: Final = "gpu_operations"
_SINGLE: Final = ("gpu_allreduce", "gpu_allgather", "gpu_broadcast", "gpu_alltoall", "gpu_reducescatter")


class _Begun(NamedTuple):
    session: Session
    device: int
    why_not: str


_lock = threading.RLock()
_begun: Optional[_Begun] = None  # of the last session that had a tensor on a GPU; written under _lock
_in_every_life: Final[set[int]] = set()  # guarded by _lock


def use(session: Session, device: int) -> bool:
    """Makes the core ready for tensors on a device. Not collective; called before the first one is submitted, and
    quick when it is called again.

    Args:
        session: the current one.
        device: as CUDA counts in this process, from 0.

    Returns:
        Whether such tensors can be submitted as they lie. False: the adapter copies them to the host's memory itself;
        `why_not` says why.

    Raises:
        UnsupportedError: the settings ask for another way than the core has.
    """
    begun = _of(session, device)
    return begun.device == device and not begun.why_not


def use_in_every_life(session: Session, device: int) -> bool:
    """As `use`, for a framework's compiled functions. They outlive the session and submit tensors without coming here,
    so `init` makes the core of every later session ready for them."""
    usable = use(session, device)
    with _lock:
        if usable and device not in _in_every_life:
            _in_every_life.add(device)
            sessions.on_begin.append(lambda later: use(later, device))
    return usable


def why_not(session: Session, device: int) -> str:
    """Why `use` answers False; empty where it answers True."""
    begun = _of(session, device)
    if begun.why_not or begun.device == device:
        return begun.why_not
    return f"this process uses cuda:{begun.device}, and the core has one device for each process"


def device_in_use(session: Session) -> Optional[int]:
    """The device on which the core works for this session, as CUDA counts; None: it has had no tensor on one."""
    begun = _begun
    return begun.device if begun is not None and begun.session is session and not begun.why_not else None


def nccl_version(settings: Settings) -> int:
    """NCCL's version as its one integer, such as 22809, or RCCL's for AMD's GPUs; 0 if this machine has no GPU or none
    of it that can be opened. Starts no CUDA: the process may still be forked, and CUDA_VISIBLE_DEVICES be set."""
    platform = platforms.here()
    found = libraries.find(platform.nccl, _named(settings), os.environ)
    if found.why_not or not _drives(platform):
        return 0
    from horovod._core.gpu import probe

    try:
        return probe.nccl_version(found.path)
    except OSError:
        return 0


def cuda_usable() -> bool:
    """There is an NVIDIA GPU, and its driver's library can be opened. Starts no CUDA."""
    return _drives(platforms.CUDA)


def rocm_usable(settings: Settings) -> bool:
    """This process works on a GPU of AMD's, and HIP's library and RCCL can be opened. Starts no HIP."""
    return platforms.here() is platforms.ROCM and nccl_version(settings) != 0


def _drives(platform: platforms.Platform) -> bool:
    if not platforms.has_devices(platform):
        return False
    from horovod._core.gpu import probe

    try:
        return hasattr(probe.opened(platforms.driver(platform, os.environ)), platform.begin)
    except OSError:
        return False


def _of(session: Session, device: int) -> _Begun:
    global _begun
    begun = _begun
    if begun is None or begun.session is not session:
        with _lock:
            begun = _begun
            if begun is None or begun.session is not session:
                begun = _begun = _Begun(session, device, _begin(session, device))
    return begun


def _begin(session: Session, device: int) -> str:
    """Tells the core of the device; why it cannot use it, or empty."""
    settings, platform = session.settings, platforms.here()
    nccl, why_not_nccl = _nccl(settings, platform)
    try:
        limits = (settings.nccl_max_ctas, max(settings.num_nccl_streams, 1))
        session.engine.gpu.use(device, platforms.driver(platform, os.environ), nccl, why_not_nccl, *limits)
    except BackendUnavailableError as error:
        log.info("rank %d: the core cannot use cuda:%d: %s", session.rank, device, error)
        return str(error)
    log.info("rank %d: tensors on cuda:%d; %s: %s", session.rank, device, platform.nccl_name, nccl or why_not_nccl)
    return ""


def _nccl(settings: Settings, platform: platforms.Platform) -> tuple[str, str]:
    """NCCL's path, or why it is not used."""
    if _way(settings) == "gloo":
        return "", f"{BY_NAME[_WHOLE].env}=GLOO asks for copies through the host"
    found = libraries.find(platform.nccl, _named(settings), os.environ)
    return found.path, found.why_not


def _way(settings: Settings) -> str:
    """nccl or gloo: the one way that tensors on GPUs go.

    Raises:
        UnsupportedError: the settings name another, or a second one for some operations.
    """
    whole = settings.gpu_operations or "nccl"
    for name in (_WHOLE, *_SINGLE):
        chosen, variable = getattr(settings, name), BY_NAME[name].env
        if chosen in ("mpi", "ddl"):
            raise UnsupportedError(
                f"{variable}={chosen.upper()} is not supported: tensors on GPUs are moved by NCCL, or through the "
                "host's memory. Use NCCL or GLOO, or leave it out."
            )
        if chosen is not None and chosen != whole:
            raise UnsupportedError(
                f"{variable}={chosen.upper()} is not supported: all operations of tensors on GPUs go one way, which "
                f"is {whole.upper()}. Leave it out; {BY_NAME[_WHOLE].env} chooses for all."
            )
    return whole


def _named(settings: Settings) -> libraries.Named:
    return libraries.Named(settings.nccl_path, settings.nccl_home, settings.nccl_lib)
