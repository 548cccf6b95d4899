"""The frames and messages between launcher and agent: whatever the bytes are, frames come out or a ProtocolError."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import randoms

from horovod._net.failures import ProtocolError
from horovod.runner.live.figures import Figures, to_wire
from horovod.runner.remote.wire import frames, messages


def read(reader: frames.Reader, data: bytes, cuts: random.Random) -> Iterator[tuple[int, bytes]]:
    """Feeds the bytes in pieces of random length."""
    while data:
        size = cuts.choice((1, 2, 5, 100, 5000, 100000))
        yield from reader.feed(data[:size])
        data = data[size:]


def some_frames(choose: random.Random) -> list[tuple[int, bytes]]:
    kinds = [choose.choice(list(frames.FROM_AGENT)) for _ in range(choose.randrange(1, 30))]
    return [(kind, choose.randbytes(choose.randrange(0, min(3000, frames.FROM_AGENT[kind]) + 1))) for kind in kinds]


@settings(max_examples=100)
@given(choose=randoms(use_true_random=True))
def test_frames_come_out_as_they_went_in_however_they_are_cut(choose: random.Random) -> None:
    sent = some_frames(choose)
    noise = choose.randbytes(choose.randrange(0, 5000)).replace(b"\0", b"!") + frames.MARK[: choose.randrange(5)]
    data = noise + frames.MARK + b"".join(frames.frame(*each) for each in sent)
    assert list(read(frames.Reader(frames.FROM_AGENT, marked=True), data, choose)) == sent


@settings(max_examples=300)
@given(choose=randoms(use_true_random=True))
def test_damaged_bytes_are_frames_or_an_error_and_are_never_hoarded(choose: random.Random) -> None:
    data = bytearray(b"".join(frames.frame(*each) for each in some_frames(choose)))
    for _ in range(choose.randrange(1, 10)):
        data[choose.randrange(len(data))] = choose.randrange(256)
    reader = frames.Reader(frames.FROM_AGENT)
    try:
        for kind, body in read(reader, bytes(data), choose):
            assert len(body) <= frames.FROM_AGENT[kind]
    except ProtocolError:
        return
    assert len(reader._buffer) <= max(frames.FROM_AGENT.values()) + 5


def test_a_frame_that_is_too_long_is_refused_by_its_head() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        list(frames.Reader(frames.FROM_LAUNCHER).feed((1 << 31).to_bytes(4, "big") + bytes([frames.CONTROL])))


def test_noise_without_end_is_refused() -> None:
    reader = frames.Reader(frames.FROM_AGENT, marked=True)
    with pytest.raises(ProtocolError, match="first word"):
        for _ in range(100):
            list(reader.feed(b"Welcome!\n" * 1000))


def test_kinds_of_the_other_side_are_refused() -> None:
    for kind in set(frames.FROM_LAUNCHER) ^ set(frames.FROM_AGENT):
        limits = frames.FROM_AGENT if kind in frames.FROM_LAUNCHER else frames.FROM_LAUNCHER
        with pytest.raises(ProtocolError, match="not expected"):
            list(frames.Reader(limits).feed(frames.frame(kind)))


GOOD: dict[str, dict[str, Any]] = {
    "job": {
        "command": ["a", "b"],
        "cwd": "/",
        "at_home": False,
        "env": {"A": "1"},
        "ranks": [{"rank": 1, "env": {}}],
        "interfaces": [],
        "function": False,
        "affinity": [0, 5],
        "dumps": True,
        "dump_signal": 12,
        "elastic": False,
        "link": {"address": "10.0.0.7", "key": "0f" * 32},
        "vitals_every": 60.0,
    },
    "go": {},
    "further": {"rank": 7, "env": {"A": "1"}},
    "roster": {"rank": 7, "words": {"leave": "there is no slot"}},
    "signal": {"number": 15, "ranks": [0, 1]},
    "finish": {},
    "credit": {"bytes": 5},
    "dump": {"round": 3},
    "watch": {"seconds": 4.0},
}
OF_AGENTS: dict[str, dict[str, Any]] = {
    "ready": {"summary": "2 ranks", "remarks": ["too many"], "pulses": 4711},
    "exited": {"rank": 1, "status": 9, "age": 0.5, "how": "was killed", "peak": 1 << 30},
    "silent": {"rank": 1, "why": "stopped"},
    "strays": {"count": 2},
    "collected": {"round": 0},
    "asks": {"rank": 7, "epoch": -1, "commits": 0, "why": ""},
    "bereft": {"rank": 7},
    "vitals": {"ranks": [[0, 1.5, 4096], [1]]},
    "figures": {"ranks": [[3, *to_wire(Figures(steps=7, last_error="rank 1 was lost"))]]},
}


@pytest.mark.parametrize("name", GOOD)
def test_messages_come_out_as_they_went_in(name: str) -> None:
    assert messages.decode(messages.encode(name, **GOOD[name]), messages.FROM_LAUNCHER) == (name, GOOD[name])


@pytest.mark.parametrize("name", OF_AGENTS)
def test_messages_of_agents_come_out_as_they_went_in(name: str) -> None:
    assert messages.decode(messages.encode(name, **OF_AGENTS[name]), messages.FROM_AGENT) == (name, OF_AGENTS[name])


WRONG: tuple[Any, ...] = (
    *(None, [], 1, "go", {}, {"is": None}, {"is": "stop"}, {"is": ["go"]}, {"is": "go", "more": 1}),
    *({"is": "signal", "number": value, "ranks": []} for value in (0, 65, -1, "9", True, 1.5, None)),
    *({"is": "roster", "rank": 1, "words": value} for value in (None, [], "leave", {"a": 1, "b": 2, "c": 3})),
    *({"is": "dump", "round": value} for value in (-1, True, "1", 1 << 40)),
    *({"is": "signal", "number": 9, "ranks": value} for value in (None, {}, [None], [-1], [1 << 60], ["1"])),
    *(
        {"is": "job", **GOOD["job"], "env": value}
        for value in (None, [], {"": "x"}, {"A=B": "x"}, {"A": 1}, {"A": "\0"})
    ),
    *({"is": "job", **GOOD["job"], "link": value} for value in (None, {}, {**GOOD["job"]["link"], "key": "0f"})),
    *({"is": "job", **GOOD["job"], "ranks": value} for value in (None, [1], [{"rank": 1}], [{"rank": "1", "env": {}}])),
)


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_wrong_messages_are_refused(value: Any) -> None:
    with pytest.raises(ProtocolError):
        messages.decode(json.dumps(value).encode(), messages.FROM_LAUNCHER)


_COUNTED = to_wire(Figures())


@pytest.mark.parametrize(
    "row",
    [
        *(None, 1, [], [0], [0, *_COUNTED, 1], [-1, *_COUNTED], [0, [], *_COUNTED[1:]], [0, *_COUNTED[:2], "x" * 257]),
        *([0, [value, *_COUNTED[0][1:]], *_COUNTED[1:]] for value in (-1, True, 1.5, "1", 1 << 63, None)),
    ],
    ids=repr,
)
def test_wrong_figures_are_refused(row: Any) -> None:
    with pytest.raises(ProtocolError):
        messages.decode(messages.encode("figures", ranks=[row]), messages.FROM_AGENT)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100000, b'{"is": "go"' + b" " * 10])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        messages.decode(body, messages.FROM_LAUNCHER)


@settings(max_examples=300)
@given(choose=randoms(use_true_random=True))
def test_damaged_messages_are_good_or_refused(choose: random.Random) -> None:
    known, shapes = choose.choice(((GOOD, messages.FROM_LAUNCHER), (OF_AGENTS, messages.FROM_AGENT)))
    name = choose.choice(list(known))
    body = bytearray(messages.encode(name, **known[name]))
    for _ in range(choose.randrange(1, 4)):
        body[choose.randrange(len(body))] = choose.randrange(256)
    try:
        name, fields = messages.decode(bytes(body), shapes)
    except ProtocolError:
        return
    assert set(fields) == set(known[name])


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1"])
def test_output_that_is_too_short_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.output_of(body)


def test_dumps_of_a_rank() -> None:
    (kind, body) = next(frames.Reader(frames.FROM_AGENT).feed(frames.dump_frame(7, b"{}")))
    assert (kind, frames.dump_of(body)) == (frames.DUMP, (7, b"{}"))
    with pytest.raises(ProtocolError, match="3 bytes"):
        frames.dump_of(b"\0\0\0")
    with pytest.raises(ProtocolError, match="too long"):
        list(frames.Reader(frames.FROM_AGENT).feed(frames.dump_frame(7, bytes(frames.MAX_DUMP_BYTES + 1))))
