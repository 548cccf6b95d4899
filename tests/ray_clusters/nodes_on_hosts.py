"""A Ray cluster whose nodes are made by `ray start` on hosts that are namespaces of this machine, see `hosts.network`.

Programs run on the first host, as a user's do, and say by lines what they see. Takes root.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from cluster import ROOT
from hosts.network import Host, Network, Running, why_absent

PORT = 6379
_PYTHONPATH = os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent)])
_BEGIN = """
import os, sys, time
import ray, programs, elastic_programs
from horovod.ray import RayExecutor

ray.init(log_to_driver=False)
settings = RayExecutor.create_settings(timeout_s=60, placement_group_timeout_s=60)
say = lambda word, value: print(word, repr(value), flush=True)
"""


class Program:
    """A program on the first host.

    Args:
        network: of the hosts.
        text: what follows `_BEGIN`.
        words: its arguments.
    """

    def __init__(self, network: Network, text: str, *words: object) -> None:
        command = [sys.executable, "-c", _BEGIN + text, *map(str, words)]
        self._running: Running = network[1].start(command, environ(network), stdin=-1)
        self.lines: list[str] = []

    def heard(self, word: str, on_step: Callable[[dict[str, Any]], None] = lambda _: None) -> Any:
        """What it says under this word."""
        stdout = self._running.entered.stdout
        assert stdout is not None
        for line in iter(stdout.readline, b""):
            said, _, value = line.decode().partition(" ")
            self.lines.append(line.decode())
            if said == "step":
                on_step(ast.literal_eval(value))
            if said == word:
                return ast.literal_eval(value)
        raise AssertionError(f"it has not said {word}: {self.lines} {self._running.end().stderr.decode()[-4000:]}")

    def go_on(self) -> None:
        """It has waited for a line."""
        stdin = self._running.entered.stdin
        assert stdin is not None
        stdin.write(b"\n")
        stdin.flush()

    def end(self) -> str:
        """Waits for its good end; what it has written to stderr."""
        done = self._running.end(60.0)
        assert done.returncode == 0, done
        return done.stderr.decode()

    def kill(self) -> None:
        """Ends it, unless it has ended."""
        self._running.kill()


def environ(network: Network) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD", "OMP_", "SSH_"))}
    return {**kept, "PYTHONPATH": _PYTHONPATH, "RAY_ADDRESS": f"{network[1].address}:{PORT}"}


def start_node(network: Network, host: Host) -> None:
    """`ray start`, with all its files in a file system of the host's own."""
    first = ("--head", f"--port={PORT}", "--temp-dir=/run/ray", "--include-dashboard=false")
    where = first if host is network[1] else (f"--address={network[1].address}:{PORT}",)
    ray = [sys.executable, str(Path(sys.executable).with_name("ray")), "start", f"--node-ip-address={host.address}"]
    command = [*ray, *where, "--num-cpus=2", "--object-store-memory=100000000", "--disable-usage-stats"]
    done = host.start(command, environ(network)).end(120.0)
    assert done.returncode == 0, done


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Three hosts, each with a node of two CPUs; all processes end with them."""
    reason = why_absent()
    if reason is not None:
        pytest.skip(reason)
    made = Network(3)
    try:
        begin_s = time.monotonic()
        for host in made.hosts:
            start_node(made, host)
        print(f"three nodes after {time.monotonic() - begin_s:.0f} s")
        yield made
    finally:
        made.close()


@pytest.fixture
def run(network: Network) -> Iterator[Callable[..., Program]]:
    """Begins a program; no actor of it is left on any host."""
    begun: list[Program] = []

    def run(text: str, *words: object) -> Program:
        begun.append(Program(network, text, *words))
        return begun[-1]

    yield run
    for program in begun:
        program.kill()
    deadline_s = time.monotonic() + 20
    while left := [line for host in network.hosts for line in host.processes().values() if is_ours(line)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)


_RAYS = ("IDLE", "DashboardAgent", "RuntimeEnvAgent", "_AutoscalingCoordinatorActor")  # live as long as the cluster


def is_ours(line: str) -> bool:
    """The command line is of an actor that a program has made."""
    return line.startswith("ray::") and line[5:].split(" ")[0] not in _RAYS
