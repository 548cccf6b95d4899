"""What the ranks of a job on several hosts agree on before they are connected: entries that all of them see alike.

A board holds `key=value` entries. The first post of a key wins, for the whole job, and everybody hears of it in the
same words; the keeper of the board (the launcher, or rank 0) is the only judge. That is all that ranks need to find one
another::

    m.<who>.<meeting>.<attempt>.card.<rank>   where a rank listens
    m.<who>.<meeting>.<attempt>.outcome       how the attempt to meet ended: "met", or why the first rank gave up
    ended.<rank>                              how the rank's process has ended; the keeper writes it

Meetings are numbered, and so are the attempts of each: when one has its outcome, the board forgets all earlier ones of
the same ranks (who). A rank that is connected with the board has them; one that comes later receives the rest.

Used by directory, deaths, and the handshake's roll call. `handshake.boards.board_link` is a board that
somebody else keeps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Optional, Protocol

from horovod._net.failures import ConnectError, NetError

_ANSWER_S = 10.0  # for a post to come back; the launcher has nothing else to do
_OUTCOME = "outcome"
_FORGOTTEN = "a later attempt has ended"  # of one that the board tells nobody of any more
_MAX_OUTCOME = 3500  # characters; a post has at most 4,096 bytes, and those of a message are mostly ASCII


class AttemptOverError(NetError):
    """An attempt to meet ended before this rank came; there will be another one. Never leaves `bootstrap`."""


class Board(Protocol):
    """The entries, as far as they have come here."""

    def post(self, key: str, value: str) -> None:
        """Asks for an entry; it stands once `get` gives it, or another value if somebody was faster.

        Raises:
            ConnectError: the keeper of the board is gone.
        """
        ...

    def get(self, key: str) -> Optional[str]:
        """The entry, if it has come. Raises ConnectError as `post`."""
        ...

    def before(self, key: str, other: str) -> bool:
        """Both entries have come, and this one stood first: the order is the same for everybody."""
        ...

    def keys(self) -> list[str]:
        """Of the entries that have come, in their order."""
        ...

    def wait(self, seconds: float) -> None:
        """Returns when something may have come, or the time is over. Raises ConnectError as `post`."""
        ...


class Attempt:
    """One attempt of all ranks of a job to meet; the numbers count on from one that has ended.

    Args:
        board: of the job; what stands there has come.
        who: meets; letters and digits.
        meeting: how many meetings of theirs there were before, or more.

    Attributes:
        number: of the attempt; -1 until `Meeting.join` has chosen it.
    """

    def __init__(self, board: Board, who: str, meeting: int) -> None:
        self.board = board
        self.number = -1
        self._prefix = f"m.{who}.{meeting}."
        self._first = 1 + _last_ended(board.keys(), self._prefix)  # the board may have forgotten those before

    def first_open(self) -> int:
        """The number of the attempt that has not ended."""
        number = self._first
        while self.ended(number) is not None:
            number += 1
        return number

    def ended(self, number: int) -> Optional[str]:
        """How an attempt has ended; None while it goes on."""
        outcome = self.board.get(self._outcome(number))
        return _FORGOTTEN if outcome is None and number < self._first else outcome

    def settle(self, text: str) -> str:
        """Says how this attempt has ended, unless that stands already; returns what stands, equal on all ranks.

        Raises:
            ConnectError: the keeper of the board does not answer.
        """
        if self.ended(self.number) is None:
            while len(text.encode("utf-8", "replace")) > _MAX_OUTCOME:
                text = text[: len(text) * 3 // 4]
            self.board.post(self._outcome(self.number), text)
        self._await(self._outcome(self.number))
        return self.ended(self.number) or ""

    def show_card(self, rank: int, text: str) -> None:
        """Tells all ranks where this one is.

        Raises:
            AttemptOverError: the attempt had ended when the card came, so this rank has had no part in it.
            ConnectError: the keeper of the board does not answer.
        """
        card, outcome = self._card(rank), self._outcome(self.number)
        self.board.post(card, text)
        # A card of an attempt that is forgotten elsewhere never stands; but its outcome is on its way.
        if self._await(card, outcome) == outcome or self.board.before(outcome, card):
            raise AttemptOverError(f"Attempt {self.number} has ended.")

    def card(self, rank: int) -> Optional[str]:
        """What a rank has left there, if it has."""
        return self.board.get(self._card(rank))

    def first_to_end(self, launcher_ranks: Iterable[int]) -> Optional[tuple[int, str]]:
        """Whose process has ended first, of these ranks by the launcher's numbers, and how; None while all run."""
        first: Optional[tuple[int, str]] = None
        for rank in launcher_ranks:
            how = self.board.get(f"ended.{rank}")
            if how is not None and (first is None or self.board.before(f"ended.{rank}", f"ended.{first[0]}")):
                first = rank, how
        return first

    def _await(self, *keys: str) -> str:
        """Returns the first of these keys that stands, once one does."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            standing = set(self.board.keys())  # one look for all: what comes between two would not wake this rank
            for key in keys:
                if key in standing:
                    return key
            left = deadline - time.monotonic()
            if left <= 0:
                raise ConnectError(f"The keeper of the job's board has not answered for {_ANSWER_S:g} s.")
            self.board.wait(left)

    def _outcome(self, number: int) -> str:
        return f"{self._prefix}{number}.{_OUTCOME}"

    def _card(self, rank: int) -> str:
        return f"{self._prefix}{self.number}.card.{rank}"


def _last_ended(keys: Iterable[str], prefix: str) -> int:
    """The last attempt that has an outcome, by the keys that stand; -1: none."""
    words = (key[len(prefix) :].split(".") for key in keys if key.startswith(prefix))
    return max((int(number) for number, *what in words if what == [_OUTCOME] and number.isdecimal()), default=-1)
