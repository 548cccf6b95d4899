"""What an agent says of the ranks of its host: in portions that fit into frames, whatever the ranks have counted."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import pytest

from horovod.runner.live.figures import BYTES, LAYOUT, Reading, decoded
from horovod.runner.remote.host_side.figures_post import PORTION, FiguresPost
from horovod.runner.remote.wire import frames, messages

RANKS = 130


class SomeRanks:
    """Processes on a host, with the largest numbers and this text on their pages."""

    def __init__(self, text: bytes) -> None:
        page = struct.pack("=Q", LAYOUT) + b"\xff" * (BYTES - 8 - 256) + text.ljust(256, b"\0")
        figures = decoded(page, 1 << 62)
        assert figures is not None
        self._reading = Reading(figures, 0.0)

    def figures_of_running(self) -> Mapping[int, Reading]:
        return {(1 << 23) + rank: self._reading for rank in range(RANKS)}

    def last_reading(self, rank: int) -> Reading:
        assert rank == 7
        return self._reading


@pytest.mark.parametrize("text", [b"\xff" * 256, b"\x01" * 256, b'"' * 256, "\u00e9".encode() * 128, b"x" * 256])
def test_figures_of_many_ranks_fit_into_frames(text: bytes) -> None:
    said: list[bytes] = []

    def say(name: str, **fields: Any) -> None:
        said.append(messages.encode(name, **fields))

    post = FiguresPost(say)
    post.watch(4.0)
    assert said == []  # no processes yet
    post.processes = SomeRanks(text)  # type: ignore[assignment]
    post.tick()
    rows = [row for body in said for row in messages.decode(body, messages.FROM_AGENT)[1]["ranks"]]
    assert [row[0] - (1 << 23) for row in rows] == list(range(RANKS))
    assert len(said) == -(-RANKS // PORTION)
    assert max(map(len, said)) <= frames.FROM_AGENT[frames.CONTROL] // 2
    post.ended(7)
    assert [row[0] for row in messages.decode(said[-1], messages.FROM_AGENT)[1]["ranks"]] == [7]
