"""The backend's name in torch.distributed, and how a group is made: `make_group` is what torch calls.

The ranks of the default group are those of `hvd.init()`, which is called for it if need be.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import torch.distributed
from torch.distributed.rendezvous import register_rendezvous_handler

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.life import given_placement, process_sets
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod.torch.distributed.group import HorovodGroup

# Not all of them are typed.
dist: Any = torch.distributed
_add_init_method: Any = register_rendezvous_handler

__all__ = ["BACKEND", "INIT_METHOD", "make_group", "register"]

BACKEND: Final = "horovod"
INIT_METHOD: Final = "horovod://"  # the ranks that hvd.init() knows


def register() -> None:
    """Makes the backend and the way to meet known to torch.distributed."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, make_group, extended_api=True, devices=["cpu"])
        _add_init_method(BACKEND, _meet)


def make_group(options: Any, backend_options: Any = None) -> HorovodGroup:
    """Makes a group. Called by torch.distributed on the ranks of the group.

    Args:
        options: torch's: store, rank and size, and for other groups than the default one the ranks.
        backend_options: None; there are none.

    Raises:
        InvalidArgumentError: this process is another rank of the job than torch.distributed says.
        UnsupportedError: a group of ranks in another order than ascending.
    """
    if backend_options is not None:
        raise InvalidArgumentError(
            f"The backend 'horovod' has no options; it has settings (docs/settings.md). Received: {backend_options!r}."
        )
    rank, size, timeout_s = options.group_rank, options.group_size, options.timeout.total_seconds()
    ranks = list(options.global_ranks_in_group)
    if ranks:
        return HorovodGroup(options.group_id, _set_of(ranks), rank, timeout_s)
    begun = not hvd.is_initialized()
    if begun:
        _begin(options.store, rank, size)
    if (rank, size) != (hvd.rank(), hvd.size()):
        own = f"rank {hvd.rank()} of {hvd.size()}"
        raise InvalidArgumentError(
            f"init_process_group was given rank {rank} of {size}; Horovod knows this process as {own}. Both must come "
            "from the same launcher: leave rank and world_size out, or give hvd.rank() and hvd.size()."
        )
    return HorovodGroup(options.group_id, global_process_set, rank, timeout_s, hvd.shutdown if begun else None)


def _set_of(ranks: list[int]) -> ProcessSet:
    if ranks != sorted(ranks):
        raise UnsupportedError(
            f"The backend 'horovod' numbers the ranks of a group in ascending order. Received: {ranks}. Sort them."
        )
    return process_sets.of_members(ranks)


def _begin(store: Any, rank: int, size: int) -> None:
    """Calls `hvd.init()`; of processes that no launcher has started, on one host, the store says that they belong
    together."""
    if given_placement.of_this_process().size == 1 < size:
        _hand_over(store, rank, size)
    hvd.init(process_sets="dynamic")


def _hand_over(store: Any, rank: int, size: int) -> None:
    store.set(f"horovod/host/{rank}", given_placement.host_key())
    if rank == 0:
        store.set("horovod/job", secrets.token_hex(16))
    hosts = {store.get(f"horovod/host/{other}") for other in range(size)}
    if len(hosts) > 1:
        raise UnsupportedError(
            f"The {size} processes of this group are on {len(hosts)} hosts, and no launcher that Horovod knows has "
            "started them. Start them by horovodrun, torchrun, mpirun or srun, which tell each host how to reach the "
            "others."
        )
    given_placement.hand_over_on_one_host(rank, size, "torch.distributed", store.get("horovod/job").decode())


def _meet(url: str, timeout: Any = None, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Handles init_method="horovod://": rank and size are those of the job, and a store is made for them."""
    if not hvd.is_initialized():
        hvd.init(process_sets="dynamic")
    rank, size = hvd.rank(), hvd.size()
    yield _store(rank, size), rank, size


def _store(rank: int, size: int) -> Any:
    """A store that all ranks share: a file in a private directory of one host, else torch's own way by MASTER_ADDR."""
    if hvd.local_size() == size:
        folder = _private_directory() if rank == 0 else ""
        return dist.FileStore(os.path.join(hvd.broadcast_object(folder, root_rank=0), "store"), size)
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not address or not port:
        raise InvalidArgumentError(
            "Ranks on several hosts need a store for torch.distributed. Set MASTER_ADDR and MASTER_PORT to an address "
            "and a free port of rank 0's host, or give init_process_group(store=...)."
        )
    return dist.TCPStore(address, int(port), size, rank == 0)


def _private_directory() -> str:
    """One that the launcher removes with its own, or this process at its end."""
    launchers = given_placement.of_this_process().meeting_directory
    made = tempfile.mkdtemp(prefix="store-" if launchers else "horovod-store-", dir=launchers)
    if not launchers:
        atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made
