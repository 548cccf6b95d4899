"""Fixtures of the tests over several hosts: three hosts for a whole module, and a launcher that starts on the first."""

from __future__ import annotations

import os
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .network import Network, Running, why_absent

ROOT = Path(__file__).resolve().parents[2]
_SETTLE_S = 8.0  # what is killed by an agent that has lost its launcher is given time to end well


def python(code: str) -> list[str]:
    """The command that runs this code."""
    return [sys.executable, "-I", "-S", "-c", textwrap.dedent(code)]


@dataclass
class Ended:
    """A job that is over.

    Attributes:
        code: exit code of horovodrun.
        out, err: lines, those of the ranks in any order.
        seconds: from its start to its end.
    """

    code: int
    out: list[str]
    err: list[str]
    seconds: float

    @property
    def troubles(self) -> list[str]:
        """The lines of the launcher but for those that it prints while a busy machine starts slowly."""
        slow_start = r"\d+/\d+ (hosts answer|ranks? up); waiting for |all \d+ ranks are up"
        return [line for line in self.err if not re.search(slow_start, line)]


class Hosts:
    """Three hosts, and horovodrun on the first of them."""

    def __init__(self, network: Network) -> None:
        self.network = network
        dropped = ("HOROVOD", "OMP_", "SSH_", "XDG_")
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        self.environ["PYTHONPATH"] = str(ROOT / "python")

    def start(self, options: str, command: Sequence[str], **more: Any) -> Running:
        """Starts horovodrun with these options."""
        words = [more.pop("executable", sys.executable), "-m", "horovod.runner", *options.split(), *command]
        return self._start(words, **more)

    def start_program(self, words: Sequence[str], **more: Any) -> Running:
        """Starts a program that starts jobs itself, or a launcher of others."""
        return self._start(words, **more)

    def _start(self, words: Sequence[str], **more: Any) -> Running:
        environ = {**self.environ, **more.pop("environ", {})}
        return self.network[more.pop("on", 1)].start(words, environ, **more)

    def __call__(self, options: str, command: Sequence[str], **more: Any) -> Ended:
        """Runs a job to its end, and checks that nothing is left of it on any host."""
        began_s = time.monotonic()
        patience_s = more.pop("patience_s", 60.0)
        return self.end(self.start(options, command, **more), began_s, patience_s)

    def program(self, words: Sequence[str], **more: Any) -> Ended:
        """Runs a program that starts jobs itself, and checks that nothing is left of it on any host."""
        began_s = time.monotonic()
        return self.end(self._start(words, **more), began_s)

    def end(self, running: Running, began_s: float = 0.0, patience_s: float = 60.0) -> Ended:
        """Waits for the end of a job, and checks that nothing is left of it on any host."""
        ended = self.ended(running, began_s, patience_s)
        self.is_clean()
        return ended

    def ended(self, running: Running, began_s: float = 0.0, patience_s: float = 60.0) -> Ended:
        """Waits for the end of a job; others may go on."""
        done = running.end(patience_s)
        seconds = time.monotonic() - began_s
        out, err = (text.decode().splitlines() for text in (done.stdout, done.stderr))
        return Ended(done.returncode, out, err, seconds)

    def is_clean(self) -> None:
        """No process and no file is left on any host; fails after a while."""
        deadline = time.monotonic() + _SETTLE_S
        while left := self._left():
            assert time.monotonic() < deadline, left
            time.sleep(0.02)

    def _left(self) -> dict[str, Any]:
        found = {host.name: (host.processes(), host.files()) for host in self.network.hosts}
        return {name: left for name, left in found.items() if any(left)}


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Three hosts."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(reason)
    made = Network(3)
    yield made
    made.close()


@pytest.fixture
def hosts(network: Network) -> Iterator[Hosts]:
    """A launcher on the first of three hosts; nothing is left on them in the end."""
    made = Hosts(network)
    yield made
    made.is_clean()
