"""Where the ranks of a host meet when no launcher has made a place for them: a private directory of this user.

All ranks of a job choose the same one, without having spoken to one another: the one in which the job meets already,
else the first that can be used. Used by meeting and bootstrap.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Optional

from horovod._net import identity
from horovod._net.failures import MeetingError, NetError, ResourceError

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOM_BYTES = 65536  # for the small files of the ranks
_MAKING_S = 1.0  # between making a directory and giving it its mode lie microseconds
_RETRY_S = 0.0005
_TAKEN_ALONG_S = 5.0  # as long may jobs that end take along what is made here; each does it once
_SHORTAGES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

log = logging.getLogger("horovod")


def candidate_bases(env: Optional[dict[str, str]] = None) -> Iterable[tuple[str, str]]:
    """(existing parent, private sub-directory) pairs, in order of preference."""
    variables = os.environ if env is None else env
    uid = os.geteuid()
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        yield runtime, "horovod"
    yield "/dev/shm", f"horovod-{uid}"
    import tempfile  # brings 4 ms of other modules along, and nobody needs it where there is /dev/shm

    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:
        return  # every place that it knows is read-only
    yield temporary, f"horovod-{uid}"


def check_private(fd: int, path: str) -> None:
    """Refuses a directory that others could have prepared or can enter.

    Raises:
        MeetingError: foreign owner, or a mode other than 0700.
    """
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise MeetingError(
            f"{path} belongs to {identity.user(status.st_uid)}, not to uid {os.geteuid()}; remove it, or set "
            "XDG_RUNTIME_DIR to a private directory."
        )
    if stat.S_IMODE(status.st_mode) & 0o777 != 0o700:
        raise MeetingError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}; it must be 0700, so that no other user can enter."
        )


def open_private(path: str, make: bool) -> int:
    """Opens (and makes) a private directory; never follows a link.

    Raises:
        MeetingError: it is not a directory, or not private.
        OSError: it cannot be made or opened.
    """
    if make:
        _make_private(path)
    deadline = time.monotonic() + _MAKING_S
    while _is_being_made(path) and time.monotonic() < deadline:
        time.sleep(_RETRY_S)
    try:
        fd = os.open(path, _DIRECTORY_FLAGS)
    except NotADirectoryError as error:
        raise MeetingError(f"{path} is not a directory (or is a link to one); remove it.") from error
    try:
        check_private(fd, path)
    except MeetingError:
        os.close(fd)
        raise
    return fd


def _make_private(path: str) -> None:
    """Makes a private directory unless it is there; a later process may have removed it again."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        with contextlib.suppress(FileNotFoundError):
            os.chmod(path, 0o700)  # whatever the umask has taken away


def _is_being_made(path: str) -> bool:
    """Whether another rank has made this directory, but not given it its mode."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return ours and status.st_mode & 0o77 == 0 and status.st_mode & 0o700 != 0o700


def choose_base(meeting: str, env: Optional[dict[str, str]] = None) -> str:
    """Makes and returns the private directory of this user under which a job meets. All ranks of a job choose the same.

    Args:
        meeting: name of the job's sub-directory.
        env: the environment; default os.environ.

    Raises:
        MeetingError: no place is usable; one reason per place.
        ResourceError: the same, and a place is full or read-only.
    """
    bases = list(_bases(meeting, env))
    for base in bases:
        with contextlib.suppress(OSError, MeetingError):
            os.close(open_private(os.path.join(base, meeting), make=False))
            return base
    reasons: list[str] = []
    kind: type[NetError] = MeetingError
    for base in bases:
        try:
            _require_usable(base)
        except (OSError, MeetingError) as error:
            reasons.append(f"{base}: {error.strerror if isinstance(error, OSError) else error}")
            if isinstance(error, OSError) and error.errno in _SHORTAGES:
                kind = ResourceError
        else:
            if len(reasons) >= len(bases) / 2:  # each has another user's hand in it, or a link
                log.warning("The ranks meet in %s. %s", base, "; ".join(reasons))
            return base
    raise kind(
        f"The ranks of this host have no private directory to meet in. {'; '.join(reasons)}. Set XDG_RUNTIME_DIR or "
        "TMPDIR to a directory that you own and that has room."
    )


def _bases(meeting: str, env: Optional[dict[str, str]]) -> Iterator[str]:
    candidates = list(candidate_bases(env))
    for parent, name in candidates:
        yield os.path.join(parent, name)
    # Another user can take the usual names in a directory that all may write, for good. This one is known only once
    # the job runs.
    for parent, name in candidates:
        yield os.path.join(parent, f"{name}-{meeting}")


def _require_usable(base: str) -> None:
    deadline = time.monotonic() + _TAKEN_ALONG_S
    while True:
        _make_private(base)  # no such file: there is no such parent, now and later
        try:
            return _require_room(base)
        except FileNotFoundError:
            # Another job of this user has ended just now, and has taken the directory along.
            if time.monotonic() > deadline:
                raise


def _require_room(base: str) -> None:
    fd = open_private(base, make=False)
    try:
        free = os.fstatvfs(fd)
    finally:
        os.close(fd)
    if free.f_blocks and free.f_bavail * free.f_frsize < _ROOM_BYTES:
        with contextlib.suppress(OSError):
            os.rmdir(base)  # unless another job meets in it
        text = f"{free.f_bavail * free.f_frsize} bytes are free, {_ROOM_BYTES} are needed"
        raise OSError(errno.ENOSPC, text)
