"""Imports a framework, then forks a rank for every client.

`python -m jobs.warm.server FRAMEWORK LISTENER OWNER FOLDER`: the listener is the number of an open socket, the owner
the process with which the server ends; it removes the folder then. A rank ends when its client or the server does.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from .client import COLD
from .frameworks import FRAMEWORKS, read_by_imports

_LARGEST_REQUEST = 200_000
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>


@dataclass(frozen=True)
class Rank:
    """What a forked process is to become.

    Attributes:
        words: of its command, without the interpreter.
        folder: where it works.
        environ: its variables.
        imported: further ones, which importing the framework has set.
        streams: its standard input, output and error.
    """

    words: Sequence[str]
    folder: str
    environ: Mapping[str, str]
    imported: Mapping[str, str]
    streams: Sequence[int]

    def run(self) -> None:
        """Becomes the program, as if it had been started by itself."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update({**self.environ, **self.imported})
        tempfile.tempdir = None  # else TMPDIR has no effect when an import has asked for the folder
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()  # else all ranks have the server's
        first, *rest = self.words
        if first == "-m":
            sys.argv, sys.path[0] = rest, self.folder
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
            return
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        if first == "-c":
            sys.argv, sys.path[0], text, name = ["-c", *rest[1:]], "", rest[0], "<string>"
        else:
            sys.argv, sys.path[0], name = list(self.words), os.path.dirname(os.path.realpath(first)), first
            main.__file__ = first
            with open(first, encoding="utf-8") as file:
                text = file.read()
        exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


class Server:
    """Forks ranks and tells their clients how they ended.

    Args:
        listener: where clients connect.
        owner: a descriptor that can be read when the process has ended that the server must not outlive.
        folder: to be removed then.
        before: the variables before anything was imported.
    """

    def __init__(self, listener: socket.socket, owner: int, folder: str, before: Mapping[str, str]) -> None:
        self._listener, self._folder = listener, folder
        self._ranks: set[int] = set()
        self._relevant = read_by_imports(before)
        self._imported = {name: value for name, value in os.environ.items() if before.get(name) != value}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(owner, selectors.EVENT_READ, self._owner_ended)

    def serve(self) -> Rank:
        """Works until the test suite ends; returns in a forked rank, with nothing of the server open."""
        while True:
            for key, _ in self._selector.select():
                if rank := key.data():
                    return rank

    def _owner_ended(self) -> None:
        for pid in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # with what they have started
        shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(0)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self._selector.register(client, selectors.EVENT_READ, lambda: self._request_received(client))

    def _request_received(self, client: socket.socket) -> Optional[Rank]:
        """A client's request: the rank to become in the forked process, nothing in the server."""
        self._selector.unregister(client)
        message, streams = b"", []
        with contextlib.suppress(ConnectionError):  # it has gone already
            message, streams, _, _ = socket.recv_fds(client, _LARGEST_REQUEST, 3)
        if not message:
            client.close()
            return None
        rank = Rank(imported=self._imported, streams=streams, **json.loads(message))
        first = rank.words[0] if rank.words else "-"
        option = first.startswith("-") and first not in ("-c", "-m")  # of Python itself
        if option or read_by_imports(rank.environ) != self._relevant:
            with contextlib.suppress(ConnectionError):
                client.send(COLD)
            client.close()
        else:
            server = os.getpid()
            pid = os.fork()
            # By both, so that it holds when either goes on. A group, not a session of its own: crowded ranks of several
            # sessions do not give way to one another.
            os.setpgid(pid, 0)
            if pid == 0:
                _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != server:
                    os._exit(1)
                self._close()
                client.close()
                return rank
            self._ranks.add(pid)
            ended = os.pidfd_open(pid)
            self._selector.register(client, selectors.EVENT_READ, lambda: self._message_received(client, pid))
            self._selector.register(ended, selectors.EVENT_READ, lambda: self._ended(client, pid, ended))
        for stream in streams:
            os.close(stream)
        return None

    def _message_received(self, client: socket.socket, pid: int) -> None:
        """A signal for the rank, or the end of its client, which ends the rank and all that it has started."""
        if client.fileno() < 0:
            return  # the rank has ended in the same round
        try:
            number = client.recv(16)
        except ConnectionError:
            number = b""
        if number:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, int(number))
            return
        self._selector.unregister(client)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    def _ended(self, client: socket.socket, pid: int, pidfd: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._ranks.discard(pid)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(client)
        with contextlib.suppress(ConnectionError):  # it has gone itself
            client.send(b"%d" % os.waitstatus_to_exitcode(status))
        client.close()

    def _close(self) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._selector.close()


def main(framework: str, listener: str, owner: str, folder: str) -> None:
    """See the head of the file."""
    try:
        pidfd, before = os.pidfd_open(int(owner)), dict(os.environ)
    except ProcessLookupError:  # it has ended already
        shutil.rmtree(folder, ignore_errors=True)
        return
    for name in FRAMEWORKS[framework].modules:
        importlib.import_module(name)
    # `serve` returns before the rank runs, so a rank's traceback does not show the server's loop.
    Server(socket.socket(fileno=int(listener)), pidfd, folder, before).serve().run()


if __name__ == "__main__":
    main(*sys.argv[1:])
