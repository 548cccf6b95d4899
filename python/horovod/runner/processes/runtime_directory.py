"""The private directory of one job, where its ranks meet.

Used by `launchers.local`. The directory is 0700 below `horovodrun-<uid>`. Launcher and keeper hold a lock on it for as
long as one of them lives; a later launcher sweeps what is not locked any more. It holds no secret.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from horovod._dumps import paths
from horovod._net.identity import user
from horovod.runner.processes import keeper

_PREFIX: Final = "launch-"
_KERNEL: Final = "kernel"  # file with the id of the kernel that the launcher runs under
_YOUNG_S: Final = 60.0  # a directory without that file may be one that is being made just now
_ATTEMPTS: Final = 100  # to make a directory in a home that others take along just then
_RANK_BYTES: Final = 16384  # room for the small files of one rank
_NOT_OURS: Final = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)  # gone with another job, or other jobs are in it
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_log: Final = logging.getLogger("horovod.runner")


class JobDirectory(NamedTuple):
    """The directory and its lock.

    Attributes:
        path: of the directory.
        lock_fd: holds the lock; it ends when the last process that has inherited this descriptor is gone.
    """

    path: Path
    lock_fd: int

    def remove(self) -> None:
        """Removes the directory, and the user's one when it was the last."""
        keeper.remove(str(self.path))  # mostly gone: the keeper removes it too
        try:
            self.path.parent.rmdir()
        except OSError as error:
            if error.errno not in _NOT_OURS:
                _log.warning("%s cannot be removed: %s", self.path.parent, error.strerror)
        if os.path.lexists(self.path):
            _log.warning("%s cannot be removed; remove it by hand.", self.path)
        os.close(self.lock_fd)


def create(ranks: int = 1) -> JobDirectory:
    """Makes the directory of a new job of so many ranks, and sweeps those of dead launchers beside it.

    Raises:
        OSError: there is no place where this user may make a private directory; one reason per place.
    """
    reasons = []
    for base in _bases():
        try:
            return _create_below(base, ranks)
        except OSError as error:
            reasons.append(f"{base}: {error.strerror or error}")
    raise OSError(
        f"The job has no private directory for its ranks to meet in ({'; '.join(reasons)}). Set TMPDIR to a directory "
        "that you own and that has room."
    )


def listening() -> list[Path]:
    """The sockets in the directories of this user's jobs where launchers can be asked for the status."""
    homes = dict.fromkeys(home for base in _bases() for home in _homes(base))
    return sorted(place for home in homes for place in home.glob(f"{_PREFIX}*/{paths.STATUS}"))


def sweep(home: Path) -> list[Path]:
    """Removes the directories below `home` whose launcher is dead, and returns them. A directory whose launcher may
    be alive is left alone.
    """
    swept = []
    for directory in home.glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):  # somebody else was faster
            fd = os.open(directory, _FLAGS)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _remove_abandoned(directory):
                    swept.append(directory)
            finally:
                os.close(fd)
    return swept


def _create_below(base: Path, ranks: int) -> JobDirectory:
    for _ in range(_ATTEMPTS):
        # The last other job of this user may just have ended, and taken the home along.
        with contextlib.suppress(FileNotFoundError):
            return _try_below(base, ranks)
    return _try_below(base, ranks)


def _try_below(base: Path, ranks: int) -> JobDirectory:
    home = _private_home(base)
    try:
        free = os.statvfs(home)
        if free.f_blocks and free.f_bavail * free.f_frsize < ranks * _RANK_BYTES:
            raise OSError(f"{free.f_bavail * free.f_frsize} bytes are free, {ranks * _RANK_BYTES} are needed")
        for each in _homes(base):
            sweep(each)
        return _locked_directory(home)
    except OSError:
        with contextlib.suppress(OSError):
            home.rmdir()  # unless other jobs of this user are in it
        raise


def _locked_directory(home: Path) -> JobDirectory:
    while True:
        path = _new_directory(home, _PREFIX)
        fd = os.open(path, _FLAGS)
        job = JobDirectory(path, fd)
        try:
            # Shared: a launcher that sweeps at this very moment holds it for an instant, and finds the directory young.
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.fstat(fd).st_nlink:
                (path / _KERNEL).write_text(_kernel())
                return job
        except BaseException:
            job.remove()
            raise
        os.close(fd)


def _remove_abandoned(directory: Path) -> bool:
    """Nobody holds the lock: its launcher is dead, unless it runs under another kernel, whose locks do not show here
    (virtual machines that share a file system).
    """
    try:
        kernel = (directory / _KERNEL).read_text()
    except FileNotFoundError:
        if time.time() - directory.stat().st_mtime <= _YOUNG_S:
            return False
        directory.rmdir()  # unless something is in it: then it was finished, by a version that knows no such file
        return True
    if not kernel or kernel != _kernel():
        return False
    keeper.remove(str(directory))
    return True


def _new_directory(parent: Path, prefix: str) -> Path:
    """One for this user alone, under a name that nobody can guess."""
    while True:
        path = parent / (prefix + os.urandom(8).hex())
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            path.chmod(0o700)  # whatever the umask has taken away
            return path


def _kernel() -> str:
    """What tells this run of this kernel from every other; empty when it cannot be read."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _bases() -> Iterator[Path]:
    for place in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"):
        if os.path.isabs(place):  # a relative one would be looked for elsewhere by the keeper and the ranks
            yield Path(place)
    # Not before it is needed: it writes a file, and raises when there is no place for one.
    import tempfile

    with contextlib.suppress(FileNotFoundError):
        yield Path(tempfile.gettempdir())


def _homes(base: Path) -> Iterator[Path]:
    """The private directories of this user below `base`."""
    name = f"horovodrun-{os.getuid()}"
    for home in (base / name, *base.glob(f"{name}-*")):
        with contextlib.suppress(OSError):
            if not _why_not_private(home):
                yield home


def _private_home(base: Path) -> Path:
    home = base / f"horovodrun-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o700)
        home.chmod(0o700)  # whatever the umask has taken away
    # Somebody else may have made it first, in a directory that all may write: then it is not ours to use.
    why_not = _why_not_private(home)
    if not why_not:
        return home
    other = _new_directory(base, home.name + "-")
    _log.warning("%s %s; the job meets in %s instead.", home, why_not, other)
    return other


def _why_not_private(path: Path) -> str:
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        return f"is not a directory (owner: {user(found.st_uid)})"
    if found.st_uid != os.getuid():
        return f"belongs to {user(found.st_uid)}"
    if found.st_mode & 0o077:
        return f"has mode {stat.S_IMODE(found.st_mode):04o}, so that other users can enter it"
    return "" if os.access(path, os.W_OK | os.X_OK) else "cannot be written"
