"""The private directory where the ranks of one job and epoch meet on a host, and its guarantees.

::

    <base>/<hash of job, epoch>/     mode 0700, owned by this user
        secret                       32 bytes, mode 0600; only where the launcher gave none
        c<rank>                      claim: the pid, locked (flock) as long as that process is connecting
        r<rank>                      the Unix socket where it listens
        why                          what made the first rank give up, for those it had no connection with yet

The directory's own flock is a short mutex: join and leave happen under it, so that "the first comer makes the secret"
and "the last one removes the directory" have no races. Locks die with their process, so what a crash leaves behind is
recognised and swept by the next job. A second, lasting claim is a name in the abstract socket namespace, which
vanishes with the process: it refuses a subprocess that inherited the rank's variables, also long after the directory
is gone. Used by bootstrap and connect; it neither connects nor authenticates.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterable
from typing import Optional

from horovod._net import auth
from horovod._net.failures import MeetingError
from horovod._net.placement import Placement

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_RETRY_S = 0.0005
_CLAIM_S = 0.05  # somebody who only looks whether a claim is live holds it for microseconds
_SECRET_NAME = "secret"
_WHY_NAME = "why"
_WHY_BYTES = 4096
_BACKLOG = 4096

# Names bound in the abstract namespace, held until this process ends: (job, rank) -> claims in order. The pid tells a
# process from its forked child, which inherits this table but not the rank. Guarded by _lasting_lock.
_lasting_claims: dict[tuple[str, int], list[tuple[int, str, socket.socket]]] = {}
_lasting_lock = threading.Lock()
_KEPT_CLAIMS = 2  # the first, which a subprocess would claim, and the present one


def candidate_bases(env: Optional[dict[str, str]] = None) -> Iterable[tuple[str, str]]:
    """(existing parent, private sub-directory) pairs, in order of preference."""
    variables = os.environ if env is None else env
    uid = os.geteuid()
    runtime = variables.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        yield runtime, "horovod"
    yield "/dev/shm", f"horovod-{uid}"
    yield tempfile.gettempdir(), f"horovod-{uid}"


def check_private(fd: int, path: str) -> None:
    """Refuses a directory that others could have prepared or can enter.

    Raises:
        MeetingError: foreign owner, or a mode other than 0700.
    """
    status = os.fstat(fd)
    if status.st_uid != os.geteuid():
        raise MeetingError(
            f"{path} belongs to uid {status.st_uid}, not to uid {os.geteuid()}; remove it, or set XDG_RUNTIME_DIR to "
            "a private directory."
        )
    if stat.S_IMODE(status.st_mode) & 0o777 != 0o700:
        raise MeetingError(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}; it must be 0700, so that no other user can enter."
        )


def _open_private(path: str, make: bool) -> int:
    """Opens (and makes) a private directory; never follows a link."""
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
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


def choose_base(env: Optional[dict[str, str]] = None) -> str:
    """Makes and returns the private directory of this user under which jobs meet. All ranks of a job choose the same.

    Raises:
        MeetingError: no place is usable; one reason per place.
    """
    reasons: list[str] = []
    for parent, name in candidate_bases(env):
        path = os.path.join(parent, name)
        try:
            os.close(_open_private(path, make=True))
            return path
        except (OSError, MeetingError) as error:
            reasons.append(f"{path}: {error}")
    raise MeetingError("The ranks of this host have no private directory to meet in. " + "; ".join(reasons))


def _lock(fd: int, deadline: float) -> None:
    """Takes the directory's mutex.

    Raises:
        MeetingError: another process (stopped?) holds it beyond the deadline.
    """
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise MeetingError(
                    "The meeting directory stayed locked by another process until the start timeout."
                ) from None
            time.sleep(_LOCK_RETRY_S)


def _is_locked(directory: int, name: str) -> bool:
    """True when a live process holds this claim."""
    try:
        fd = os.open(name, _FILE_FLAGS, dir_fd=directory)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look at once do not mislead one another
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _claims(directory: int) -> list[str]:
    return [name for name in os.listdir(directory) if name.startswith("c")]


def _remove_contents(directory: int) -> None:
    for name in os.listdir(directory):
        try:
            os.unlink(name, dir_fd=directory)
        except (FileNotFoundError, IsADirectoryError):
            continue


def sweep(base: str) -> int:
    """Removes the meeting directories under `base` in which no live process takes part. Returns how many."""
    swept = 0
    for name in os.listdir(base):
        path = os.path.join(base, name)
        try:
            fd = os.open(path, _DIRECTORY_FLAGS)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_uid == os.geteuid() and not any(_is_locked(fd, claim) for claim in _claims(fd)):
                _remove_contents(fd)
                os.rmdir(path)
                swept += 1
        except OSError:
            continue  # in use, or somebody else was faster
        finally:
            os.close(fd)
    return swept


def take_lasting_claim(placement: Placement, epoch: int) -> None:
    """Claims this rank for the life of this process; a second call of the same process is fine.

    Raises:
        MeetingError: another process has the rank.
    """
    text = f"{os.geteuid()}/{placement.job_key}/{epoch}/{placement.rank}"
    name = "\0horovod-" + hashlib.sha256(text.encode()).hexdigest()[:40]
    with _lasting_lock:
        held = _lasting_claims.setdefault((placement.job_key, placement.rank), [])
        if any(pid == os.getpid() and known == name for pid, known, _ in held):
            return
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            holder.bind(name)
        except OSError as error:
            holder.close()
            if error.errno != errno.EADDRINUSE:
                raise MeetingError(f"Rank {placement.rank} cannot be claimed: {error.strerror}.") from error
            raise MeetingError(_claimed_twice(placement, "another process")) from None
        held.append((os.getpid(), name, holder))
        if len(held) > _KEPT_CLAIMS:
            held.pop(1)[2].close()


def _claimed_twice(placement: Placement, holder: str) -> str:
    return (
        f"Rank {placement.rank} of this {placement.launcher} job is already taken by {holder}. A process that a rank "
        "starts inherits its variables but cannot "
        "join as the same rank: let it call neither init() nor import a script that does, or remove the launcher's "
        "variables from its environment."
    )


class Meeting:
    """One rank's membership of the meeting directory; between `join` and `leave`."""

    def __init__(self, placement: Placement, epoch: int, base: str, *, own_base: bool) -> None:
        """
        Args:
            placement, epoch: which job and rank.
            base: the directory under which to meet.
            own_base: True when `choose_base` made it: others' leftovers are swept and it is removed when empty.
        """
        self.secret = b""
        self.listener: Optional[socket.socket] = None
        self._placement = placement
        self._base = base
        self._own_base = own_base
        digest = hashlib.sha256(f"{placement.job_key}/{epoch}".encode()).hexdigest()[:24]
        self.path = os.path.join(base, digest)
        self._directory = -1
        self._claim = -1

    def join(self, deadline: float) -> None:
        """Enters the directory (making it if this rank is the first), claims the rank, gets the secret and listens.

        Raises:
            MeetingError: unsafe directory, rank claimed twice, no secret.
        """
        while not self._enter(deadline):
            pass
        try:
            if not any(_is_locked(self._directory, claim) for claim in _claims(self._directory)):
                _remove_contents(self._directory)  # all that an attempt which crashed as a whole left behind
            self._take_claim()
            self.secret = self._placement.secret or self._first_comers_secret()
            self._listen()
        except BaseException:
            self._unlock()
            self.leave(deadline)
            raise
        self._unlock()

    def _enter(self, deadline: float) -> bool:
        """Opens and locks the directory; False when it was removed at that very moment."""
        try:
            os.close(_open_private(self._base, make=self._own_base))
            if self._own_base:
                sweep(self._base)
            directory = _open_private(self.path, make=True)
        except FileNotFoundError:
            if not self._own_base and not os.path.exists(self._base):
                raise MeetingError(f"The launcher's directory {self._base} is gone: the launcher has ended.") from None
            return False
        try:
            _lock(directory, deadline)
            still_there = os.fstat(directory).st_nlink > 0
        except BaseException:
            os.close(directory)
            raise
        if still_there:
            self._directory = directory
        else:
            os.close(directory)
        return still_there

    def _unlock(self) -> None:
        fcntl.flock(self._directory, fcntl.LOCK_UN)

    def _take_claim(self) -> None:
        name = f"c{self._placement.rank}"
        claim = os.open(name, _FILE_FLAGS | os.O_CREAT, 0o600, dir_fd=self._directory)
        try:
            _lock(claim, time.monotonic() + _CLAIM_S)
        except MeetingError:
            holder = os.read(claim, 16).decode("ascii", "replace")
            os.close(claim)
            raise MeetingError(_claimed_twice(self._placement, f"process {holder}")) from None
        self._claim = claim
        os.ftruncate(claim, 0)
        os.pwrite(claim, str(os.getpid()).encode(), 0)

    def _first_comers_secret(self) -> bytes:
        """Reads the secret, or makes it when this rank is the first. Called under the mutex, so it is never half
        written.
        """
        try:
            fd = os.open(_SECRET_NAME, _FILE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._directory)
        except FileExistsError:
            fd = os.open(_SECRET_NAME, _FILE_FLAGS, dir_fd=self._directory)
            with os.fdopen(fd, "rb") as file:
                status = os.fstat(file.fileno())
                secret = file.read(auth.SECRET_BYTES + 1)
            if (
                status.st_uid != os.geteuid()
                or stat.S_IMODE(status.st_mode) != 0o600
                or len(secret) != auth.SECRET_BYTES
            ):
                raise MeetingError(
                    f"{self.path}/{_SECRET_NAME} is malformed (owner, mode or length); remove {self.path}."
                ) from None
            return secret
        secret = auth.new_secret()
        with os.fdopen(fd, "wb") as file:
            file.write(secret)
        return secret

    def _listen(self) -> None:
        """Listens under a temporary name and then renames, so that whoever sees the name can connect."""
        name = f"r{self._placement.rank}"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            for stale in (name, "." + name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(stale, dir_fd=self._directory)
            listener.bind(self.address("." + name))
            os.chmod(self.address("." + name), 0o600)
            listener.listen(_BACKLOG)
            os.rename("." + name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            listener.close()
            raise
        self.listener = listener

    def address(self, name: str) -> str:
        """The path of a socket here, however deep the directory: a Unix address holds 108 bytes only."""
        return f"/proc/self/fd/{self._directory}/{name}"

    def listening_ranks(self) -> list[int]:
        """The ranks whose socket is there, dead or alive, but this one."""
        names = (name[1:] for name in os.listdir(self._directory) if name.startswith("r"))
        ranks = (int(name) for name in names if name.isdecimal())
        return [rank for rank in ranks if rank < self._placement.size and rank != self._placement.rank]

    def claim_is_live(self, rank: int) -> bool:
        """False once the process that claimed `rank` here is gone (or has left)."""
        return _is_locked(self._directory, f"c{rank}")

    def abandoned_claims(self, ranks: Iterable[int]) -> list[int]:
        """Those of `ranks` whose process died here. None when somebody is just joining or leaving: ask again."""
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return []
        try:
            there = set(_claims(self._directory))
            return [rank for rank in ranks if f"c{rank}" in there and not _is_locked(self._directory, f"c{rank}")]
        finally:
            self._unlock()

    def claimed_pid(self, rank: int) -> str:
        """The pid that claimed `rank`, as text for messages; "" when nobody has."""
        try:
            fd = os.open(f"c{rank}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError:
            return ""
        with os.fdopen(fd, "rb") as file:
            return file.read(16).decode("ascii", "replace")

    def tell_why(self, text: str) -> None:
        """Leaves word of why this rank gives up, unless another rank was first."""
        with contextlib.suppress(OSError):  # no room, no directory: the others then name what they see themselves
            flags = _FILE_FLAGS | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(_WHY_NAME, flags, 0o600, dir_fd=self._directory), "wb", buffering=0) as file:
                file.write(text.encode("utf-8", "replace")[:_WHY_BYTES])

    def why(self) -> str:
        """What the first rank that gave up has told; "" when none has."""
        try:
            fd = os.open(_WHY_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory)
        except OSError:
            return ""
        with os.fdopen(fd, "rb") as file:
            return file.read(_WHY_BYTES).decode("utf-8", "replace")

    def leave(self, deadline: float) -> None:
        """Takes this rank's files away, and the whole directory when no live rank is left in it. May be called
        twice.
        """
        if self._directory < 0:
            return
        try:
            self._remove_own(deadline)
        except (OSError, MeetingError):
            pass  # a stopped peer holds the mutex: the next job sweeps
        finally:
            if self.listener is not None:
                self.listener.close()
                self.listener = None
            for fd in (self._claim, self._directory):
                if fd >= 0:
                    os.close(fd)
            self._claim = self._directory = -1

    def _remove_own(self, deadline: float) -> None:
        _lock(self._directory, max(deadline, time.monotonic() + 1.0))
        own = [f"r{self._placement.rank}"] if self.listener is not None else []
        own += [f"c{self._placement.rank}"] if self._claim >= 0 else []
        for name in own:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._directory)
        if not any(_is_locked(self._directory, claim) for claim in _claims(self._directory)):
            _remove_contents(self._directory)
            os.rmdir(self.path)
            if self._own_base:
                os.rmdir(self._base)
