"""The dump of one rank as a value, and as JSON. Pure.

It holds what a rank waits for, what it has done last, and where its threads stand: no variables, neither of the
environment nor of Python.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Optional

VERSION: Final = 1

USER: Final = "user"
HOROVOD: Final = "horovod"
OTHER: Final = "other"

# What JSON must hold.
_KINDS: Final = {
    int: ("rank", "size", "pid", "untold"),
    str: ("host", "directory", "time", "reason"),
    bool: ("stacks_only",),
}
_OPERATION: Final = {
    "what": str,
    "name": str,
    "process_set": int,
    "dtype": str,
    "shape": list,
    "seconds": (int, float),
    "call_site": str,
    "number": int,
    "members": list,
}
_FRAME: Final = {"file": str, "line": int, "function": str, "owner": str}


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
    """An operation that has been submitted and does not run yet, or one that has ended.

    Attributes:
        what: as messages call it: "allreduce 'grad.w'".
        name: as the ranks agree on it.
        process_set: its id.
        members: the two ranks of a send or recv; empty: those of the process set.
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
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dump:
    """The state of one rank.

    Attributes:
        rank, size, host, pid, directory: the rank, and where it was started.
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


def to_json(dump: Dump, indent: Optional[int] = 1) -> str:
    """Text for `from_json`."""
    # Not `asdict`, which copies every frame of every stack first.
    return json.dumps({"version": VERSION, **vars(dump)}, default=vars, indent=indent)


def from_json(text: str) -> Dump:
    """The dump that a rank has written, maybe on another host: every value is checked.

    Raises:
        ValueError: it is none, or of another version of this package.
    """
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            raise ValueError(f"It is of version {str(data['version'])[:20]}, not {VERSION}.")
        data["pending"] = operations(data["pending"])
        data["finished"] = operations(data["finished"])
        data["process_sets"] = members(data["process_sets"])
        data["threads"] = tuple(_thread(one) for one in _of(list, data["threads"]))
        for kind, names in _KINDS.items():
            for name in names:
                _of(kind, data[name])
        return Dump(**{entry.name: data[entry.name] for entry in dataclasses.fields(Dump)})
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"It is not a dump: {type(error).__name__}: {error}.") from None


def operations(data: Any) -> tuple[Operation, ...]:
    """From JSON; what this class does not know is left out.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: there are no operations in it.
    """
    return tuple(_operation(one) for one in _of(list, data))


def members(data: Any) -> dict[int, tuple[int, ...]]:
    """The process sets, from JSON; it raises as `operations` does."""
    return {
        int(number): tuple(_of(int, rank) for rank in _of(list, ranks)) for number, ranks in _of(dict, data).items()
    }


def _operation(data: Any) -> Operation:
    values = {name: data[name] for name in _OPERATION if name in data}
    for name, value in values.items():
        _of(_OPERATION[name], value)
    seconds = float(values.get("seconds", 0))
    if not math.isfinite(seconds):
        raise ValueError("It is not a dump: an operation waits for ever.")
    shape = tuple(_of(int, length) for length in values.get("shape", ()))
    ranks = tuple(_of(int, rank) for rank in values.get("members", ()))
    taken = {"process_set": data["process_set"], "seconds": seconds, "shape": shape, "members": ranks}
    return Operation(**{**values, **taken})


def _thread(data: Any) -> Thread:
    frames = tuple(
        Frame(*(_of(kind, frame[name]) for name, kind in _FRAME.items())) for frame in _of(list, data["frames"])
    )
    return Thread(_of(str, data["name"]), _of(bool, data["main"]), frames)


def _of(kind: Any, value: Any) -> Any:
    """The value, which is of this kind."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"unexpected {type(value).__name__}")
    return value
