"""Sends the launcher the dumps of this host's ranks, in rounds: those that the ranks begin, and those it asks for.

Used by `agent`. A dump is one frame, shortened where it is too long; it is made when there is room for it on the way.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Optional

from horovod.runner.hangs.collecting import Collected, Collecting
from horovod.runner.loop import Loop
from horovod.runner.remote.wire import frames, messages
from horovod.runner.remote.wire.channel import Channel

_UNASKED: Final = 0


class DumpPost:
    """See the head of the file.

    Args:
        loop: that calls.
        channel: to the launcher.
        collecting: of this host's ranks; closed by `close`.
        ranks: on this host.
    """

    def __init__(self, loop: Loop, channel: Channel, collecting: Collecting, ranks: set[int]) -> None:
        self._loop = loop
        self._channel = channel
        self._collecting = collecting
        self._left = set(ranks)
        self._round = _UNASKED
        if collecting.fd >= 0:
            loop.watch(collecting.fd, lambda: collecting.read(time.monotonic()))

    def ask(self, number: int) -> None:
        """The launcher wants the dumps for this round of its own."""
        self._round = number
        self._collecting.ask(time.monotonic())

    def ended(self, rank: int) -> None:
        """A rank has ended, and is waited for no more."""
        self._left.discard(rank)

    def next_s(self) -> Optional[float]:
        """When `look` has something to do at the latest."""
        return self._collecting.next_s()

    def look(self) -> None:
        """To be called whenever something has happened, and at `next_s`."""
        collected = self._collecting.finished_round(self._left, time.monotonic())
        if collected is not None:
            number, self._round = self._round, _UNASKED
            self._channel.send_all(_frames(collected, number))

    def close(self) -> None:
        """Listens no more."""
        if self._collecting.fd >= 0:
            self._loop.watch(self._collecting.fd, None)
        self._collecting.close(set())


def _frames(collected: Collected, number: int) -> Iterator[bytes]:
    from horovod._dumps.shortened import shortened  # not before it is needed: it takes milliseconds

    silent = dict(collected.absent)
    for rank, dump in collected.dumps.items():
        text = shortened(dump, frames.MAX_DUMP_BYTES)
        if text is None:
            silent[rank] = f"it has more than {frames.MAX_DUMP_BYTES} bytes"
        else:
            yield frames.dump_frame(rank, text)
    for rank, why in silent.items():
        yield frames.frame(frames.CONTROL, messages.encode("silent", rank=rank, why=why[:1000]))
    yield frames.frame(frames.CONTROL, messages.encode("collected", round=number))
