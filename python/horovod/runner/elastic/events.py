"""What happens to an elastic job, and what is decided: values with an explanation each. Pure.

Used by `machine`, which turns the former into the latter, by `driver`, which tells and does them, and by `journal`.
A worker is the process of a rank under a number that it keeps; its rank changes with the epochs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from horovod.runner.elastic.assignment import NO_STATE, Seat, Version
from horovod.runner.machines.hosts import Host

# What becomes of a worker that has ended.
WELL = "well"  # its program is done
ERROR = "error"  # of its own program, which would make it again
FAULT = "fault"  # a signal, a host, a hang, or the loss of another rank

# Changes of hosts, as ranks hear of them; they add up.
NOTHING, REMOVED, ADDED = 0, 1, 2


class Asked(NamedTuple):
    """A worker has left its epoch, or comes for the first time, and asks for its next place. `why`: it could not meet
    the others of its epoch."""

    worker: int
    version: Version = NO_STATE
    why: str = ""


class Ended(NamedTuple):
    """A worker's process has ended: well, by an error, or by a fault. `chance` from 0 to 1 spreads cool-downs."""

    worker: int
    fate: str
    how: str
    chance: float = 0.0


class Found(NamedTuple):
    """The discovery script has printed these hosts."""

    hosts: tuple[Host, ...]


class HostGone(NamedTuple):
    """A host is lost, or cannot be used: all workers there are dead. `how` in words, with the host's name; `chance` as
    above. `silent`: nothing was heard from it, or not in time, so it may come back."""

    host: str
    how: str
    chance: float = 0.0
    silent: bool = False


class Passed(NamedTuple):
    """Time has passed; nothing else has happened."""


Event = Union[Asked, Ended, Found, HostGone, Passed]


class Start(NamedTuple):
    """A further worker is to be started."""

    worker: int
    host: str
    why: str


class Place(NamedTuple):
    """An epoch begins; every worker of it has asked and waits.

    Attributes:
        sync: not all of them hold equal states.
    """

    epoch: int
    seats: tuple[Seat, ...]
    sync: bool
    why: str


class Dismiss(NamedTuple):
    """There is no place for a worker: it ends with code 0 once it has asked for one, and is ended before that."""

    worker: int
    why: str


class Announce(NamedTuple):
    """The ranks are to leave their epoch at the next commit, all together."""

    kind: int
    why: str


class Kill(NamedTuple):
    """A worker does not answer, and is ended by force."""

    worker: int
    why: str


class Release(NamedTuple):
    """A host has no workers any more and gets none: nothing of the job may stay there."""

    host: str
    why: str


class Fail(NamedTuple):
    """The job cannot go on."""

    why: str


class Finish(NamedTuple):
    """The job is done."""

    why: str


Decision = Union[Start, Place, Dismiss, Announce, Kill, Release, Fail, Finish]


def as_json(happened: Union[Event, Decision]) -> dict[str, Any]:
    """The value for a line of the journal: its kind in lower case, and its fields."""
    found: dict[str, Any] = {"event": type(happened).__name__.lower()}
    for name, value in happened._asdict().items():
        if isinstance(happened, Place) and name == "seats":
            found["ranks"] = [{"worker": seat.worker, "host": seat.slot.hostname} for seat in happened.seats]
        elif name == "hosts":
            found["hosts"] = [host.to_string() for host in value]
        elif name != "chance":
            found[name] = value
    return found
