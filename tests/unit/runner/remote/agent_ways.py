"""The ways to an agent that the launcher has, each with an agent at its end: for tests of what all of them promise."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from horovod._net.failures import ConnectError
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.machines.hosts import Slot
from horovod.runner.remote.ways.by_process import HereOrSsh
from horovod.runner.remote.ways.by_tcp import CallingAgents
from horovod.runner.remote.ways.calling_agent import AGENT, LAUNCHER, credentials_of, serve
from horovod.runner.remote.ways.transport import Transport

SECRET = bytes(range(32))
PATIENCE_S = 30.0
LINK_TIMEOUT_S = 5.0


class Agent(threading.Thread):
    """Calls the launcher and serves one host.

    Attributes:
        words: what `serve` has returned.
        unwanted: it has returned, and that was None.
        why: the error that it has raised instead.
    """

    def __init__(
        self,
        host: str,
        port: int,
        secret: bytes = SECRET,
        patience_s: float = PATIENCE_S,
        link_timeout_s: float = LINK_TIMEOUT_S,
    ) -> None:
        super().__init__(daemon=True)
        self._where = (credentials_of(secret, "job", AGENT), host, ("127.0.0.1", port), patience_s, link_timeout_s)
        self.words: Optional[str] = None
        self.unwanted = False
        self.why: Optional[ConnectError] = None
        self.start()

    def run(self) -> None:
        try:
            self.words = serve(*self._where)
            self.unwanted = self.words is None
        except ConnectError as error:
            self.why = error

    def ended(self) -> Agent:
        self.join(PATIENCE_S)
        assert not self.is_alive()
        return self


class Reached(NamedTuple):
    """A host that can be reached.

    Attributes:
        transport: by which.
        host: its name.
        silence: from here on nobody is reached at the host that it returns.
    """

    transport: Transport
    host: str
    silence: Callable[[], str]


def job_on(host: str, *command: str, ranks: int = 2, **given: Any) -> Job:
    """A job of these ranks, all on this host."""
    values = {"num_proc": ranks, "hosts": f"{host}:{ranks}", "start_timeout_s": PATIENCE_S, **given}
    environ = dict(os.environ)
    return make_job(effective_settings(values, "flag", environ), command or ("true",), environ, "/")


def slots_on(host: str, ranks: int = 2) -> tuple[Slot, ...]:
    return job_on(host, ranks=ranks).slots


def launchers_side(hosts: int = 2, link_timeout_s: float = LINK_TIMEOUT_S) -> CallingAgents:
    return CallingAgents(credentials_of(SECRET, "job", LAUNCHER), "127.0.0.1", link_timeout_s, hosts)


@contextmanager
def this_machine(place: Path) -> Iterator[Reached]:
    del place
    transport = HereOrSsh(job_on("localhost"))

    def silence() -> str:
        transport._words = lambda host: ["sleep", "60"]  # type: ignore[method-assign]
        return "localhost"

    yield Reached(transport, "localhost", silence)


@contextmanager
def over_ssh(place: Path) -> Iterator[Reached]:
    """What stands for ssh runs the line here."""
    program = place / "rsh"
    program.write_text('#!/bin/sh\nshift\nexec sh -c "$1"\n')
    program.chmod(0o755)
    job = job_on("node1")
    transport = HereOrSsh(job._replace(environ={**job.environ, "OMPI_MCA_plm_rsh_agent": str(program)}))

    def silence() -> str:
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        return "node1"

    yield Reached(transport, "node1", silence)


@contextmanager
def by_tcp(place: Path) -> Iterator[Reached]:
    del place
    transport = launchers_side()
    agent = Agent("node1", transport.port)
    try:
        # An agent that finds nobody there calls again and again, until its time is over.
        while "node1" not in transport.words():
            time.sleep(0.01)
        yield Reached(transport, "node1", lambda: "node2")
    finally:
        transport.close()
        agent.ended()


WAYS = {"this machine": this_machine, "ssh": over_ssh, "tcp": by_tcp}
