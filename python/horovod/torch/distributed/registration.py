"""How a group of the backend "horovod" is made: `make_group` and `meet` are what torch calls, by `_torch_backend`.

The ranks of the default group are those of `hvd.init()`, which is called for it if need be.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Optional
from urllib.parse import parse_qs, urlsplit

import torch.distributed

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.life import given_placement, process_sets, session
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod.torch.distributed.group import HorovodGroup

dist: Any = torch.distributed  # not all of it is typed

__all__ = ["INIT_METHOD", "make_group", "meet", "tell_libraries"]

INIT_METHOD: Final = "horovod://"  # the ranks that hvd.init() knows
_LAUNCHER: Final = "torch.distributed"  # of processes that no other one has started

_begun: Any = None  # the session that was begun for a group
_variables_before: Final[dict[str, Optional[str]]] = {}  # those that `tell_libraries` has set, as they were


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
    if not hvd.is_initialized():
        _place(options.store, rank, size)
        _begin()
    if (rank, size) != (hvd.rank(), hvd.size()):
        own = f"rank {hvd.rank()} of {hvd.size()}"
        _end()
        raise InvalidArgumentError(
            f"init_process_group was given rank {rank} of {size}; Horovod knows this process as {own}. Both must come "
            "from the same launcher: leave rank and world_size out, or give hvd.rank() and hvd.size()."
        )
    return HorovodGroup(options.group_id, global_process_set, rank, timeout_s, _end)


def _set_of(ranks: list[int]) -> ProcessSet:
    if ranks != sorted(ranks):
        raise UnsupportedError(
            f"The backend 'horovod' numbers the ranks of a group in ascending order. Received: {ranks}. Sort them."
        )
    return process_sets.of_members(ranks)


def _begin() -> None:
    global _begun
    hvd.init(process_sets="dynamic")
    _begun = session.current


def _end() -> None:
    """The default group is destroyed: ends the session if it was begun for it."""
    global _begun
    for name, value in _variables_before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    _variables_before.clear()
    begun, _begun = _begun, None
    if begun is not None and begun is session.current:
        hvd.shutdown()


def tell_libraries() -> None:
    """Sets the variables by which libraries on torch.distributed, such as Accelerate, know that there are ranks. They
    would train on each rank alone otherwise. Until the group is destroyed, because they could stand for a launcher's.
    """
    variables = {"RANK": hvd.rank(), "WORLD_SIZE": hvd.size(), "LOCAL_RANK": hvd.local_rank()}
    variables["LOCAL_WORLD_SIZE"] = hvd.local_size()
    for name, value in {**variables, "ACCELERATE_USE_CPU": "true"}.items():
        _variables_before.setdefault(name, os.environ.get(name))
        os.environ[name] = str(value)


def _place(store: Any, rank: int, size: int) -> None:
    """Of processes of one host that no launcher has started, the store says that they belong together."""
    known = given_placement.of_this_process()
    if size > 1 and (known.size == 1 or known.launcher == _LAUNCHER):
        _hand_over(store, rank, size)


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
    given_placement.hand_over_on_one_host(rank, size, _LAUNCHER, store.get("horovod/job").decode())


def meet(url: str, timeout: Any = None, **_: Any) -> Iterator[tuple[Any, int, int]]:
    """Handles init_method="horovod://": rank and size are those of the job, and a store is made for them."""
    if not hvd.is_initialized():
        _begin()
    rank, size = hvd.rank(), hvd.size()
    _refuse_others(parse_qs(urlsplit(url).query), rank, size)
    yield _store(rank, size, timeout), rank, size


def _refuse_others(given: Mapping[str, Sequence[str]], rank: int, size: int) -> None:
    """What init_process_group was given, which torch adds to the URL."""
    for name, own in (("rank", rank), ("world_size", size)):
        if name in given and int(given[name][0]) not in (own, -1):
            raise InvalidArgumentError(
                f"init_process_group was given {name}={given[name][0]}; Horovod knows this process as rank {rank} of "
                f"{size}. Leave {name} out."
            )


def _store(rank: int, size: int, timeout: Any) -> Any:
    """A store that all ranks share: a file in a private directory of one host, else torch's own way by MASTER_ADDR."""
    if hvd.local_size() == size:
        folder = _private_directory() if rank == 0 else ""
        return dist.FileStore(os.path.join(hvd.broadcast_object(folder, root_rank=0), "store"), size)
    if not os.environ.get("MASTER_ADDR") or not os.environ.get("MASTER_PORT"):
        raise InvalidArgumentError(
            "Ranks on several hosts need a store for torch.distributed. Set MASTER_ADDR and MASTER_PORT to an address "
            "and a free port of rank 0's host, or give init_process_group(store=...)."
        )
    # torch's own way, which knows that torchrun keeps a store there already.
    return next(dist.rendezvous("env://", rank, size, timeout=timeout))[0]


def _private_directory() -> str:
    """One that the launcher removes with its own, or this process at its end."""
    launchers = given_placement.of_this_process().meeting_directory
    made = tempfile.mkdtemp(prefix="store-" if launchers else "horovod-store-", dir=launchers)
    if not launchers:
        atexit.register(_remove, made, os.getpid())
    return made


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a child that has been forked
        shutil.rmtree(folder, ignore_errors=True)
