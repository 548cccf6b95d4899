"""A rank's claim for the life of its process: a name in the abstract socket namespace, which vanishes with the process.

It refuses a subprocess that inherited the rank's variables, also long after the meeting directory is gone. Anyone may
bind such a name, so only one that this user holds counts: the claim is a guard against mistakes, and a stranger who
takes its name gets rid of the guard, not of the job. Used by bootstrap.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
import os
import socket
import threading
import time
from typing import Optional

from horovod._net import identity
from horovod._net.clusters.placement import Placement
from horovod._net.failures import MeetingError

_KEPT_CLAIMS = 2  # the first, which a subprocess would claim, and the present one
_BACKLOG = 64  # of processes that ask who holds a claim
_LISTENS_S = 0.05  # between binding a name and answering for it lie microseconds
_RETRY_S = 0.001

# Names bound until this process ends: (job, rank) -> claims in order, each its process, its name and a descriptor that
# outlives the interpreter's objects. The pid tells a process from its forked child, which inherits this table but not
# the rank. Guarded by _lock.
_claims: dict[tuple[str, int], list[tuple[int, str, int]]] = {}
_lock = threading.Lock()

log = logging.getLogger("horovod")


def take(placement: Placement, epoch: int) -> None:
    """Claims this rank for the life of this process; a second call of the same process is fine.

    Raises:
        MeetingError: another process of this user has the rank.
    """
    name = claim_name(placement, epoch)
    with _lock:
        held = _claims.setdefault((placement.job_key, placement.rank), [])
        if any(pid == os.getpid() and known == name for pid, known, _ in held):
            return
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind(name)
            holder.listen(_BACKLOG)  # never accepts; but a process that connects learns who holds the name
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                raise MeetingError(f"Rank {placement.rank} cannot be claimed: {error.strerror}.") from error
            _refuse_second(placement, name)
            return
        held.append((os.getpid(), name, holder.detach()))
        if len(held) > _KEPT_CLAIMS:
            os.close(held.pop(1)[2])


def release() -> None:
    """Gives up all claims of this process, whose job is over while the process lives on."""
    with _lock:
        for held in _claims.values():
            for _, _, fd in held:
                os.close(fd)
        _claims.clear()


def claim_name(placement: Placement, epoch: int) -> str:
    """The abstract name; nobody can guess it where the launcher has given a secret."""
    text = f"{os.geteuid()}/{placement.job_key}/{epoch}/{placement.rank}"
    digest = hmac.new(placement.secret or b"", text.encode(), hashlib.sha256).hexdigest()
    return "\0horovod-" + digest[:40]


def claimed_twice(placement: Placement, holder: str) -> MeetingError:
    """The error for a second process with the same rank."""
    return MeetingError(
        f"Rank {placement.rank} of this {placement.launcher} job is already taken by {holder}. A process that a rank "
        "starts inherits its variables but cannot "
        "join as the same rank: let it call neither init() nor import a script that does, or remove the launcher's "
        "variables from its environment."
    )


def _refuse_second(placement: Placement, name: str) -> None:
    _, owner = holder_of(name, _LISTENS_S)
    if owner == os.geteuid():
        raise claimed_twice(placement, "another process")
    log.warning(
        "rank %d: %s holds the name that guards this rank. The job goes on without the guard: a process that this rank "
        "starts and that calls init() would not be refused.",
        placement.rank,
        "somebody" if owner is None else identity.user(owner),
    )


def holder_of(name: str, patience_s: float = 0.0) -> tuple[Optional[int], Optional[int]]:
    """The process that listens at this name, and its user; None twice when nobody does.

    Args:
        name: of a claim.
        patience_s: how long it may be bound before anybody listens.
    """
    deadline = time.monotonic() + patience_s
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
            code = probe.connect_ex(name)
            if code == 0:
                return identity.peer_credentials(probe)
        if code != errno.ECONNREFUSED or time.monotonic() > deadline:
            return None, None
        time.sleep(_RETRY_S)
