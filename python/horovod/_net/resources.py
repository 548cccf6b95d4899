"""What the system refuses when a resource runs out, as an error that names the limit and who can raise it; and the one
limit that we raise ourselves.

Used by memory and bootstrap, where a system call of theirs fails, by the keeper of a board, and by the launcher. It
decides from the error number alone.
"""

from __future__ import annotations

import errno
import resource
from typing import Final

from horovod._net.failures import ConnectError, NetError, ResourceError

_REMEDIES: Final[dict[int, str]] = {
    errno.EAGAIN: "this user may have {processes} processes and threads; raise that limit (ulimit -u)",
    errno.EMFILE: "this process may have {files} descriptors open; raise that limit (ulimit -n)",
    errno.ENFILE: "the machine has no descriptors left; raise fs.file-max, or end other programs",
    errno.ENOMEM: "free memory, or raise the limit of the job or container, or of the address space (ulimit -v)",
    errno.ENOSPC: "free space there, or point TMPDIR or XDG_RUNTIME_DIR to a place that has some",
    errno.EDQUOT: "free space there, or point TMPDIR or XDG_RUNTIME_DIR to a place that has some",
    errno.EFBIG: "raise the limit of the size of files, which counts for shared memory too (ulimit -f)",
    errno.EROFS: "point TMPDIR or XDG_RUNTIME_DIR to a place that can be written",
}


def failure(what: str, error: OSError) -> NetError:
    """The error for a system call that failed.

    Args:
        what: could not be done, a sentence without its end.
        error: the reason.

    Returns:
        A ResourceError when a limit or a shortage is the reason, else a ConnectError.
    """
    remedy = remedy_of(error.errno or 0)
    place = f" ({error.filename})" if error.filename else ""
    fact = f"{what}: {error.strerror or error}{place}"
    return ResourceError(f"{fact}; {remedy}.") if remedy else ConnectError(f"{fact}.")


def remedy_of(number: int) -> str:
    """The limit that this error number speaks of, with its present value, and who can raise it; empty if none."""
    text = _REMEDIES.get(number, "")
    return text.format(files=_soft_limit(resource.RLIMIT_NOFILE), processes=_soft_limit(resource.RLIMIT_NPROC))


def make_room_for(descriptors: int) -> None:
    """Raises this process's soft limit of open files to this number, or as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    useful = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < useful:
        resource.setrlimit(resource.RLIMIT_NOFILE, (useful, hard))


def _soft_limit(kind: int) -> str:
    soft, _ = resource.getrlimit(kind)
    return "many" if soft == resource.RLIM_INFINITY else str(soft)
