"""A second process that a probe asks to do things: two ranks on one GPU.

Used by `probe_nccl_two`, `probe_staging`; also the program of that process:

    peer.py MODULE REPLIES

makes `MODULE.Rank()`, reads calls from its standard input, one JSON a line, and writes the results to the descriptor
REPLIES. What libraries print goes to a file that is shown when something fails.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Optional


class PeerError(RuntimeError):
    """A peer could not do what it was asked, died, or was silent for too long."""


class Peer:
    """A process with the rank of a module.

    Args:
        module: whose `Rank` answers.
        environment: variables on top of ours.
        descriptors: that it inherits under their numbers.
    """

    def __init__(self, module: str, environment: dict[str, str], descriptors: Sequence[int] = ()) -> None:
        replies, ours = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-B", os.path.abspath(__file__), module, str(ours)],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            pass_fds=(ours, *descriptors),
            env={**os.environ, **environment},
        )
        os.close(ours)
        self._replies = os.fdopen(replies, "rb", buffering=0)
        self._rest = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # Killed, not asked: a collective that waits for a dead member would never end.
        self._process.kill()
        self._process.wait()
        self._replies.close()
        self._said.close()

    def start(self, name: str, *arguments: Any) -> None:
        """Calls a method of the rank; `result` has what it returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        self._process.stdin.flush()

    def result(self, timeout_s: float = 60) -> Any:
        """Waits for the call that was started."""
        while b"\n" not in self._rest:
            if not select.select([self._replies], [], [], timeout_s)[0]:
                raise PeerError(f"silent for {timeout_s} s. It said: {self.said()}")
            data = self._replies.read(65536)
            if not data:
                raise PeerError(f"ended with {self._process.wait()}. It said: {self.said()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        kind, value = json.loads(line)
        if kind == "error":
            raise PeerError(value)
        return value

    def ask(self, name: str, *arguments: Any, timeout_s: float = 60) -> Any:
        """`start` and `result`."""
        self.start(name, *arguments)
        return self.result(timeout_s)

    def said(self) -> str:
        """What the process and its libraries printed."""
        return os.pread(self._said.fileno(), 1 << 16, 0).decode(errors="replace").strip()


def both(peers: Sequence[Peer], name: str, *arguments: Any, timeout_s: float = 60) -> list[Any]:
    """Asks all at the same time."""
    for peer in peers:
        peer.start(name, *arguments)
    return [peer.result(timeout_s) for peer in peers]


def _serve(module: str, descriptor: int) -> None:
    with os.fdopen(descriptor, "w", buffering=1) as replies:
        rank = importlib.import_module(module).Rank()
        for line in sys.stdin:
            name, arguments = json.loads(line)
            try:
                answer = ["value", getattr(rank, name)(*arguments)]
            except Exception:  # whatever it was, the asker must hear it
                answer = ["error", traceback.format_exc(limit=-3)]
            replies.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
