"""The shared region of one rank: a sealed memfd, its doorbell, and the proof that a peer maps the same memory.

Used by pairing, members and bootstrap. It sizes and seals; what lies in the region is the core's business, and so is
committing its pages.
"""

from __future__ import annotations

import fcntl
import mmap
import os

from horovod._net import resources
from horovod._net.failures import ConnectError
from horovod._net.handshake.frames.messages import NONCE_BYTES

_PAGE_BYTES = mmap.PAGESIZE


def create_region(region_bytes: int) -> int:
    """A new anonymous, zeroed memfd of that size, whose size can never change again.

    Raises:
        ResourceError: a limit forbids it; the message names it.
        ConnectError: the size is impossible.
    """
    if region_bytes < _PAGE_BYTES:
        raise ConnectError(f"A shared region must have at least {_PAGE_BYTES} bytes. Received: {region_bytes}.")
    try:
        fd = os.memfd_create("horovod", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise resources.failure("No shared memory: memfd_create failed", error) from error
    try:
        os.ftruncate(fd, region_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise resources.failure(f"No shared memory: a region of {region_bytes} bytes cannot be made", error) from error
    return fd


def check_region(fd: int, region_bytes: int, rank: int) -> None:
    """Refuses a peer's region that is not what it should be: a region that can shrink would kill its readers with
    SIGBUS.

    Raises:
        ConnectError: wrong size or not sealed.
    """
    needed = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        size = os.fstat(fd).st_size
    except OSError as error:
        raise ConnectError(
            f"Rank {rank} sent a descriptor that is not shared memory: {error.strerror}.", [rank]
        ) from error
    if seals & needed != needed or size != region_bytes:
        raise ConnectError(
            f"Rank {rank} sent a region of {size} bytes (seals {seals:#x}), this rank expects {region_bytes} sealed "
            "bytes; all ranks must use the same settings for shared memory, and have the same limit of address space "
            "(ulimit -v).",
            [rank],
        )


def write_nonce(fd: int, nonce: bytes) -> None:
    """Puts the nonce that peers must read at the beginning of the own region."""
    os.pwrite(fd, nonce, 0)


def read_nonce(fd: int, rank: int) -> bytes:
    """Maps the first page of a peer's region and reads its nonce.

    Raises:
        ResourceError: a limit forbids it; the message names it.
        ConnectError: it cannot be mapped.
    """
    try:
        with mmap.mmap(fd, _PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ) as mapping:
            return bytes(mapping[:NONCE_BYTES])
    except OSError as error:
        raise resources.failure(f"The shared memory of rank {rank} cannot be mapped", error) from error


def clear_nonce(fd: int) -> None:
    """Makes the region all zeros again, as the core expects it."""
    os.pwrite(fd, bytes(NONCE_BYTES), 0)


def create_doorbell() -> int:
    """A new non-blocking eventfd.

    Raises:
        ResourceError: no descriptors left.
    """
    try:
        return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    except OSError as error:
        raise resources.failure("No doorbell: eventfd failed", error) from error
