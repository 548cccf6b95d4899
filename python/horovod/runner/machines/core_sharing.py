"""How ranks share the cores of their host, and what it cannot give them.

Used by `launchers.local_checks` for this machine, by `remote.host_side.workplace` on other hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.machines.cores import can_be_pinned_to, threads_per_rank, usable_cores

_CROWDED: Final = 4  # ranks per core; up to here it may be meant


def refuse_missing_cores(affinity: Sequence[int], ranks: int) -> None:
    """Cores that this host does not have.

    Args:
        affinity: what --thread-affinity names.
        ranks: on this host.

    Raises:
        InvalidArgumentError: names them.
    """
    cores = list(affinity)
    if len(cores) == 1:
        cores = list(range(cores[0], cores[0] + ranks))
    if 0 < len(cores) < ranks:
        raise InvalidArgumentError(
            f"--thread-affinity names {len(cores)} cores for {ranks} ranks; give one core per local rank, or a "
            "single number to count up from."
        )
    refused = [core for core in cores[:ranks] if not can_be_pinned_to(core)]
    if refused:
        raise InvalidArgumentError(
            f"--thread-affinity: no thread may run on core {refused[0]}; this process may use {usable_cores()} cores. "
            "Give one core per local rank, or a single number to count up from, or leave the option out."
        )


def cores_text(ranks: int, threads: str) -> str:
    """What each of them has.

    Args:
        ranks: on this host.
        threads: OMP_NUM_THREADS, where it was given.
    """
    cores = usable_cores()
    return (
        f"{cores} usable {'core' if cores == 1 else 'cores'}, {cores / ranks:.3g} for each; "
        f"OMP_NUM_THREADS={threads or threads_per_rank(ranks)}"
    )


def crowding(ranks: int) -> str:
    """A remark on so many ranks; empty when there are enough cores."""
    cores = usable_cores()
    if ranks <= _CROWDED * cores:
        return ""
    return (
        f"{ranks} ranks share {cores} {'core' if cores == 1 else 'cores'}, so they will take turns: good for trying a "
        "script out, slow for training."
    )
