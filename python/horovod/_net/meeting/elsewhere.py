"""Ranks of this job that meet in another directory of this host, because their environment or their view of its files
is another one. They wait for this rank as it waits for them.

Used by blame, for its message. A rank tells nothing here: its claim for life names its process, and the kernel says
which directories that has open.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os

from horovod._net.clusters.placement import Placement
from horovod._net.meeting import lasting_claim
from horovod._net.meeting.directory import Meeting


def meets_elsewhere(rank: int, meeting: Meeting, placement: Placement) -> str:
    """That a rank meets in another directory than this one, in words; empty: it does not, or the kernel does not say.

    Args:
        rank: of this job, all of whose ranks are on this host.
        meeting: joined.
        placement: of this rank.
    """
    pid, uid = lasting_claim.holder_of(
        lasting_claim.claim_name(dataclasses.replace(placement, rank=rank), meeting.number)
    )
    if pid is None or uid != os.geteuid():
        return ""
    here, name = os.path.split(meeting.path)
    with contextlib.suppress(OSError):
        own = os.stat(meeting.path)
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                there, other = os.path.split(os.readlink(f"/proc/{pid}/fd/{fd}"))
                if other == name and not os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), own):
                    return _words(rank, pid, there, here, placement.meeting_directory is not None)
    return ""


def _words(rank: int, pid: int, there: str, here: str, given: bool) -> str:
    if there == here:
        fact, remedy = f"in another {here}, by another view of the files", "let all ranks of a host share that folder"
    else:
        fact = f"in {there} instead of {here}"
        remedy = "give all of them the same directory" if given else "let all have one XDG_RUNTIME_DIR and one TMPDIR"
    return f"Rank {rank} (pid {pid}) has come and meets {fact}: {remedy}. "
