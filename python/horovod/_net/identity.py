"""The identity of a host and of a process, in terms that no other host or process shares.

Used by launchers (to tell jobs apart), the handshake (same-host hint, who is at the other end of a socket) and the
meeting (messages). Opens nothing but /proc; decides nothing.
"""

from __future__ import annotations

import functools
import os
import pwd
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple, Optional

# Programs that only ever start ranks. A Hydra that a rank of Hydra starts carries that rank's variables, which look
# like those of the inner rank with the same number.
_STARTERS_OF_RANKS = frozenset({b"hydra_pmi_proxy"})
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


class HostIdentity(NamedTuple):
    """Equal on two processes that may be able to share memory: a hint, to be proven by mapping.

    Attributes:
        boot_id: of the running kernel; 36 characters, or "" where /proc does not tell.
        ipc_namespace: inode of the IPC namespace, or 0.
    """

    boot_id: str
    ipc_namespace: int

    def may_share_memory_with(self, other: HostIdentity) -> bool:
        """True when both are known and equal."""
        return self == other and bool(self.boot_id) and self.ipc_namespace != 0


def pid_namespace() -> int:
    """The inode of the namespace in which this process has its pid; 0 where /proc does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


@functools.lru_cache(maxsize=1)
def host_identity() -> HostIdentity:
    """The identity of this host, read once per process."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot_id = file.read().strip()[:36]
    except OSError:
        boot_id = ""
    try:
        ipc_namespace = os.stat("/proc/self/ns/ipc").st_ino
    except OSError:
        ipc_namespace = 0
    return HostIdentity(boot_id, ipc_namespace)


def hostname() -> str:
    """The name that messages call this host."""
    return socket.gethostname() or "localhost"


def user(uid: int) -> str:
    """A user in words: name, where there is one, and number."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def peer_credentials(sock: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the process at the other end of a Unix socket."""
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


def parent_and_start(pid: int) -> Optional[tuple[int, int]]:
    """(parent pid, start time in clock ticks since boot) of a process; None when it is gone or hidden."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # The second field is the command in parentheses and may hold anything, so count from the last parenthesis.
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return int(fields[1]), int(fields[19])


def is_running(pid: int, start: int) -> Optional[bool]:
    """The process of this pid that was started at this time (`parent_and_start`; 0: not known) still runs here.

    Returns:
        None where the kernel does not tell: there is one of this pid, but /proc hides when it was started.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None if _exists(pid) else False
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    if fields[0] in (b"Z", b"X"):
        return False
    return None if start == 0 else int(fields[19]) == start


def _exists(pid: int) -> bool:
    """There is a process of this pid, or the kernel does not tell."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def launching_process(variables: Iterable[tuple[str, str]]) -> str:
    """Names the process that started all ranks: the nearest ancestor that does not carry this rank's own variables.

    Wrapper scripts between launcher and rank inherit the rank's variables and are skipped, so that all ranks agree;
    an ancestor of another user (slurmstepd) cannot be read and counts as the launcher.

    Args:
        variables: the variables and values by which the launcher gave this process its rank.

    Returns:
        "pid:start time".
    """
    needles = [f"{name}={value}".encode() for name, value in variables]
    pid = os.getppid()
    while pid > 1:
        place = parent_and_start(pid)
        try:
            with open(f"/proc/{pid}/comm", "rb") as file:
                if file.read().strip() in _STARTERS_OF_RANKS:
                    break
            with open(f"/proc/{pid}/environ", "rb") as file:
                inherited = set(file.read().split(b"\0"))
        except OSError:
            break
        if place is None or not needles or not all(needle in inherited for needle in needles):
            break
        pid = place[0]
    place = parent_and_start(pid)
    return f"{pid}:{place[1] if place else 0}"
