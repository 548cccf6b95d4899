"""The dumps of ranks on several hosts: each agent collects those of its host, here they come together.

Used by `launchers.over_hosts`. A round begins when an agent sends the first dump, or when the user asks; agents that
have sent none within a moment are asked. One that has not answered after some seconds is named, and waited for no
longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Optional

from horovod.runner.hangs.collecting import ASK_S, ENDED, ENOUGH_S, Collected
from horovod.runner.remote.launcher_side.dump_inbox import Answer
from horovod.runner.remote.launcher_side.link import Link, State

if TYPE_CHECKING:
    from horovod._dumps.values import Dump

ANSWER_S: Final = ENOUGH_S + 1.5  # an agent takes `ENOUGH_S` for ranks that do not answer


class HostsDumps:
    """A `Source`; see the head of the file.

    Args:
        links: to the agents.

    Attributes:
        fd: none of its own: news come as events of the crew.
    """

    fd = -1

    def __init__(self, links: Sequence[Link]) -> None:
        self._links = links
        self._round = 0
        self._begun_s: Optional[float] = None
        self._asked = False
        self._answers: dict[Link, Answer] = {}

    def ask(self, now_s: float) -> None:
        self._begin(now_s)
        self._ask()

    def read(self, now_s: float) -> None:
        """Nothing: see `fd`."""

    def next_s(self) -> Optional[float]:
        if self._begun_s is None:
            return None
        return self._begun_s + (ANSWER_S if self._asked else ASK_S)

    def finished_round(self, left: set[int], now_s: float) -> Optional[Collected]:
        self._take(now_s)
        if self._begun_s is None:
            return None
        after_s = now_s - self._begun_s
        if not self._missing(left) or after_s >= ANSWER_S:
            return self._finish(left)
        if after_s >= ASK_S and not self._asked:
            self._ask()
        return None

    def close(self, left: set[int]) -> Optional[Collected]:
        self._take(0.0)
        return None if self._begun_s is None else self._finish(left)

    def _begin(self, now_s: float) -> None:
        if self._begun_s is None:
            self._begun_s = now_s
            self._round += 1

    def _take(self, now_s: float) -> None:
        for link in self._links:
            answer = link.dumps.take()
            if answer is None or (answer.round and (answer.round != self._round or self._begun_s is None)):
                continue  # what comes too late is of an earlier round
            self._begin(now_s)
            self._answers[link] = answer

    def _missing(self, left: set[int]) -> list[Link]:
        """Hosts that may still answer, with ranks that live."""
        return [
            link
            for link in self._links
            if link not in self._answers and link.state is State.RUNNING and not left.isdisjoint(link.ranks)
        ]

    def _ask(self) -> None:
        self._asked = True
        for link in self._links:
            if link not in self._answers and link.state is State.RUNNING:
                link.tell("dump", round=self._round)

    def _finish(self, left: set[int]) -> Collected:
        dumps: dict[int, Dump] = {}
        absent: dict[int, str] = {}
        for link in self._links:
            answer = self._answers.get(link)
            if answer is None:
                absent.update((rank, _why_silent(link, rank in left)) for rank in link.ranks)
            else:
                absent.update(answer.silent)
                _read(answer.texts, dumps, absent)
        self._begun_s = None
        self._asked = False
        self._answers.clear()
        return Collected(dumps, absent)


def _why_silent(link: Link, alive: bool) -> str:
    if link.state is State.LOST:
        return f"{link.way.host} was lost"
    return f"{link.way.host} has not answered within {ANSWER_S:g} s" if alive else ENDED


def _read(texts: Mapping[int, bytes], dumps: dict[int, Dump], absent: dict[int, str]) -> None:
    from horovod._dumps.values import from_json  # not before it is needed: it takes milliseconds

    for rank, text in texts.items():
        try:
            dump = from_json(text.decode())
        except ValueError as error:
            absent[rank] = f"it cannot be read: {str(error)[:200]}"
            continue
        if dump.rank == rank:
            dumps[rank] = dump
        else:
            absent[rank] = f"it is of rank {dump.rank}"
