"""Ranks that start warm: forked from a process that has imported their framework already.

Importing PyTorch takes 1 to 2 s of a processor, TensorFlow 5 to 9, and nearly every job starts two ranks or more. Here
a server imports a framework once for all processes of the test suite; `interpreter` gives the words that stand for
`sys.executable` in a job's command. The launcher starts a small client, the server forks the rank, and the client
passes on streams, signals and exit code. Where a rank's environment would have changed the import, it starts cold; a
script that sets such a variable itself (`KERAS_BACKEND`) must be started cold.

Not for jobs that test starting, ending or leaving something behind: a warm rank is no descendant of its launcher. Ranks
of a server share one hash seed, so an order that depends on hashes is the same in all of them; cold ranks must show
that.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from ..variables import environment
from .client import brief
from .frameworks import FRAMEWORKS

VARIABLE = "HVD_TEST_WARM"
_CLIENT = Path(__file__).with_name("client.py")


def own() -> None:
    """Makes this process the owner of the servers: they end with it. In a child of an owner nothing changes."""
    os.environ.setdefault(VARIABLE, str(os.getpid()))


def interpreter(framework: str) -> list[str]:
    """The words that start Python in a rank of this framework (see `frameworks`). With HVD_TEST_COLD it starts cold."""
    if framework not in FRAMEWORKS:
        raise ValueError(f"There is no framework {framework!r} for warm ranks; choose from {', '.join(FRAMEWORKS)}.")
    if os.environ.get("HVD_TEST_COLD"):
        return [sys.executable]
    own()
    folder = Path(tempfile.gettempdir(), f"hvdwarm-{os.environ[VARIABLE]}")
    folder.mkdir(mode=0o700, exist_ok=True)
    address = folder / framework.replace(" ", "-")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _answers(address):
            address.unlink(missing_ok=True)  # left by a server that was killed, and the process number came again
            _serve(framework, address)
    return [sys.executable, "-I", "-S", str(_CLIENT), str(address)]


def _answers(address: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            with brief(address) as path:
                probe.connect(path)
        except OSError:
            return False
    return True


def program(folder: Path, framework: str) -> Path:
    """Writes a program `python` into the folder that starts ranks of this framework warm; for a job's PATH."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {shlex.join(interpreter(framework))} "$@"\n')
    path.chmod(0o755)
    return path


def _serve(framework: str, address: Path) -> None:
    """Starts a server; clients may knock at once."""
    log = address.with_name(f"{address.name}.log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, log.open("w") as words:
        with brief(address) as path:
            listener.bind(path)
        listener.listen(64)
        arguments = (framework, str(listener.fileno()), os.environ[VARIABLE], str(address.parent))
        subprocess.Popen(
            [sys.executable, "-m", "jobs.warm.server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            pass_fds=[listener.fileno()],
            env={**environment(), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **FRAMEWORKS[framework].environ},
            start_new_session=True,
        )
