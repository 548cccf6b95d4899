"""The private directory where the ranks of one job and epoch meet on a host, and its guarantees.

::

    <base>/<hash of job, epoch>/     mode 0700, owned by this user
        secret                       32 bytes, mode 0600; only where the launcher gave none
        c<rank>                      claim: the pid, locked (flock) as long as that process is connecting
        r<rank>                      the Unix socket where it listens
        outcome                      how the meeting ended: "met", or what made the first rank give up. Written once,
                                     so all ranks agree; a later rank waits until the last of them has left
        attempt                      instead, where the job has other hosts: which of its attempts this is; how it
                                     ended stands on the job's board

The directory's own flock is a short mutex: join and leave happen under it, so that "the first comer makes the secret"
and "the last one removes the directory" have no races. Locks die with their process, so what a crash leaves behind is
recognised and swept by the next job. Used by bootstrap and connect; it neither connects nor authenticates.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import time
from collections.abc import Iterable
from typing import Optional

from horovod._net.clusters.placement import Placement
from horovod._net.failures import MeetingError
from horovod._net.meeting.board import Attempt
from horovod._net.meeting.lasting_claim import claimed_twice
from horovod._net.meeting.private_directories import open_private
from horovod._net.secret import SECRET_BYTES, new_secret

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_RETRY_S = 0.0005
_CLAIM_S = 0.05  # a process that only checks whether a claim is live holds it for microseconds
_SECRET_NAME = "secret"
_OUTCOME_NAME = "outcome"
_ATTEMPT_NAME = "attempt"
_OUTCOME_BYTES = 4096
_LEAVING_S = 0.005  # how often to look whether the ranks of an ended meeting have left
_BACKLOG = 4096


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
    """True when a live process holds this claim, and when it is not known (this process has no descriptor left)."""
    try:
        fd = os.open(name, _FILE_FLAGS, dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two checks at once do not mislead one another
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


def _outcome(directory: int) -> Optional[str]:
    try:
        fd = os.open(_OUTCOME_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(_OUTCOME_BYTES).decode("utf-8", "replace")


def _attempt_number(directory: int) -> Optional[int]:
    """The attempt that the ranks of this host take part in; None before the first of them has come."""
    try:
        fd = os.open(_ATTEMPT_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        text = file.read(16)
    return int(text) if text.isdigit() else None


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


def directory_name(placement: Placement, epoch: int) -> str:
    """Name of the directory of one job and epoch below its base."""
    return hashlib.sha256(f"{placement.job_key}/{epoch}".encode()).hexdigest()[:24]


def jobs_name(placement: Placement) -> str:
    """Name of the ranks that meet, the same at each of their meetings."""
    return hashlib.sha256(placement.job_key.encode()).hexdigest()[:24]


class Meeting:
    """One rank's membership of the meeting directory; between `join` and `leave`."""

    def __init__(
        self, placement: Placement, epoch: int, base: str, *, own_base: bool, attempt: Optional[Attempt] = None
    ) -> None:
        """
        Args:
            placement, epoch: which job and rank.
            base: the directory under which to meet.
            own_base: True when `choose_base` made it: others' leftovers are swept and it is removed when empty.
            attempt: to meet the ranks of other hosts too; None where there are none.
        """
        self.attempt = attempt
        self.number = epoch
        self.secret = b""
        self.listener: Optional[socket.socket] = None
        self._placement = placement
        self._base = base
        self._own_base = own_base
        self.path = os.path.join(base, directory_name(placement, epoch))
        self._directory = -1
        self._claim = -1
        self._unwritten = ""  # the outcome, where there is no room for it

    def join(self, deadline: float) -> None:
        """Enters the directory (making it if this rank is the first), claims the rank, gets the secret and listens.

        Raises:
            MeetingError: unsafe directory, rank claimed twice, no secret.
        """
        while not self._enter(deadline):
            pass
        try:
            self._take_claim()
            self._take_attempt()
            self.secret = self._placement.secret or self._first_comers_secret()
            self._listen()
        except BaseException:
            self._unlock()
            self.leave(deadline)
            raise
        self._unlock()

    def _enter(self, deadline: float) -> bool:
        """Opens and locks the directory; False when it was removed at that very moment, or a meeting ends in it."""
        try:
            os.close(open_private(self._base, make=self._own_base))
            if self._own_base:
                sweep(self._base)
            directory = open_private(self.path, make=True)
        except FileNotFoundError:
            if not self._own_base and not os.path.exists(self._base):
                raise MeetingError(
                    f"The launcher's directory {self._base} is gone: the launcher has ended, or somebody has removed "
                    "the directory, as the end of a login session does (in XDG_RUNTIME_DIR; in /dev/shm with "
                    "RemoveIPC). Let the user's services outlive it (loginctl enable-linger), or point XDG_RUNTIME_DIR "
                    "to a place that stays."
                ) from None
            return False
        try:
            _lock(directory, deadline)
            usable = os.fstat(directory).st_nlink > 0 and self._is_before_its_outcome(directory, deadline)
        except BaseException:
            os.close(directory)
            raise
        if usable:
            self._directory = directory
        else:
            os.close(directory)
        return usable

    def _is_before_its_outcome(self, directory: int, deadline: float) -> bool:
        """True when a meeting may begin or goes on here. False, after a while, when one has ended whose ranks have not
        all left: a rank that joined them now would be counted by some and not by others.

        Raises:
            MeetingError: they do not leave.
        """
        if not any(_is_locked(directory, claim) for claim in _claims(directory)):
            _remove_contents(directory)  # all that an attempt which crashed as a whole left behind
            return True
        outcome = self._outcome_of(directory)
        if outcome is None:
            return True
        if time.monotonic() > deadline:
            raise MeetingError(
                f"Rank {self._placement.rank} waits to meet the other ranks, but some of them have not left an earlier "
                f"meeting, which ended with: {outcome.partition(chr(10))[2] or outcome}"
            )
        fcntl.flock(directory, fcntl.LOCK_UN)
        time.sleep(_LEAVING_S)
        return False

    def _outcome_of(self, directory: int) -> Optional[str]:
        if self.attempt is None:
            return _outcome(directory)
        number = _attempt_number(directory)
        return None if number is None else self.attempt.ended(number)

    def _take_attempt(self) -> None:
        """Takes part in the attempt that the first rank of this host has chosen, or chooses it."""
        if self.attempt is None:
            return
        number = _attempt_number(self._directory)
        if number is None:
            number = self.attempt.first_open()
            fd = os.open(_ATTEMPT_NAME, _FILE_FLAGS | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self._directory)
            with os.fdopen(fd, "wb") as file:
                file.write(str(number).encode())
        self.attempt.number = number

    def _unlock(self) -> None:
        fcntl.flock(self._directory, fcntl.LOCK_UN)

    def _take_claim(self) -> None:
        name = f"c{self._placement.rank}"
        claim = os.open(name, _FILE_FLAGS | os.O_CREAT, 0o600, dir_fd=self._directory)
        os.fchmod(claim, 0o600)  # whatever the umask has taken away
        try:
            _lock(claim, time.monotonic() + _CLAIM_S)
        except MeetingError:
            holder = os.read(claim, 16).decode("ascii", "replace")
            os.close(claim)
            raise claimed_twice(self._placement, f"process {holder}") from None
        self._claim = claim
        with contextlib.suppress(OSError):  # no room: the pid is for messages only
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
                secret = file.read(SECRET_BYTES + 1)
            if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o600 or len(secret) != SECRET_BYTES:
                raise MeetingError(
                    f"{self.path}/{_SECRET_NAME} is malformed (owner, mode or length); remove {self.path}."
                ) from None
            return secret
        secret = new_secret()
        try:
            with os.fdopen(fd, "wb") as file:
                os.fchmod(fd, 0o600)  # whatever the umask has taken away
                file.write(secret)
        except OSError as error:
            os.unlink(_SECRET_NAME, dir_fd=self._directory)  # the next process must not find half of it
            raise OSError(error.errno, error.strerror, f"{self.path}/{_SECRET_NAME}") from error
        return secret

    def _listen(self) -> None:
        """Listens under a temporary name and then renames, so that a rank that sees the name can connect."""
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

    def settle(self, text: str) -> str:
        """Writes how the meeting has ended, unless that stands already; returns what stands, equal on all ranks.

        Raises:
            ConnectError: the job has other hosts, and its board is gone.
        """
        if self.attempt is not None:
            return self.attempt.settle(text)
        draft = f"{_OUTCOME_NAME}.{self._placement.rank}"
        try:
            with os.fdopen(os.open(draft, _FILE_FLAGS | os.O_CREAT, 0o600, dir_fd=self._directory), "wb") as file:
                file.write(text.encode("utf-8", "replace")[:_OUTCOME_BYTES])
            # A link appears with all of its text, and never over another.
            os.link(draft, _OUTCOME_NAME, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except FileExistsError:
            pass
        except OSError:  # no room: the others then say what they see themselves
            self._unwritten = self._unwritten or text
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=self._directory)
        return self.outcome()

    def outcome(self) -> str:
        """How the meeting has ended, in the words of the first rank that knew; "" while it goes on."""
        return self._outcome_of(self._directory) or self._unwritten

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
