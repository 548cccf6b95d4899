"""Ranks that end before this one has a connection to them, which no socket can tell.

Three signs: a rank that gives up leaves word in the meeting directory; a rank that dies there leaves its claim,
unlocked; the launcher's keeper writes `ended.<rank>` into the launcher's directory when a rank's process ends, and the
launcher on the board where there are other hosts. Used by blame and the roll call, which look now and then while ranks
connect; afterwards the connections tell, and between ranks that have none yet the launcher.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import Optional

from horovod._net.clusters.placement import Placement
from horovod._net.failures import ConnectError
from horovod._net.meeting.directory import Meeting

MET = "met"  # the outcome of a meeting in which nobody gave up
ENDED_PREFIX = "ended."
ENDED_WELL = "exited with code 0"
_MAX_TEXT = 200


class Deaths:
    """See the head of the file.

    Args:
        meeting: joined.
        placement: of this rank.
    """

    def __init__(self, meeting: Meeting, placement: Placement) -> None:
        self._meeting = meeting
        self._placement = placement

    def tell(self, culprit: int, reason: str) -> None:
        """Leaves word that this rank gives up because of `culprit`. Only the first word counts: it is the cause."""
        with contextlib.suppress(ConnectError):  # no board, no launcher: it takes the others along
            self._meeting.settle(f"{self._placement.rank} {culprit}\n{reason}")

    def tell_error(self, error: BaseException) -> None:
        """Leaves word that this rank gives up because of an error, which may name the rank that is to blame."""
        ranks = error.ranks if isinstance(error, ConnectError) else ()
        self.tell(ranks[0] if ranks else self._placement.rank, str(error) or type(error).__name__)

    def agree(self) -> None:
        """This rank is connected with all others, as all others are: the meeting has succeeded for all of them.

        Raises:
            ConnectError: a rank has given up first: then it has failed for all of them.
        """
        if self._meeting.settle(MET) != MET:
            raise self.reported() or ConnectError("Another rank gave up connecting.")

    def reported(self) -> Optional[ConnectError]:
        """The error that the first rank to give up has left word of, if one has."""
        head, _, reason = self._meeting.outcome().partition("\n")
        author, _, culprit = head.partition(" ")
        if not (reason and author.isdecimal() and culprit.isdecimal()):
            return None
        # The rank that it blames knows better: the author may hold another secret.
        blamed = author if int(culprit) == self._placement.rank else culprit
        return ConnectError(f"Rank {author} gave up connecting: {reason}", [int(blamed)])

    def check(self, awaited: Collection[int]) -> None:
        """Fails when one of these ranks has ended. They must not be connected with this rank: then none of them can
        have ended after a complete start.

        Raises:
            ConnectError: names the rank, and how it ended where that is known.
        """
        reported = self.reported() if awaited else None
        if reported is not None:
            raise reported
        directory = self._placement.meeting_directory
        ended = {} if directory is None or not awaited else _ended(directory)
        names = {self._placement.launcher_rank(rank): rank for rank in awaited}
        if self._meeting.attempt is not None:
            first = self._meeting.attempt.first_to_end(names)  # it is why others of this host have ended
            ended = {first[0]: first[1]} if first is not None else ended
        for number, how in ended.items():
            if number in names:
                rank = names[number]
                raise ConnectError(_story(rank, how), [rank])
        for rank in self._meeting.abandoned_claims(awaited):
            pid = self._meeting.claimed_pid(rank)
            raise ConnectError(f"Rank {rank} (pid {pid}) died while the job was connecting.", [rank])


def _story(rank: int, how: str) -> str:
    if how == ENDED_WELL:
        return (
            f"Rank {rank} ended with code 0 and never called hvd.init(), or less often than other ranks; every rank "
            "must call it."
        )
    return (
        f"Rank {rank} {how} before it was connected with the other ranks. Its last output and its launcher's messages "
        "say why."
    )


def _ended(directory: str) -> dict[int, str]:
    """How the ranks ended that have, by the launcher's number; the first to end first, as it is why others do."""
    found = []
    try:
        for entry in os.scandir(directory):
            number = entry.name[len(ENDED_PREFIX) :]
            if entry.name.startswith(ENDED_PREFIX) and number.isdecimal():
                with open(entry.path, encoding="utf-8", errors="replace") as file:
                    found.append((entry.stat().st_mtime_ns, int(number), file.read(_MAX_TEXT)))
    except OSError:
        return {}  # the launcher has ended and took its directory along: its keeper kills all ranks
    return {number: how for _, number, how in sorted(found)}
