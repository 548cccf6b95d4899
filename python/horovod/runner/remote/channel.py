"""One connection between launcher and agent: frames both ways, nothing that blocks, and proof that both live.

Used by `link` on the launcher's side and by `agent` on the other. Each side says something at least once a second; who
has heard nothing for `SILENCE_S` is alone: the link is cut, or the other side stands still. A side that has stood still
itself (stopped, or a machine that slept) has heard nothing for that reason, and judges anew. The other side may also
have said that it will be silent.
"""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Callable, Final, Optional

from horovod._net.failures import ProtocolError
from horovod.runner.remote import frames
from horovod.runner.remote.loop import TICK_S, Loop

SILENCE_S: Final = 3.5  # a tick later it is noticed, so within 5 s
_STOOD_STILL_S: Final = 2 * TICK_S  # between two ticks
_READ_BYTES: Final = 1 << 18
_GATHERED_BYTES: Final = 1 << 16


class Channel:
    """See the head of the file.

    Args:
        loop: that watches both descriptors.
        read_fd, write_fd: of the connection; the channel closes them.
        limits: of the frames that come; see `frames`.
        on_frame: gets kind and body of each.
        on_end: is called once, with the reason in words, when nothing more can come or go. Empty: the other side has
            closed.
        marked: what comes begins with the mark of an agent.
    """

    def __init__(
        self,
        loop: Loop,
        fds: tuple[int, int],
        limits: Mapping[int, int],
        on_frame: Callable[[int, bytes], None],
        on_end: Callable[[str], None],
        marked: bool = False,
    ) -> None:
        self._loop = loop
        self._read_fd, self._write_fd = fds
        for fd in fds:
            os.set_blocking(fd, False)
        self._reader = frames.Reader(limits, marked)
        self._on_frame = on_frame
        self._on_end = on_end
        self._queue: collections.deque[bytes] = collections.deque()
        self._sources: collections.deque[Iterator[bytes]] = collections.deque()
        # Nobody knows how long a login takes: an agent is alive once it has said its first word.
        self._heard_s: Optional[float] = None if marked else time.monotonic()
        self.open = True
        self.patient = False  # the other side has said that it will be silent
        self._ticked_s = time.monotonic()
        self._writing = threading.Lock()  # for a beat of another thread
        self._cut_frame = False  # the first of the queue has left in part
        loop.watch(self._read_fd, self._read)

    @property
    def waiting(self) -> bool:
        """Something is still to be sent."""
        return bool(self._queue or self._sources)

    @property
    def queued_bytes(self) -> int:
        """What is to be sent, without sources."""
        return sum(map(len, self._queue))

    def send(self, data: bytes) -> None:
        """Queues a frame, behind everything that was queued before."""
        if self.open:
            if self._sources:
                self._sources.append(iter((data,)))
            else:
                self._queue.append(data)
            self._loop.watch(self._write_fd, None, self._write)

    def send_all(self, source: Iterator[bytes]) -> None:
        """Queues frames that are made when there is room for them."""
        if self.open:
            self._sources.append(source)
            self._loop.watch(self._write_fd, None, self._write)

    def tick(self) -> None:
        """To be called once a second: tells the other side that this one lives, and ends when it is silent."""
        if not self.open:
            return
        now_s, last_s = time.monotonic(), self._ticked_s
        self._ticked_s = now_s
        if self._heard_s is not None and (self.patient or now_s - last_s > _STOOD_STILL_S):
            self._heard_s = now_s
        if self._heard_s is not None and now_s - self._heard_s > SILENCE_S:
            self._end(f"nothing was heard from it for {SILENCE_S:g} s")
        elif not self.waiting:
            self.send(frames.frame(frames.BEAT))

    def beat(self) -> None:
        """Says at once that this side lives, unless something is on its way anyway. Any thread."""
        with self._writing, contextlib.suppress(OSError):  # full, or gone: others will notice
            if self.open and not self._cut_frame:
                os.write(self._write_fd, frames.frame(frames.BEAT))  # so few bytes go as a whole, or not at all

    def close(self) -> None:
        """Ends the connection, without a call of `on_end`."""
        with self._writing:
            if self.open:
                self.open = False
                for fd in (self._read_fd, self._write_fd):
                    self._loop.watch(fd, None)
                    os.close(fd)

    def _end(self, reason: str) -> None:
        if self.open:
            self.close()
            self._on_end(reason)

    def _read(self) -> None:
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error.strerror))
            return
        if not data:
            self._end("")
            return
        now_s = time.monotonic()
        self._heard_s = now_s if self._heard_s is not None else None
        try:
            for kind, body in self._reader.feed(data):
                self._heard_s = now_s
                self._on_frame(kind, body)
                if not self.open:
                    return
        except ProtocolError as error:
            self._end(str(error))

    def _write(self) -> None:
        self._refill()
        if not self._queue:
            self._loop.watch(self._write_fd, None)
            return
        try:
            with self._writing:
                written = os.write(self._write_fd, self._queue[0])
                self._cut_frame = written < len(self._queue[0])
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error.strerror))
            return
        if self._cut_frame:
            self._queue[0] = self._queue[0][written:]
        else:
            self._queue.popleft()
        if not self.waiting:
            self._loop.watch(self._write_fd, None)

    def _refill(self) -> None:
        """Joins small frames, and takes the next of a source once the queue is empty."""
        while not self._queue and self._sources:
            data = next(self._sources[0], None)
            if data is None:
                self._sources.popleft()
            else:
                self._queue.append(data)
        if len(self._queue) > 1 and len(self._queue[0]) < _GATHERED_BYTES:
            joined = bytearray()
            while self._queue and len(joined) < _GATHERED_BYTES:
                joined += self._queue.popleft()
            self._queue.appendleft(bytes(joined))
