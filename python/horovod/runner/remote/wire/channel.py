"""One connection between launcher and agent: frames both ways, without blocking, and signs of life.

Used by `link` on the launcher's side and by `agent` on the other. Each side says something over the stream once a
second, and more often by datagrams where those pass (`pulses`). A side that hears nothing for long enough (`vigil`)
ends the connection: the link is cut, or the other side stands still.
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
from horovod.runner.loop import Loop
from horovod.runner.remote.wire import frames
from horovod.runner.remote.wire.pulses import Pulses
from horovod.runner.remote.wire.vigil import Vigil

_READ_BYTES: Final = 1 << 18
_GATHERED_BYTES: Final = 1 << 16


class Channel:
    """See the head of the file.

    Args:
        loop: that watches both descriptors.
        fds: of the connection, to read from and to write to; the channel closes them.
        limits: of the frames that come; see `frames`.
        on_frame: gets kind and body of each.
        on_end: is called once, with the reason in words, when nothing more can come or go. Empty: the other side has
            closed.
        vigil: watches over the other side. A vigil that has not begun is the launcher's: an agent is expected, which
            sends a mark before its first frame.

    Attributes:
        vigil: as given.
        open: something can come or go.
        silent: the connection has ended because nothing was heard.
    """

    def __init__(
        self,
        loop: Loop,
        fds: tuple[int, int],
        limits: Mapping[int, int],
        on_frame: Callable[[int, bytes], None],
        on_end: Callable[[str], None],
        vigil: Vigil,
    ) -> None:
        self._loop = loop
        self._read_fd, self._write_fd = fds
        for fd in fds:
            os.set_blocking(fd, False)
        self._reader = frames.Reader(limits, marked=not vigil.begun)
        self._on_frame = on_frame
        self._on_end = on_end
        self._queue: collections.deque[bytes] = collections.deque()
        self._sources: collections.deque[Iterator[bytes]] = collections.deque()
        self.vigil = vigil
        self._pulses: Optional[Pulses] = None
        self.open = True
        self.silent = False
        self._writing = threading.Lock()  # for a beat of another thread
        self._cut_frame = False  # the first of the queue has left in part
        loop.watch(self._read_fd, self._read)

    @property
    def waiting(self) -> bool:
        """True if something is still to be sent."""
        return bool(self._queue or self._sources)

    @property
    def queued_bytes(self) -> int:
        """The size of what is to be sent, without sources."""
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
        """Gives the other side a sign of life. To be called once a second."""
        if self.open and not self.waiting:
            self.send(frames.frame(frames.BEAT))

    def look(self) -> None:
        """Ends the connection if the other side is silent. To be called every `vigil.LOOK_S`."""
        if not self.open:
            return
        self._hear_pulses()
        silent_s = self.vigil.believed_s(time.monotonic())
        if silent_s is not None:
            self.silent = True
            self._end(f"nothing was heard from it for {silent_s:.1f} s")

    def pulse(self, key: bytes, address: str, port: int, asks: bool) -> int:
        """Exchanges datagrams, too, from here on.

        Args:
            key, address, port, asks: see `Pulses`; an empty address is none.

        Returns:
            The port of this side; 0: there can be no datagrams, and the stream counts alone.
        """
        if not (self.open and address):
            return 0
        try:
            self._pulses = Pulses(key, address, port, asks)
        except OSError:
            return 0  # this host has another address for others, or only ssh reaches it
        self._loop.watch(self._pulses.fileno(), self._hear_pulses)
        if asks:
            self.ask()  # before anything can happen to a job that starts now
        return self._pulses.port

    def ask(self) -> None:
        """Asks by datagram whether the other side lives. Any thread."""
        with self._writing:
            if self._pulses is not None:
                self._pulses.ask()

    def beat(self) -> None:
        """Gives a sign of life at once, unless something is on its way anyway. Any thread."""
        with self._writing, contextlib.suppress(OSError):  # full, or gone: reading or the next write will notice
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
            if self._pulses is not None:
                self._loop.watch(self._pulses.fileno(), None)
                self._pulses.close()
                self._pulses = None

    def _end(self, reason: str) -> None:
        if self.open:
            self.close()
            self._on_end(reason)

    def _hear_pulses(self) -> None:
        if self._pulses is not None and self._pulses.hear():
            self.vigil.heard_datagram(time.monotonic())

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
        self.vigil.begin(now_s)
        try:
            for kind, body in self._reader.feed(data):
                self.vigil.heard(now_s)
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
