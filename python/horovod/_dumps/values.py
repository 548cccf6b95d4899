"""The dump of one rank as a value, and as JSON. Pure.

It holds what a rank waits for, what it has done last, and where its threads stand: no variables, neither of the
environment nor of Python.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

VERSION: Final = 1

USER: Final = "user"
HOROVOD: Final = "horovod"
OTHER: Final = "other"


@dataclass(frozen=True)
class Frame:
    """One level of a stack.

    Attributes:
        file, line, function: where it stands.
        owner: whose code it is: USER, HOROVOD, or OTHER (the standard library, installed packages).
    """

    file: str
    line: int
    function: str
    owner: str = OTHER


@dataclass(frozen=True)
class Thread:
    """One thread of Python.

    Attributes:
        name: as Python calls it.
        main: it runs the script.
        frames: its stack, the innermost last.
    """

    name: str
    main: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Operation:
    """A collective that has been submitted and does not run yet, or one that has ended.

    Attributes:
        what: as messages call it: "allreduce 'grad.w'".
        name: as the ranks agree on it.
        process_set: its id.
        dtype, shape, seconds: of one that waits, and for how long.
        call_site: the line that submitted it, where that is recorded.
        number: of one that has ended: which of all of its rank.
    """

    what: str
    name: str
    process_set: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    seconds: float = 0.0
    call_site: str = ""
    number: int = 0


@dataclass(frozen=True)
class Dump:
    """The state of one rank.

    Attributes:
        rank, size, host, pid, directory: who, and where it was started.
        time: when, as ISO text.
        reason: what asked for it: "stall", "signal" or "request".
        pending: what it waits for, the oldest first.
        untold: how many more there are.
        finished: the last that have ended, the oldest first.
        process_sets: the members of each, by its id.
        threads: of Python.
        stacks_only: the rank could tell no more: native code lets no Python run.
    """

    rank: int
    size: int
    host: str
    pid: int
    directory: str
    time: str
    reason: str
    pending: tuple[Operation, ...] = ()
    untold: int = 0
    finished: tuple[Operation, ...] = ()
    process_sets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    threads: tuple[Thread, ...] = ()
    stacks_only: bool = False

    @property
    def main_thread(self) -> tuple[Frame, ...]:
        """The stack of the thread that runs the script; empty when it is not known."""
        return next((thread.frames for thread in self.threads if thread.main), ())


def to_json(dump: Dump) -> str:
    """Text for `from_json`."""
    return json.dumps({"version": VERSION, **dataclasses.asdict(dump)}, indent=1)


def from_json(text: str) -> Dump:
    """The dump that a rank has written.

    Raises:
        ValueError: it is none, or of another version of this package.
    """
    try:
        told = json.loads(text)
        if told["version"] != VERSION:
            raise ValueError(f"It is of version {told['version']!r}, not {VERSION}.")
        told["pending"] = operations(told["pending"])
        told["finished"] = operations(told["finished"])
        told["process_sets"] = members(told["process_sets"])
        told["threads"] = tuple(
            Thread(str(one["name"]), bool(one["main"]), tuple(_frame(frame) for frame in one["frames"]))
            for one in told["threads"]
        )
        for name in ("rank", "size", "pid", "untold"):
            told[name] = int(told[name])
        return Dump(**{entry.name: told[entry.name] for entry in dataclasses.fields(Dump)})
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"It is no dump: {type(error).__name__}: {error}.") from None


def operations(told: Any) -> tuple[Operation, ...]:
    """From JSON; what this class does not know is left out."""
    known = {entry.name for entry in dataclasses.fields(Operation)}
    found = []
    for one in told:
        values = {name: value for name, value in one.items() if name in known}
        values["process_set"], values["seconds"] = int(one["process_set"]), float(one.get("seconds", 0))
        found.append(Operation(**{**values, "shape": tuple(one.get("shape", ()))}))
    return tuple(found)


def members(told: Any) -> dict[int, tuple[int, ...]]:
    """The process sets, from JSON."""
    return {int(number): tuple(int(rank) for rank in ranks) for number, ranks in told.items()}


def _frame(told: Any) -> Frame:
    return Frame(str(told["file"]), int(told["line"]), str(told["function"]), str(told["owner"]))
