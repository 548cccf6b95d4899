"""The words that start an agent on a host. Pure.

Used by `by_process`, `calling_agent`, `launchers.jsrun` and `doctor`. What is secret is never among them: they can be
read by everybody on both hosts.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.remote.wire.vigil import limit_s

RSH_AGENT: Final = "OMPI_MCA_plm_rsh_agent"
RSH_ARGS: Final = "OMPI_MCA_plm_rsh_args"
_AGENT: Final = "horovod.runner.remote.agent"
_LONGEST_S: Final = 86400.0  # ssh refuses what fits into no int
_VERSION: Final = "import horovod; print(horovod.__version__)"
# The user's configuration decides about all else. Nothing may ask a question that nobody sees, forward a port that 64
# hosts would fight for, or print a greeting where an error is looked for.
_OPTIONS: Final = (
    *("-o", "BatchMode=yes"),
    *("-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none", "-o", "LogLevel=ERROR"),
    *("-T", "-x"),
)


@dataclass(frozen=True)
class Shell:
    """What runs a command on another host.

    Attributes:
        words: the program and its options.
        is_ssh: it understands ssh's options; otherwise it is called as `words HOST COMMAND`.
    """

    words: tuple[str, ...]
    is_ssh: bool

    def command(self, hostname: str, line: str) -> list[str]:
        """The words that run this shell line there."""
        return [*self.words, *(("--",) if self.is_ssh else ()), hostname, line]


def shell(
    environ: Mapping[str, str], port: Optional[int], identity: Optional[str], patience_s: float, link_timeout_s: float
) -> Shell:
    """What runs commands on other hosts: Open MPI's settings, as platforms of containers have them, else ssh. Options
    that they give ssh add to ours, which ssh reads first; a port or a key that the user gives wins over theirs. ssh
    gives a silent connection up only after the launcher and the agent have done so.

    Raises:
        InvalidArgumentError: a quotation in one of the settings does not end.
    """
    words = _replacement(environ)
    if not _is_ssh(words):
        return Shell(words, False)
    beats = math.ceil(limit_s(link_timeout_s, by_datagram=False)) + 1
    options = [*_OPTIONS, "-o", "ServerAliveInterval=1", "-o", f"ServerAliveCountMax={beats}"]
    options += ["-o", f"ConnectTimeout={int(min(max(1.0, patience_s), _LONGEST_S))}"]
    if port is not None:
        options += ["-p", str(port)]
    if identity is not None:
        options += ["-i", identity]
    options += _words(RSH_ARGS, environ.get(RSH_ARGS, ""))
    return Shell((*words, *options), True)


def missing(environ: Mapping[str, str]) -> str:
    """The program that would be needed and is not there; empty when it is. Raises as `shell` does."""
    program = _replacement(environ)[0]
    return "" if shutil.which(program, path=environ.get("PATH")) else program


def own_agent(executable: str, link_timeout_s: float) -> list[str]:
    """The words that start an agent on this machine."""
    return [executable, "-m", _AGENT, f"{link_timeout_s:g}"]


def remote_agent(executable: str, python_path: Sequence[str], link_timeout_s: float) -> str:
    """The line, for whatever shell the user has there, that starts an agent.

    Args:
        executable: Python, at the same place on all hosts.
        python_path: folders to find packages in, as PYTHONPATH names them here.
        link_timeout_s: see `vigil`; an agent must know it before it gets the job.
    """
    return _line(own_agent(executable, link_timeout_s), python_path)


def version_probe(executable: str, python_path: Sequence[str]) -> str:
    """The line that prints Horovod's version there; arguments as above."""
    return _line([executable, "-c", _VERSION], python_path)


def _line(words: Sequence[str], python_path: Sequence[str]) -> str:
    before = ["env", f"PYTHONPATH={os.pathsep.join(python_path)}"] if python_path else []
    # From the root: a home folder may hold files that have the names of modules.
    return f"cd / && exec {shlex.join([*before, *words])}"


def _replacement(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Open MPI's setting, of which the first alternative counts ("ssh : rsh"); else ssh."""
    return tuple(_words(RSH_AGENT, environ.get(RSH_AGENT, "").partition(":")[0])) or ("ssh",)


def _words(variable: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{variable} cannot be split into words: {error}. Received: {text!r}.") from error


def _is_ssh(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]) == "ssh"
