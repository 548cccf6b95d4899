"""What the worker of an elastic job on Ray hears of the job's driver and says to it, by calls of its actor."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

from horovod._core.errors import InvalidArgumentError
from horovod._net.failures import NetError
from horovod._net.roster import Dismissal, News, Seat, heard
from horovod.ray import here
from horovod.ray.placing import Place


class Question(NamedTuple):
    """The worker has left its epoch, or comes for the first time.

    Attributes:
        version: of its state.
        why: it could not meet the others.
        meeting: where the others could meet it, if it became rank 0.
    """

    version: tuple[int, int]
    why: str
    meeting: tuple[str, int]


class Word(NamedTuple):
    """What the driver says.

    Attributes:
        message: in the words of `horovod._net.roster`.
        place: that goes with the place of an epoch.
    """

    message: dict[str, Any]
    place: Optional[Place] = None


class ActorRoster:
    """For `membership.enroll`. Threads of the actor bring what the driver says, and take what it is asked. Ray ends the
    actor with the driver's process, so `ask` waits for no answer that cannot come.

    Args:
        nics: network interfaces for traffic between nodes.

    Attributes:
        title: of the rank that this worker is, or was last; empty before the first epoch.
        rank: its number; -1 before the first epoch.
    """

    def __init__(self, nics: Sequence[str]) -> None:
        self._nics = nics
        self._questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
        self._words: queue.SimpleQueue[Word] = queue.SimpleQueue()
        self.title = ""
        self.rank = -1

    def ask(self, version: tuple[int, int], why: str = "") -> Union[Seat, Dismissal]:
        """Waits for the next place, and takes it."""
        try:
            meeting = here.meeting(self._nics)
        except NetError as error:
            raise InvalidArgumentError(str(error)) from error
        self._questions.put(Question(version, why, meeting))
        while True:
            word = self._words.get()
            answer = heard(word.message)
            if isinstance(answer, News):  # of the epoch that this worker has left
                continue
            if isinstance(answer, Seat) and word.place is not None:
                here.take(word.place, is_first=self.rank < 0)
                self.rank, self.title = answer.rank, word.place.title
            return answer

    def news(self) -> list[News]:
        """The news that has arrived since the last call."""
        found = []
        while not self._words.empty():
            said = heard(self._words.get().message)
            found += [said] if isinstance(said, News) else []
        return found

    def say_lost(self) -> None:
        """The end of the worker's call says it (`worker.Lost`)."""

    def take(self, word: Word) -> None:
        """The driver has said this."""
        self._words.put(word)

    def question(self, patience_s: float) -> Optional[Question]:
        """The next one; None: none has come within this time."""
        try:
            return self._questions.get(timeout=patience_s)
        except queue.Empty:
            return None
