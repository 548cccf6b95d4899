"""The control messages between launcher and agent: JSON of fixed, checked shapes. Pure.

Used by `agent` and `link`. A body is an object with "is", the name of the message, and exactly the fields of that name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Callable, Final

from horovod._net.failures import ProtocolError
from horovod.runner.live.figures import is_on_wire

Check = Callable[[Any], bool]
Shapes = Mapping[str, Mapping[str, Check]]

_MAX_RANK: Final = 1 << 24


def _number(low: int, high: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _text(limit: int) -> Check:
    return lambda value: isinstance(value, str) and len(value) <= limit and "\0" not in value


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(_name(name) and check(each) for name, each in value.items())


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e9


def _name(value: str) -> bool:
    return bool(value) and "=" not in value and "\0" not in value


def _member(value: Any) -> bool:
    return (
        isinstance(value, dict) and set(value) == {"rank", "env"} and _rank(value["rank"]) and _variables(value["env"])
    )


_rank: Final = _number(0, _MAX_RANK)
_variables: Final = _table_of(_text(1 << 24))
_short: Final = _text(1 << 12)
_round: Final = _number(0, 1 << 31)
_counted: Final = _number(-1, 1 << 53)  # epochs and commits of an elastic job


def _link(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"address", "key"}
        and _short(value["address"])
        and isinstance(value["key"], str)
        and re.fullmatch(r"[0-9a-f]{64}", value["key"]) is not None
    )


def _vitals(value: Any) -> bool:
    """Rank, seconds of a processor, bytes; or the rank alone: the others are not known."""
    return isinstance(value, list) and (
        (len(value) == 1 and _rank(value[0]))
        or (len(value) == 3 and _rank(value[0]) and _seconds(value[1]) and _number(0, 1 << 63)(value[2]))
    )


def _figures(value: Any) -> bool:
    """Rank, and what it has counted."""
    return isinstance(value, list) and len(value) == 4 and _rank(value[0]) and is_on_wire(value[1:])


def _words_of_a_roster(value: Any) -> bool:
    return isinstance(value, dict) and len(value) <= 2  # the worker itself reads them, and refuses nonsense


# fmt: off
HELLO: Final[Shapes] = {
    "hello": {"protocol": _number(0, 1 << 16), "version": _short, "name": _short, "ssh": _short, "own": _short,
              "machine": _short},
}
FROM_AGENT: Final[Shapes] = {
    "ready": {"summary": _short, "remarks": _list_of(_short), "pulses": _number(0, 65535)},
    "refused": {"why": _text(1 << 14)},
    "started": {"rank": _rank, "pid": _number(1, 1 << 31)},
    "failed": {"rank": _rank, "errno": _number(0, 1 << 16), "forked": _flag},
    "exited": {"rank": _rank, "status": _number(0, 1 << 16), "age": _seconds, "how": _short,
               "peak": _number(0, 1 << 60)},
    "up": {"rank": _rank},
    "over": {"rank": _rank},
    "strays": {"count": _number(1, _MAX_RANK)},
    "silent": {"rank": _rank, "why": _short},
    "collected": {"round": _round},
    "vitals": {"ranks": _list_of(_vitals)},
    "figures": {"ranks": _list_of(_figures)},
    "done": {"lost": _flag},
    "asks": {"rank": _rank, "epoch": _counted, "commits": _counted, "why": _short},
    "bereft": {"rank": _rank},
}
FROM_LAUNCHER: Final[Shapes] = {
    "job": {"command": _list_of(_text(1 << 24)), "cwd": _short, "at_home": _flag, "env": _variables,
            "ranks": _list_of(_member), "interfaces": _list_of(_short), "function": _flag,
            "affinity": _list_of(_number(0, 1 << 20)), "dumps": _flag, "dump_signal": _number(0, 64),
            "elastic": _flag, "link": _link, "vitals_every": _seconds},
    "go": {},
    "further": {"rank": _rank, "env": _variables},
    "roster": {"rank": _rank, "words": _words_of_a_roster},
    "signal": {"number": _number(1, 64), "ranks": _list_of(_rank)},
    "finish": {},
    "credit": {"bytes": _number(0, 1 << 30)},
    "silence": {"expected": _flag},
    "dump": {"round": _round},
    "watch": {"seconds": _seconds},
}
# fmt: on


def encode(message: str, **fields: Any) -> bytes:
    """The body of a message."""
    return json.dumps({"is": message, **fields}).encode()


def decode(body: bytes, shapes: Shapes) -> tuple[str, dict[str, Any]]:
    """Name and fields of a message.

    Raises:
        ProtocolError: it is none of these shapes.
    """
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or not isinstance(message.get("is"), str) or message["is"] not in shapes:
        raise ProtocolError("Unknown control message.")
    name = message.pop("is")
    shape = shapes[name]
    if set(message) != set(shape):
        raise ProtocolError(f"A message {name!r} must have the fields {sorted(shape)}.")
    for field, check in shape.items():
        if not check(message[field]):
            raise ProtocolError(f"The field {field!r} of a message {name!r} has an invalid value.")
    return name, message
