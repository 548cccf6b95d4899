"""Agents that a process of this machine leads to: on this machine the agent itself, elsewhere ssh.

What `launchers` take where nothing else is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import Settings
from horovod.runner.job import Job
from horovod.runner.loop import Loop
from horovod.runner.machines.this_host import is_local
from horovod.runner.remote.ways import host_keys, ssh_command
from horovod.runner.remote.ways.diagnosis import Facts
from horovod.runner.remote.ways.transport import Connection, Ending, Transport

_SAID_BYTES: Final = 1 << 14
_LEAST_PATIENCE_S: Final = 1.0


class ProcessConnection(Connection):
    """A process that leads to an agent.

    Args:
        loop: that hears its stderr.
        words: the command.
        environ: its variables.
        facts: what is known of it already.
        cwd: its folder.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, loop: Loop, words: Sequence[str], environ: Mapping[str, str], facts: Facts, cwd: str = "/"
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._said = b""
        # A session of its own: Ctrl-C is for the launcher, which tells the ranks by itself.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        with self._process.stdin as writer, self._process.stdout as reader:
            self.fds = (os.dup(reader.fileno()), os.dup(writer.fileno()))
        self._stderr = self._process.stderr
        os.set_blocking(self._stderr.fileno(), False)
        loop.watch(self._stderr.fileno(), self._hear)

    def ending(self, patience_s: Optional[float]) -> Ending:
        code = None if patience_s is None else self._wait(patience_s)
        self._hear()
        facts = dataclasses.replace(self._facts, code=code, said=self._said.decode("utf-8", "replace"))
        return Ending(facts.why(), facts.may_come, facts.last_line)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def close(self, patience_s: float) -> None:
        if not self._stderr.closed:
            self._loop.watch(self._stderr.fileno(), None)
            self._stderr.close()
        self._wait(patience_s)

    def _wait(self, patience_s: float) -> Optional[int]:
        """The process's exit code; None when it had to be killed."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def _hear(self) -> None:
        if self._stderr.closed:
            return
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self._stderr.fileno(), _SAID_BYTES)
        if not data:
            self._loop.watch(self._stderr.fileno(), None)
        self._said = (self._said + data)[-_SAID_BYTES:]


class HereOrSsh(Transport):
    """This machine's agent directly, those of other hosts over ssh, or what stands for it.

    Args:
        job: whose hosts are reached.
    """

    def __init__(self, job: Job) -> None:
        self._environ = job.environ
        self._settings = job.settings

    def why_not(self, hosts: Iterable[str]) -> str:
        names = [name for name in dict.fromkeys(hosts) if not is_local(name)]
        program = ssh_command.missing(self._environ) if names else ""
        if not program:
            return ""
        named = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        remedy = "install OpenSSH's client (the package openssh-client or openssh-clients)"
        if self._environ.get(ssh_command.RSH_AGENT):
            remedy = f"{ssh_command.RSH_AGENT} asks for it"
        return (
            f"{named} {'is' if len(names) == 1 else 'are'} not this machine, and there is no program {program!r} here "
            f"to reach other hosts with; {remedy}."
        )

    def remarks(self) -> list[str]:
        identity = self._settings.ssh_identity_file
        if identity and not os.path.exists(identity):
            raise InvalidArgumentError(f"--ssh-identity-file {identity} does not exist.")
        return host_keys.warnings(self._environ, (ssh_command.RSH_AGENT, ssh_command.RSH_ARGS))

    def described(self, host: str) -> str:
        return shlex.join(self._words(host))

    def open(self, host: str, loop: Loop) -> ProcessConnection:
        settings = self._settings
        facts = Facts(host, sys.executable, settings.ssh_port, None, "", patience_s(settings))
        return ProcessConnection(loop, self._words(host), own_environ() if is_local(host) else os.environ, facts)

    def _words(self, host: str) -> list[str]:
        settings = self._settings
        if is_local(host):
            return ssh_command.own_agent(sys.executable, settings.link_timeout_s)
        shell = ssh_command.shell(
            self._environ,
            settings.ssh_port,
            settings.ssh_identity_file,
            patience_s(settings),
            settings.link_timeout_s,
        )
        return shell.command(host, ssh_command.remote_agent(sys.executable, _python_path(), settings.link_timeout_s))


def own_environ() -> dict[str, str]:
    """The variables of an agent on this machine."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(_python_path())}


def python_path(named: Sequence[str]) -> list[str]:
    """These folders, and this package's at last unless Python finds it by itself."""
    home = str(Path(__file__).resolve().parents[4])
    installed = {os.path.realpath(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
    return [*named] if home in installed or home in named else [*named, home]


def patience_s(settings: Settings) -> float:
    """What a host has for each step of its start."""
    return max(_LEAST_PATIENCE_S, float(settings.start_timeout_s))


def _python_path() -> list[str]:
    """Where packages are found here besides the interpreter's own places, this one at last."""
    return python_path(
        [os.path.abspath(place) for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    )
