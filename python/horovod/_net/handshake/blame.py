"""Finds which ranks are to blame when a connection fails, and reports them.

A rank that is gone is often a symptom: another one may have said why, over its connection or in the meeting directory.
A rank that gives up tells the others in both ways. Used by members, visits, dialler and connect; it moves no
connection.
"""

from __future__ import annotations

from collections.abc import Mapping

from horovod._net.clusters.placement import Placement, ranks_of_others
from horovod._net.failures import ConnectError, ProtocolError, StartTimeoutError
from horovod._net.handshake.frames import messages
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import AnyMessage
from horovod._net.handshake.pairing import Pair
from horovod._net.meeting.deaths import Deaths
from horovod._net.meeting.directory import Meeting
from horovod._net.meeting.elsewhere import meets_elsewhere

_LOOK_S = 0.1  # how often to look for ranks that have ended without a connection
_LOOK_ELSEWHERE_S = 1.0  # how often to look for those that are missing in other directories,
_MOST_LOOKED_FOR = 8  # and for how many of them


class Blame:
    """What went wrong, as far as this rank can know.

    Args:
        meeting: joined.
        placement: of this rank.
        pairs: this rank and every other one, by rank. Read only, but for what their last words say.
        now_s: the time.
    """

    def __init__(self, meeting: Meeting, placement: Placement, pairs: Mapping[int, Pair], now_s: float) -> None:
        self._meeting = meeting
        self._placement = placement
        self._pairs = pairs
        self._deaths = Deaths(meeting, placement)
        self.next_look_s = now_s + _LOOK_S
        self._next_look_elsewhere_s = now_s + _LOOK_ELSEWHERE_S
        self._elsewhere = ""

    # ---- what other ranks say

    def hear(self, pair: Pair, message: AnyMessage) -> None:
        """Notes a rank's word on the whole job: that it is ready, runs, or gives up. Others are not meant.

        Raises:
            ConnectError: it gives up; names the culprit.
        """
        if isinstance(message, messages.Ready):
            pair.ready = True
        elif isinstance(message, messages.Started):
            pair.started = True
        elif isinstance(message, messages.Failed):
            culprit = message.culprit if 0 <= message.culprit < self._placement.size else pair.rank
            raise ConnectError(f"{pair.name()} gave up connecting: {message.reason}", [culprit])

    def hear_last_words(self, pair: Pair, link: Link) -> None:
        """What a peer sent before it closed is still there when a send to it fails."""
        try:
            for message in link.receive():
                self.hear(pair, message)
        except (LinkClosedError, ProtocolError):
            return

    # ---- errors

    def root_cause(self, symptom: str, rank: int) -> ConnectError:
        """The error for a rank that is gone; or for why, if another rank has already reported it."""
        try:
            for pair in self._pairs.values():
                if pair.meet is not None:
                    self.hear_last_words(pair, pair.meet)
        except ConnectError as reported:
            return reported
        return self._deaths.reported() or ConnectError(symptom, [rank])

    def no_answer(self, rank: int, how: str) -> ConnectError:
        """The error for a rank to whose host nothing gets through, or from there."""
        return self.root_cause(
            f"{self._pairs[rank].name()} does not answer rank {self._placement.rank} ({self._placement.hostname}): "
            f"{how}. Is the link between the two hosts cut, one of them down, or does a firewall let only ssh through?",
            rank,
        )

    def require_alive(self, rank: int, how: str) -> None:
        """Of a rank whose socket is closed, or answers nobody, and that may come again.

        Raises:
            ConnectError: it is not connected with this rank, and its process has died or left.
        """
        if self._pairs[rank].meet is None and not self._meeting.claim_is_live(rank):
            pid = self._meeting.claimed_pid(rank)  # a rank that leaves in order takes its claim along
            fact = f"Rank {rank} (pid {pid}) died" if pid else f"Rank {rank} left"
            raise self.root_cause(f"{fact} while the job was connecting: {how}.", rank)

    def look_for_the_dead(self, now_s: float) -> None:
        """From time to time: whether a rank has ended that no connection of ours could report.

        Raises:
            ConnectError: one has.
        """
        if now_s >= self.next_look_s:
            self.next_look_s = now_s + _LOOK_S
            self._deaths.check(self._unmet())
            self._raise_what_was_reported()
        if now_s >= self._next_look_elsewhere_s and self._placement.one_host:
            # Not only when the time is over: by then that rank may have given up and gone.
            self._next_look_elsewhere_s = now_s + _LOOK_ELSEWHERE_S
            self._look_elsewhere()

    def _look_elsewhere(self) -> None:
        absent = [rank for rank in self._unmet() if not self._meeting.claim_is_live(rank)][:_MOST_LOOKED_FOR]
        found = (meets_elsewhere(rank, self._meeting, self._placement) for rank in absent)
        self._elsewhere = next(filter(None, found), self._elsewhere)

    def _raise_what_was_reported(self) -> None:
        reported = self._deaths.reported()  # perhaps by a rank that this one is not to be connected with
        if reported is not None:
            raise reported

    def too_late(self, timeout_s: float) -> ConnectError:
        """The error when the start timeout has passed: names the ranks that are missing, or have not finished."""
        own, size = self._placement.rank, self._placement.size
        missing = self._unmet()
        absent = [r for r in missing if not self._pairs[r].by_leader or not self._meeting.claim_is_live(r)]
        reported = self._deaths.reported() if any(self._pairs[rank].by_leader for rank in missing) else None
        if reported is not None:
            return reported  # by a rank that has left since, and may look as if it had never come
        missing = absent or missing  # a rank that also waits for an introduction is not to blame
        names = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))} of {size}"
        if absent:
            fact = f"{names} did not connect to rank {own}"
        elif missing:
            fact = (
                f"{names} came to the meeting of this host and were not introduced to rank {own}: one of them, or the "
                "lowest rank of the host, which introduces them, did not continue"
            )
        else:
            met = [(rank, pair) for rank, pair in self._pairs.items() if not pair.introduced]
            missing = [rank for rank, pair in met if not pair.ready] or [rank for rank, pair in met if not pair.started]
            fact = f"Ranks {', '.join(map(str, missing))} of {size} did not finish connecting"
        if absent and self._placement.one_host:
            self._look_elsewhere()
        why = (self._elsewhere or ranks_of_others(self._placement)) if absent else ""
        # Where ranks of other hosts listen this one knows from themselves.
        far = any(self._pairs[rank].across for rank in absent)
        firewall = ", and that no firewall between the hosts blocks connections to ports that the kernel chooses" * far
        limit_s = round(timeout_s, 1 if timeout_s < 10 else 0)  # what is left of the start timeout
        return StartTimeoutError(
            f"{fact} within {limit_s:g} s. Launcher: {self._placement.launcher}. {why}"
            f"Check that every rank calls hvd.init() and that none has failed{firewall}; "
            "HOROVOD_START_TIMEOUT (seconds) allows more time.",
            missing,
        )

    def _unmet(self) -> list[int]:
        return [rank for rank, pair in self._pairs.items() if not pair.met]

    # ---- telling

    def agree(self) -> None:
        """This rank has met all others. Raises ConnectError when one of them has given up first."""
        self._deaths.agree()

    def tell_others(self, error: BaseException) -> None:
        """Lets the other ranks fail at once and with the reason."""
        self._deaths.tell_error(error)
        ranks = error.ranks if isinstance(error, ConnectError) else ()
        reason = str(error) or type(error).__name__
        for pair in self._pairs.values():
            if pair.meet is not None:
                try:
                    pair.meet.send(messages.Failed(ranks[0] if ranks else -1, reason))
                except LinkClosedError:
                    continue
