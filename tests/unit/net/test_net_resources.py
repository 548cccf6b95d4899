"""Tests of horovod._net.resources: what a system refuses for want of something names the limit, and no other rank."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import resource
from collections.abc import Iterator

import pytest
from net_ranks import REGION_BYTES, placements

from horovod._net import resources
from horovod._net.bootstrap import bootstrap
from horovod._net.failures import ConnectError, ResourceError
from horovod._net.handshake import memory


@contextlib.contextmanager
def limited(which: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def next_descriptor() -> int:
    fd = os.dup(0)
    os.close(fd)
    return fd


def test_a_file_size_limit_is_named() -> None:
    with limited(resource.RLIMIT_FSIZE, 4096), pytest.raises(ResourceError, match="ulimit -f"):
        memory.create_region(1 << 20)


@pytest.mark.parametrize("make", [lambda: memory.create_region(1 << 20), memory.create_doorbell])
def test_a_descriptor_limit_is_named(make: object) -> None:
    assert callable(make)
    limit = next_descriptor()
    with limited(resource.RLIMIT_NOFILE, limit), pytest.raises(ResourceError, match=f"{limit} .*ulimit -n"):
        make()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EFBIG, errno.EROFS])
def test_a_lack_is_no_ranks_fault(number: int) -> None:
    error = resources.failure("Rank 1 of 2 could not connect", OSError(number, os.strerror(number), "/some/where"))
    assert isinstance(error, ResourceError) and not isinstance(error, ConnectError)
    assert str(error).startswith(f"Rank 1 of 2 could not connect: {os.strerror(number)} (/some/where); ")


def test_other_errors_are_of_the_connection() -> None:
    error = resources.failure("Rank 1 of 2 could not connect", ConnectionResetError(errno.ECONNRESET, "reset"))
    assert isinstance(error, ConnectError) and str(error) == "Rank 1 of 2 could not connect: reset."


def test_a_start_without_room_for_files_says_so(private_base: pathlib.Path) -> None:
    with limited(resource.RLIMIT_FSIZE, 0), pytest.raises(ResourceError, match="ulimit -f"):
        bootstrap(placements(2)[0], epoch=1, region_bytes=REGION_BYTES, timeout_s=5)
    assert os.listdir(private_base) == []
