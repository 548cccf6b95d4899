"""The participants of a data service, and how it ended. Pure: no socket, thread or clock.

Members are processes of the compute job and of the training job; each is present as long as its connection is. A
dispatcher and a worker belong to the member that announced them and vanish with it.

All that happens is an entry of one board (`horovod._net.handshake.boards.kept_board`): `do.<member>.<n>` holds a
command of a member as JSON, its name and arguments; `ended.<member>` says that its connection has ended. Every process
carries out all of them in their order, so all come to the same registry, numbers and refusals included. Used by
`presence`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Optional

from horovod._core.errors import HorovodError, InvalidArgumentError, PeerLostError, ShutdownError

COMPUTE: Final = "compute"
TRAINING: Final = "training"

# How a data service can end.
SHUTDOWN: Final = "shutdown"
FAILED: Final = "failed"

_COMMAND: Final = "do"
_ENDED: Final = "ended"


@dataclass(frozen=True)
class Member:
    """One process that is present; `where` is its host and process id, for messages."""

    role: str
    rank: int
    where: str

    def __str__(self) -> str:
        return f"{self.role} rank {self.rank} ({self.where})"


@dataclass
class Dispatcher:
    """A running dispatcher: its process, where it listens, and the compute ranks whose workers serve it. The generation
    distinguishes it from later ones with its number.

    One that has retired waits for its workers to stop: TensorFlow's workers cannot be stopped once it is gone.
    """

    number: int
    owner: int
    address: str
    generation: int
    workers: set[int] = field(default_factory=set)
    retired: bool = False


@dataclass
class Round:
    """One meeting of all training ranks; `number` is set once they are all there."""

    size: int
    members: dict[int, int] = field(default_factory=dict)
    number: Optional[int] = None

    def missing(self) -> list[int]:
        """The ranks that have not come."""
        return [rank for rank in range(self.size) if rank not in self.members]


class Registry:
    """The state of one data service."""

    def __init__(self, dispatchers: int, workers_per_dispatcher: int, dispatcher_side: str) -> None:
        self.members: dict[int, Member] = {}
        self.dispatchers: dict[int, Dispatcher] = {}
        self.outcome: Optional[tuple[str, str]] = None
        self.dispatcher_side = dispatcher_side
        self._dispatcher_count = dispatchers
        self.workers_per_dispatcher = workers_per_dispatcher
        self._rounds: dict[str, Round] = {}
        self._numbers = itertools.count(1)
        self._commands: dict[str, Callable[..., Any]] = {
            "join": self.join,
            "leave": self.leave,
            "dispatcher": self.announce_dispatcher,
            "retire": self.retire,
            "worker": self.announce_worker,
            "worker stopped": self.withdraw_worker,
            "meet": self.arrive,
            "give up": self.give_up,
            "end": self.end,
        }

    def apply(self, key: str, value: str) -> Any:
        """Carries out the next entry of the board.

        Returns:
            What the command returns, or the HorovodError that it raises.
        """
        kind, _, rest = key.partition(".")
        member = rest.partition(".")[0]
        try:
            if kind == _ENDED:
                return self.lost(int(member))
            if kind == _COMMAND:
                name, *arguments = json.loads(value)
                return self._commands[name](int(member), *arguments)
        except HorovodError as refusal:
            return refusal
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            return InvalidArgumentError(f"The compute service cannot read this request: {error!r}.")
        return None

    # ---- coming and going

    def join(self, member: int, role: str, rank: int, where: str) -> None:
        """A process has come, whose number as a member this is.

        Raises:
            InvalidArgumentError: it is not a rank of the compute job, or is there already.
        """
        self.check_alive()
        if role not in (COMPUTE, TRAINING):
            raise InvalidArgumentError(f"There is no role {role!r}.")
        if role == COMPUTE:
            size = self._dispatcher_count * self.workers_per_dispatcher
            if not 0 <= rank < size:
                raise InvalidArgumentError(f"Compute rank {rank} is not in a compute job of {size} ranks.")
            for other in self.members.values():
                if (other.role, other.rank) == (COMPUTE, rank):
                    raise InvalidArgumentError(f"{_upper(str(other))} is there already; start each rank once.")
        self.members[member] = Member(role, rank, where)

    def leave(self, number: int, reason: str) -> None:
        """A member goes in order; for a compute rank that is in order only once the data service has ended."""
        member = self._remove(number)
        if member is not None and member.role == COMPUTE:
            self.end(number, FAILED, f"{_upper(str(member))} of the data service ended early: {reason}")

    def lost(self, number: int) -> None:
        """A member's connection broke: it died."""
        needed = any(dispatcher.owner == number for dispatcher in self.dispatchers.values())
        member = self._remove(number)
        if member is None:
            return
        if member.role == COMPUTE:
            self.end(number, FAILED, f"{_upper(str(member))} of the data service died; start both jobs again.")
        elif needed:
            self.end(number, FAILED, f"{_upper(str(member))}, which ran a dispatcher, died; start both jobs again.")

    def end(self, _: int, kind: str, message: str) -> None:
        """A member says that the data service is over; the first end counts."""
        if self.outcome is None:
            self.outcome = (kind, message)

    @property
    def failed(self) -> bool:
        """The data service is over, and not because it was asked to end."""
        return self.outcome is not None and self.outcome[0] == FAILED

    def check_alive(self) -> None:
        """Raises:
        PeerLostError, ShutdownError: the data service is over.
        """
        if self.outcome is not None:
            raise (PeerLostError if self.failed else ShutdownError)(self.outcome[1])

    def present(self, role: str, besides: int) -> list[Member]:
        """The members of a role other than `besides`."""
        return [member for number, member in self.members.items() if member.role == role and number != besides]

    # ---- dispatchers and workers

    def announce_dispatcher(self, owner: int, number: int, address: str) -> Dispatcher:
        """A member runs a dispatcher.

        Raises:
            InvalidArgumentError: the wrong job runs it, or it is run by another member.
        """
        self.check_alive()
        member = self._member(owner)
        if member.role != self.dispatcher_side:
            raise InvalidArgumentError(
                f"Dispatchers belong to the {self.dispatcher_side} job; {member} must start none."
            )
        if not 0 <= number < self._dispatcher_count:
            raise InvalidArgumentError(f"There is no dispatcher {number} of {self._dispatcher_count}.")
        if number in self.dispatchers:
            runs = self.members[self.dispatchers[number].owner]
            raise InvalidArgumentError(
                f"Dispatcher {number} is run by {runs} already. Leave its tf_data_service block first, or start a "
                "compute job of its own for each training job.",
            )
        made = Dispatcher(number, owner, address, next(self._numbers))
        self.dispatchers[number] = made
        return made

    def announce_worker(self, owner: int, generation: int) -> None:
        """A compute rank's worker serves that dispatcher now; nothing happens when the dispatcher has just gone."""
        self.check_alive()
        member = self._member(owner)
        dispatcher = self._of_generation(generation)
        if dispatcher is not None:
            dispatcher.workers.add(member.rank)

    def withdraw_worker(self, owner: int, generation: int) -> None:
        """A compute rank's worker has stopped; also after the end of the data service."""
        dispatcher, member = self._of_generation(generation), self.members.get(owner)
        if dispatcher is not None and member is not None:
            dispatcher.workers.discard(member.rank)

    def retire(self, _: int, generation: int) -> None:
        """A dispatcher is about to stop; also after the end of the data service."""
        dispatcher = self._of_generation(generation)
        if dispatcher is not None:
            dispatcher.retired = True

    def running(self, number: int) -> Optional[Dispatcher]:
        """The dispatcher of this number, unless it is about to stop."""
        dispatcher = self.dispatchers.get(number)
        return None if dispatcher is None or dispatcher.retired else dispatcher

    def lacks_workers(self, number: int) -> int:
        """How many workers a dispatcher still waits for."""
        dispatcher = self.dispatchers.get(number)
        return self.workers_per_dispatcher - (len(dispatcher.workers) if dispatcher else 0)

    # ---- meetings

    def arrive(self, owner: int, topic: str, size: int) -> Round:
        """A training rank has come to the meeting of all `size` ranks on a topic; the last one opens it.

        Raises:
            InvalidArgumentError: the ranks disagree about their number, or this one is there already.
        """
        self.check_alive()
        rank = self._member(owner).rank
        current = self._rounds.setdefault(topic, Round(size))
        if current.size != size:
            raise InvalidArgumentError(
                f"Training rank {rank} says that there are {size} ranks, others say {current.size}."
            )
        if rank in current.members or not 0 <= rank < size:
            raise InvalidArgumentError(
                f"Training rank {rank} of {size} has come to {topic!r} twice, or is not in the job; start a compute "
                "job of its own for each training job.",
            )
        current.members[rank] = owner
        if not current.missing():
            current.number = next(self._numbers)
            del self._rounds[topic]
        return current

    def give_up(self, owner: int, topic: str) -> None:
        """A rank has waited too long for the others; nothing happens when they have just come."""
        meeting = self._rounds.get(topic)
        if meeting is not None:
            meeting.members = {rank: member for rank, member in meeting.members.items() if member != owner}
            if not meeting.members:
                del self._rounds[topic]

    def _of_generation(self, generation: int) -> Optional[Dispatcher]:
        return next((each for each in self.dispatchers.values() if each.generation == generation), None)

    def _member(self, number: int) -> Member:
        if number not in self.members:
            raise InvalidArgumentError(f"There is no member {number}.")
        return self.members[number]

    def _remove(self, number: int) -> Optional[Member]:
        for dispatcher in [each for each in self.dispatchers.values() if each.owner == number]:
            self.retire(number, dispatcher.generation)
            del self.dispatchers[dispatcher.number]
        for topic in list(self._rounds):
            self.give_up(number, topic)
        gone = self.members.pop(number, None)
        if gone is not None and gone.role == COMPUTE:
            for dispatcher in self.dispatchers.values():
                dispatcher.workers.discard(gone.rank)
        return gone


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
