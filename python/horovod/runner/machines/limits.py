"""Limits of this user that a job may run into (`ulimit`): raised where we may, named where we may not.

Used by `process`, `launchers`, `elastic.roster_keeper` and `remote`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from typing import Final

from horovod._net import resources

# Of `accept`: clients must wait until a descriptor is free again.
NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_DESCRIPTORS_PER_RANK: Final = 8  # both ends of its pipes, here or in the keeper
_OTHER_DESCRIPTORS: Final = 64

Limits = tuple[int, int]


@contextlib.contextmanager
def allowed_descriptors(ranks: int) -> Iterator[Limits]:
    """For its time, raises the soft limit of open files when a launcher of so many ranks does not fit into it.

    Yields:
        The soft and the hard limit as the user has set them, for the ranks.

    Raises:
        OSError: the hard limit is too low.
    """
    needed = ranks * _DESCRIPTORS_PER_RANK + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise OSError(
                f"{ranks} ranks need {needed} open files in the launcher, but the hard limit is {hard} (ulimit -Hn); "
                "raise it, or start fewer ranks."
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield soft, hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))  # horovod.run: the process is the caller's


def why_without_proc() -> str:
    """Why no ranks can be started here if /proc is missing; else empty."""
    if os.path.exists("/proc/self/stat"):
        return ""
    return (
        "/proc is not mounted here. The ranks need it to find one another, and the launcher to find the processes that "
        "they leave behind; mount it (mount -t proc proc /proc)."
    )


def reason_of(number: int) -> str:
    """What an error number means, and the limit that was run into where it is one."""
    remedy = resources.remedy_of(number)
    return f"{os.strerror(number)}; {remedy}" if remedy else os.strerror(number)
