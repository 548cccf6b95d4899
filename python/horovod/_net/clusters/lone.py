"""Why a process is alone, though somebody meant it to be one of several: its variables say so, or have been taken away.

Used by `horovod._core.life.engine_start` where no launcher has given this process a rank; `runner.processes.strays`
counts the marks. A job of one process is what most of these are, so that is only remarked upon.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Optional

from horovod._net import identity

__all__ = ["MARK", "Keeper", "keeper_above", "keeper_of", "leave_mark", "numbers_of_nodes"]

MARK: Final = "stray."
_KEEPER: Final = b"/horovod/runner/processes/keeper.py"
_DIRECTORY: Final = re.compile(r"/.*/launch-[0-9a-f]+")
_MOST_ANCESTORS: Final = 64


class Keeper(NamedTuple):
    """The process of a launcher that has started the ranks of this host.

    Attributes:
        pid: of it.
        directory: of its job.
    """

    pid: int
    directory: str


def numbers_of_nodes(environ: Mapping[str, str]) -> str:
    """A remark where variables number nodes or pods, and no launcher numbers the ranks; else an empty text."""
    size, rank = (environ.get(name, "").strip() for name in ("WORLD_SIZE", "RANK"))
    if not (size.isdecimal() and int(size) > 1 and rank.isdecimal() and "MASTER_ADDR" in environ):
        return ""
    return (
        f"WORLD_SIZE={size}, RANK={rank} and MASTER_ADDR are set, but LOCAL_RANK is not: a platform such as PyTorchJob "
        "has numbered its pods or nodes with them, and no launcher has given this process a rank. It trains alone. "
        "Start the program with torchrun, horovodrun or mpirun there."
    )


def keeper_above() -> Optional[Keeper]:
    """The nearest keeper among the ancestors of this process; None: it was not started by a launcher of ours, as far
    as /proc tells."""
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        place = identity.parent_and_start(pid)
        if place is None or pid <= 1:
            return None
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            directory = keeper_of(file.read())
            if directory:
                return Keeper(pid, directory)
        pid = place[0]
    return None


def keeper_of(command_line: bytes) -> str:
    """The directory of the job whose keeper has this command line, as /proc shows it; empty: it is not a keeper."""
    words = command_line.rstrip(b"\0").split(b"\0")
    script = next((number for number, word in enumerate(words) if word.endswith(_KEEPER)), len(words))
    directory = os.fsdecode(words[-1])
    return directory if len(words) == script + 4 and _DIRECTORY.fullmatch(directory) else ""


def leave_mark(keeper: Keeper) -> None:
    """Lets the launcher know that this process has come without its variables. It may not be able to: the job may be
    another user's."""
    with contextlib.suppress(OSError):
        folder = os.open(keeper.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(folder).st_uid == os.stat(f"/proc/{keeper.pid}").st_uid:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(f"{MARK}{os.getpid()}", flags, 0o600, dir_fd=folder))
        finally:
            os.close(folder)
