"""The private directory of one job, where its ranks meet and a shipped function and its results lie.

Used by `launchers.local`. The directory is 0700 below `horovodrun-<uid>` and records its owner, so that a later
launcher can sweep what a killed one and its keeper could not remove. It holds no secret.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Final, Optional

_PREFIX: Final = "launch-"
_OWNER: Final = "owner"
_YOUNG_S: Final = 60.0  # a directory without an owner file may be one that is being made just now


def create() -> Path:
    """Makes the directory of a new job, and sweeps those of dead launchers beside it.

    Raises:
        OSError: there is no place where this user may make a private directory.
    """
    for base in _bases():
        home = _private_home(base)
        if home is None:
            continue
        sweep(home)
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=home))
        _write_owner(directory)
        return directory
    tried = ", ".join(str(base) for base in _bases())
    raise OSError(f"No private directory for the job can be made below {tried}. Set TMPDIR to a directory you own.")


def remove(directory: Path) -> None:
    """Removes a job's directory, and the user's one when it was the last."""
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()  # unless other jobs of this user are in it


def sweep(home: Path) -> list[Path]:
    """Removes the directories below `home` whose launcher is dead, and returns them."""
    swept = []
    for directory in home.glob(_PREFIX + "*"):
        if _is_stale(directory):
            shutil.rmtree(directory, ignore_errors=True)
            swept.append(directory)
    return swept


def owner_text(pid: int) -> str:
    """What identifies a process for as long as the machine runs: boot, PID namespace, pid and start time."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        started = file.read().rpartition(")")[2].split()[19]
    return f"{_boot_id()} {os.readlink('/proc/self/ns/pid')} {pid} {started}"


def _write_owner(directory: Path) -> None:
    descriptor = os.open(directory / _OWNER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(owner_text(os.getpid()))


def _is_stale(directory: Path) -> bool:
    try:
        words = (directory / _OWNER).read_text().split()
        if len(words) != 4:
            return time.time() - directory.stat().st_mtime > _YOUNG_S
    except FileNotFoundError:
        try:
            return time.time() - directory.stat().st_mtime > _YOUNG_S
        except OSError:
            return False
    except OSError:
        return False
    if words[0] != _boot_id():
        return True
    if words[1] != os.readlink("/proc/self/ns/pid"):
        return False  # a launcher in another container, whose processes we cannot see
    try:
        return owner_text(int(words[2])).split() != words
    except (OSError, ValueError, IndexError):
        return True


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown-boot"


def _bases() -> list[Path]:
    places = [os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm", tempfile.gettempdir()]
    return [Path(place) for place in places if place]


def _private_home(base: Path) -> Optional[Path]:
    home = base / f"horovodrun-{os.getuid()}"
    try:
        home.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return None
    # Somebody else may have made it first, in a directory that all may write: then it is not ours to use.
    found = os.lstat(home)
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return home if private and os.access(home, os.W_OK | os.X_OK) else None
