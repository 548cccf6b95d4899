"""Which rank this process is: what a program has handed over, else what its launcher's variables tell.

A program whose ranks are processes that are there already (actors, tasks, a test's) calls `hand_over` in each of them
before their code calls `hvd.init()`, whichever framework's. `context`, `engine_start` and `communicators` ask
`of_this_process`. See docs/design/0028.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.life import fact_exchange, membership, session
from horovod._net import identity, interfaces
from horovod._net.clusters.launchers import detect_placement
from horovod._net.clusters.placement import Placement
from horovod._net.meeting import lasting_claim
from horovod._net.secret import SECRET_BYTES

_given: Optional[Placement] = None


def hand_over(placement: Optional[Placement]) -> None:
    """Makes this process the rank that `placement` says, from the next `init` on, also of one after a `shutdown`.

    The environment is then not asked which rank this is. A forked child inherits the placement as it would the
    environment: of parent and child, one may call `init`.

    Args:
        placement: `job_key` names the job: the same text for all of its ranks, and for no other job of its hosts,
            earlier ones included. `secret` is the job's, made by `horovod._net.secret.new_secret`, and stays in memory;
            on one host it may be left out. Ranks on several hosts meet at `meeting_point`; with `unplaced` they find
            out which of them share a host. None: the environment tells again.

    Raises:
        InvalidArgumentError: the placement cannot be one, or this process has called `init`.
    """
    global _given
    if session.current is not None:
        raise InvalidArgumentError(
            f"This process is rank {session.current.rank} of a job already; a placement is handed over before "
            "hvd.init(), or after hvd.shutdown()."
        )
    is_worker = membership.is_member() or membership.WORKER_VARIABLE in os.environ  # which `init` takes out
    if is_worker and not membership.is_enrolled():
        raise InvalidArgumentError("This process is a worker of an elastic job, whose launcher places it.")
    if placement is not None:
        _refuse_unfit(placement)
        placement = dataclasses.replace(placement, hostname=placement.hostname or identity.hostname())
    if placement == _given:
        return
    fact_exchange.leave_other_jobs(placement.job_key if placement is not None else "")
    lasting_claim.release()
    _given = placement


def hand_over_on_one_host(rank: int, size: int, launcher: str, job: str) -> None:
    """As `hand_over`, for a job whose ranks are all on this host: `host_key` is the same for each of them.

    Args:
        rank, size: of this process.
        launcher: as messages call what has started it.
        job: `job_key` after the launcher's name.
    """
    hand_over(Placement(rank, size, rank, size, 0, 1, launcher, f"{launcher} {job}"))


def host_key() -> str:
    """A text that is equal for processes of one host that can share memory."""
    here = identity.host_identity()
    return f"{here.boot_id}/{here.ipc_namespace}"


def is_given() -> bool:
    """A program has handed a placement over."""
    return _given is not None


def of_this_process() -> Placement:
    """See the head of the file.

    Raises:
        PlacementError: as `detect_placement`.
    """
    return detect_placement() if _given is None else _given


def address_for_other_hosts() -> str:
    """The address of this host at which ranks of other hosts reach it.

    Raises:
        PlacementError: it is not known.
    """
    placement = of_this_process()
    return interfaces.address_for_other_hosts(placement.interfaces, placement.address)


def _refuse_unfit(placement: Placement) -> None:
    secret = placement.secret
    if secret is not None and len(secret) != SECRET_BYTES:
        raise InvalidArgumentError(f"The secret of a job has {SECRET_BYTES} bytes. Received: {len(secret)} bytes.")
    if not placement.job_key:
        raise InvalidArgumentError("A placement needs a job_key that no other job has. Received: an empty one.")
    if placement.lacks_a_place_to_meet and (placement.meeting_point is None or secret is None):
        raise InvalidArgumentError(
            f"{placement.launcher} placed {placement.local_size} of {placement.size} ranks on this host: ranks on "
            f"several hosts need a secret, and a meeting_point or a meeting_directory. Received: {placement}."
        )
