"""What a launcher has promised of a job, against the job that there is. Pure.

Used by `horovod._core.life.engine_start`. Some platforms ignore a list of hosts without a word and start all ranks on
one machine, or start each as a job of its own: that "succeeds", unless somebody looks.
"""

from __future__ import annotations

from typing import Final, Optional

from horovod._net.clusters.placement import Placement
from horovod._net.failures import PlacementError

_SIZE: Final = "HOROVOD_EXPECTED_SIZE"
_HOSTS: Final = "HOROVOD_EXPECTED_HOSTS"


def hosts_of(placement: Placement) -> Optional[int]:
    """How many hosts the job has, as its launcher tells; None where this rank alone cannot tell."""
    if placement.one_host:
        return 1
    # A rank knows the hosts that have its local rank: all have local rank 0.
    if placement.local_rank:
        return None
    return placement.cross_size


def refuse_other_job(placement: Placement, size: Optional[int], hosts: Optional[int]) -> None:
    """Does nothing if the job is as promised.

    Args:
        placement: of this rank, as its launcher tells.
        size: the ranks that were promised; None: nothing was.
        hosts: the hosts that were promised; None: nothing was.

    Raises:
        PlacementError: it is another one.
    """
    found = hosts_of(placement)
    wrong_size = size is not None and size != placement.size
    wrong_hosts = hosts is not None and found is not None and hosts != found
    if not wrong_size and not wrong_hosts:
        return
    promised = " and ".join(
        f"{name}={number}" for name, number in ((_SIZE, size), (_HOSTS, hosts)) if number is not None
    )
    there = f"{_count(placement.size, 'rank')} on {_count(found, 'host') if found else 'several hosts'}"
    if placement.launcher == "single process":
        story = "no launcher has given this process a rank, so it is a job of its own"
        remedy = "start the ranks with a launcher whose variables reach them (docs/platforms.md)"
    else:
        story = f"{placement.launcher} has started {there}, seen from {placement.hostname}"
        remedy = f"see which hosts and slots {placement.launcher} was given, and which it has used"
    raise PlacementError(f"{promised} was promised, but {story}. To remedy it, {remedy}; or correct the variables.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
