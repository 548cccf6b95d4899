"""The secret that a user gives the ranks of a job on several hosts, where their launcher gives none: a file.

Every host must be able to read it, and nobody but this user (or root, who may read everything). It proves who belongs
to this user's jobs; each job then has a secret of its own. Used by fact_exchange.
"""

from __future__ import annotations

import hmac
import os
import re
import stat
from typing import Final

from horovod._net import identity
from horovod._net.failures import PlacementError
from horovod._net.secret import SECRET_BYTES

SECRET_VARIABLE: Final = "HOROVOD_SECRET_FILE"
HOW_TO_MAKE: Final = "(umask 077; openssl rand -hex 32 > FILE)"
_MOST_BYTES: Final = 1024
_TEXT: Final = re.compile(rf"[0-9A-Fa-f]{{{2 * SECRET_BYTES}}}")


def read(path: str) -> bytes:
    """The secret in a file.

    Raises:
        PlacementError: it cannot be read, others can read it, or it holds something else.
    """
    try:
        fd = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(file.fileno())
            text = file.read(_MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise PlacementError(
            f"{SECRET_VARIABLE}={path} cannot be read on {identity.hostname()}: {error.strerror}. Every host needs the "
            f"same file, in a shared folder or copied there; make one with {HOW_TO_MAKE}."
        ) from error
    _refuse_readable_by_others(path, status)
    if not _TEXT.fullmatch(text):
        raise PlacementError(
            f"{SECRET_VARIABLE}={path} must hold {2 * SECRET_BYTES} hexadecimal digits and nothing else; it does not "
            f"on {identity.hostname()}. Make a new one with {HOW_TO_MAKE}."
        )
    return bytes.fromhex(text)


def _refuse_readable_by_others(path: str, status: os.stat_result) -> None:
    where = f"{SECRET_VARIABLE}={path} on {identity.hostname()}"
    if status.st_uid not in (os.geteuid(), 0):
        raise PlacementError(f"{where} belongs to {identity.user(status.st_uid)}; use a file of your own.")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise PlacementError(
            f"{where} has mode {mode:04o}, so others can read or change it. If nobody has: chmod 600 {path}; else make "
            f"a new one with {HOW_TO_MAKE}."
        )


def of_job(secret: bytes, job: str, token: str) -> bytes:
    """The secret of one job, from that of the user and a random token that no other job has.

    The token may be known to anybody. HMAC-SHA256 as a key derivation function (NIST SP 800-108).
    """
    return hmac.digest(secret, f"horovod/1 job secret\0{job}\0{token}".encode(), "sha256")
