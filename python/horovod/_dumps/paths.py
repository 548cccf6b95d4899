"""Where dumps and counters lie and how the launcher learns of dumps: names in a directory, and two kinds of pipes.

In the job's private directory `horovodrun` makes the pipe `dumps`, into which a rank writes its number once its dump
is there; each rank makes the pipe `ask.N`, into which `horovodrun` writes to have one. Pipes, because nobody has to
look for news then, and a pipe without a reader shows that its rank is gone. Every rank imports this at its start, so it
imports little.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Final, Optional

NEWS: Final = "dumps"
STATUS: Final = "status"  # where the launcher is asked how its job is
_ASK: Final = b"?"


def dump_file(directory: Path, rank: int) -> Path:
    """The dump of a rank; JSON."""
    return directory / f"dump.rank.{rank}.json"


def stacks_file(directory: Path, rank: int, pid: int) -> Path:
    """Where `faulthandler` writes the stacks of a rank when it gets the signal, whatever Python does."""
    return directory / f"dump.rank.{rank}.{pid}.stacks"


def find_stacks_file(directory: Path, rank: int) -> Optional[tuple[Path, int]]:
    """The same with the process that will write there on the signal; None: the rank does not take it."""
    for path in directory.glob(f"dump.rank.{rank}.*.stacks"):
        pid = path.name.split(".")[-2]
        if pid.isdecimal():
            return path, int(pid)
    return None


def ask_pipe(directory: Path, rank: int) -> Path:
    """Where a rank is asked for its dump."""
    return directory / f"ask.{rank}"


def counters_file(directory: Path, number: int) -> Path:
    """The counters of the rank that was started under this number; their layout is in counters.h."""
    return directory / f"counters.{number}"


def open_stacks_file(path: Path) -> int:
    """A new file that only this user reads, to be appended to.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)  # of an earlier session of this process
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)


def signal_number(name: str) -> int:
    """The number of the signal that HOROVOD_DUMP_SIGNAL names; 0: none."""
    return 0 if name == "none" else int(getattr(signal, name.upper()))


def make_directory(directory: Path) -> None:
    """Makes it for this user alone, unless it is there.

    Raises:
        OSError: it cannot be made.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_own_pipe(path: Path) -> int:
    """Makes a pipe and opens it for reading. Never at its end: this process holds its other end too.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)


def ask(directory: Path, rank: int) -> bool:
    """Asks a rank for its dump. False: nobody listens there."""
    return _write_to_pipe(ask_pipe(directory, rank), _ASK)


def has_left(directory: Path, rank: int) -> bool:
    """A rank could be asked once, and listens no more: it has shut down, or is gone."""
    try:
        os.close(os.open(ask_pipe(directory, rank), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
    except OSError as error:
        return error.errno == errno.ENXIO  # the pipe is there without a reader
    return False


def tell(directory: Path, rank: int) -> bool:
    """Tells the launcher that the dump of a rank is there. False: there is no launcher that wants to know."""
    return _write_to_pipe(directory / NEWS, f"{rank}\n".encode())


def _write_to_pipe(path: Path, data: bytes) -> bool:
    fd: Optional[int] = None
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        os.write(fd, data)
    except BlockingIOError:
        return True  # it is full: enough has been said
    except OSError:
        return False
    finally:
        if fd is not None:
            os.close(fd)
    return True
