"""Agents that call the launcher by TCP, for programs that have a process on each host already. A `transport.Transport`.

A program makes one, has `calling_agent.serve` run on each host, and gives it to a launcher of `launchers`; nothing else
listens here. A thread lets in those that prove the job's secret and carries their streams, so that a launcher that is
busy still gives signs of life.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import os
import socket
import threading
from typing import Callable, Final, Optional

from horovod._net import resources
from horovod._net.failures import ProtocolError
from horovod._net.handshake import proofs
from horovod._net.handshake.boards import forked
from horovod._net.handshake.frames import auth, tcp_options
from horovod._net.handshake.frames.codes import FrameCodes
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import FORMS, ROLE_AGENT, AnyMessage, Post, Ready
from horovod._net.handshake.lobby import Lobby
from horovod._net.handshake.roll_call import listen
from horovod._net.handshake.strangers import log
from horovod._net.handshake.visits import Visit
from horovod.runner.loop import Loop
from horovod.runner.machines.addresses import of_peer
from horovod.runner.remote.ways.calling_agent import HOST
from horovod.runner.remote.ways.relay import Relay
from horovod.runner.remote.ways.transport import Connection, Ending, Transport

_CUT_S: Final = 5.0
_STRANGERS: Final = 64  # at a time, besides the hosts
_OF_HOST: Final = 6  # descriptors: its connection, one more when it comes again, and four ends of pipes
_OTHER_DESCRIPTORS: Final = 384
_NAMES: Final = frozenset({FORMS[Post].kind})


class Call(Connection):
    """The launcher waits for the agent of a host, or has it.

    Args:
        host: its name.
        port: where it is to call.
        ring: wakes the thread.
    """

    def __init__(self, host: str, port: int, ring: Callable[[], None]) -> None:
        self.host = host
        self.relay: Optional[Relay] = None
        self.link: Optional[Link] = None
        self.unwanted = False
        self._port = port
        self._ring = ring
        self._how = ""
        self._over = threading.Event()
        self.peer = ""
        # Not one socket: what is unread when it is closed would make an error of its end.
        (read_fd, out_fd), (in_fd, write_fd) = os.pipe(), os.pipe()
        self.fds = (read_fd, write_fd)
        self._inner = (in_fd, out_fd)

    def ending(self, patience_s: Optional[float]) -> Ending:
        if patience_s is not None:
            self._over.wait(patience_s)
        if self.relay is None:
            return Ending(f"its agent has not called this machine on port {self._port} in time (--start-timeout)", True)
        why = f": {self._how}" if self._how else ""
        return Ending(f"its agent has called, but has not introduced itself{why}", False, self._how)

    def ended(self) -> bool:
        return self._over.is_set()

    def close(self, patience_s: float) -> None:
        if self.relay is None or not self._over.wait(patience_s):
            self.unwanted = True
            self._ring()
            self._over.wait(_CUT_S)

    def join(self, loop: Loop, link: Link, peer: str, over: Callable[[], None]) -> None:
        """The agent has come: from this address, and `over` is called at its end. Of the thread, as what follows."""
        self.peer = peer
        self.link = link

        def note(how: str) -> None:
            link.close()
            over()
            self._how = how
            self._over.set()

        self.relay = Relay(loop, link, self._inner, note)

    def cut(self) -> None:
        """Ends it at once."""
        if self.relay is not None:
            self.relay.close("it was not wanted any more")
        elif not self._over.is_set():
            for fd in self._inner:
                os.close(fd)
        self._over.set()


class CallingAgents(Transport):
    """See the head of the file.

    Args:
        credentials: of the launcher, by `calling_agent.credentials_of`.
        address: of this host, in numbers, where agents call.
        link_timeout_s: see `vigil`; the same as that of the agents.
        hosts: how many of them there can be: so many agents may call in one moment.
        at_home: see `Transport`.
        near: the address of hosts that call by this machine's loopback; empty: they are called as the job names them.

    Attributes:
        port: where they call.

    Raises:
        ConnectError: nobody can listen there.
    """

    private = False  # all of it carries codes, but can be read

    def __init__(
        self,
        credentials: auth.Credentials,
        address: str,
        link_timeout_s: float,
        hosts: int,
        at_home: bool = False,
        near: str = "",
    ) -> None:
        tcp_options.believe_silence_of(link_timeout_s)
        resources.make_room_for(_OF_HOST * hosts + _OTHER_DESCRIPTORS)
        listener = listen(address)
        self.port = int(listener.getsockname()[1])
        self.at_home = at_home
        self._near = near
        self._pid = os.getpid()
        self._expects = True
        self._calls: list[Call] = []  # of the thread, as the links are
        self._new: collections.deque[Call] = collections.deque()
        self._unnamed: set[Link] = set()
        self._come: dict[str, Link] = {}
        self._words: dict[str, str] = {}
        self._lobby = Lobby(credentials, "the launcher", listener, self._take, most=hosts + _STRANGERS)
        self._loop = Loop()
        self._loop.watch(self._lobby.watch.fileno(), self._on_strangers)
        self._bell, self._rung = socket.socketpair()
        self._bell.setblocking(False)
        self._open = True
        self._loop.watch(self._rung.fileno(), self._on_bell)
        self._loop.tick(self._on_strangers)
        self._thread = threading.Thread(target=self._serve, name="horovod-agents", daemon=True)
        forked.closed.add(self)
        self._thread.start()

    def described(self, host: str) -> str:
        return f"the program of {host} that calls this machine on port {self.port}"

    def open(self, host: str, loop: Loop) -> Call:
        del loop
        if not self._open or not self._thread.is_alive():
            raise OSError(errno.EBADF, "agents cannot call here any more")
        call = Call(host, self.port, self._ring)
        self._new.append(call)
        self._ring()
        return call

    def words(self) -> dict[str, str]:
        """The hosts that have called and are connected, with what the program of each has said of it (`serve`)."""
        return dict(self._words)

    def expect_no_more(self) -> None:
        """All have called, so nobody listens any more. Soon, and not at once."""
        self._expects = False
        self._ring()

    def close(self) -> None:
        """Nobody listens any more, and agents that have come lose their launcher. In a forked child, which has no such
        thread: its copies would keep the connections open, and the loop is shared with the parent."""
        self._open = False
        if os.getpid() == self._pid:
            self._ring()
            self._thread.join()
            return
        self._lobby.close()
        links = (*self._unnamed, *self._come.values(), *(call.link for call in self._calls if call.link))
        for sock in (*(link.sock for link in links), self._bell, self._rung):
            sock.close()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            self._bell.send(b".")

    # ---- the thread

    def _serve(self) -> None:
        try:
            while self._open:
                self._loop.turn()
        except Exception:  # nobody waits for this thread: the launcher then sees that its agents are gone
            log.exception("agents can be reached no more")
        for call in [*self._calls, *self._new]:
            call.cut()
        for link in (*self._unnamed, *self._come.values()):
            link.close()
        self._lobby.close()
        self._loop.close()
        for sock in (self._bell, self._rung):
            sock.close()

    def _on_bell(self) -> None:
        self._rung.recv(4096)
        if not self._expects:
            self._lobby.leave()
        while self._new:
            self._calls.append(self._new.popleft())
        for call in self._calls:
            if call.unwanted:
                call.cut()
        self._calls = [call for call in self._calls if not call.ended()]
        self._join()

    def _on_strangers(self) -> None:
        self._lobby.serve(0.0)

    def _take(self, visit: Visit, message: AnyMessage) -> bool:
        key = proofs.take(visit, message, lambda hello: hello.role == ROLE_AGENT)
        if key is not None:
            self._welcome(self._lobby.visits.hand_over(visit), key)
        return key is not None

    def _welcome(self, link: Link, key: bytes) -> None:
        link.protect(FrameCodes(key, connector=False))
        link.reader.allowed = _NAMES
        self._unnamed.add(link)
        self._loop.watch(link.fileno(), lambda: self._hear_agent(link))
        self._hear_agent(link)

    def _hear_agent(self, link: Link) -> None:
        """An agent says of which host it is, and then nothing until it is wanted."""
        try:
            for message in link.receive():
                text = message.text.removeprefix(HOST) if isinstance(message, Post) else ""
                host, _, words = text.partition("\n")
                self._unnamed.discard(link)
                self._forget(self._come.get(host))  # it comes again: its connection had broken
                self._come[host] = link
                self._words = {**self._words, host: words}
                link.reader.allowed = frozenset()
        except (LinkClosedError, ProtocolError):
            self._forget(link)
        self._join()

    def _forget(self, link: Optional[Link]) -> None:
        if link is not None:
            self._unnamed.discard(link)
            for host in [host for host, other in self._come.items() if other is link]:
                del self._come[host]
                self._gone(host)
            self._loop.watch(link.fileno(), None)
            link.close()

    def _join(self) -> None:
        """Brings together who is called and who has come."""
        for call in self._calls:
            link = self._come.get(call.host)
            if link is None or call.relay is not None or call.ended():
                continue
            try:
                link.send(Ready())
            except LinkClosedError:
                self._forget(link)
            else:
                del self._come[call.host]
                peer = of_peer(link.sock) or self._near
                call.join(self._loop, link, peer, functools.partial(self._gone, call.host))

    def _gone(self, host: str) -> None:
        """It is not connected any more."""
        self._words = {name: words for name, words in self._words.items() if name != host}
