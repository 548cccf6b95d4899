"""The memory in which the function of `horovod.run` travels."""

from __future__ import annotations

import errno
import fcntl
import os

import pytest

from horovod.runner.processes import shipment


def test_a_function_that_cannot_be_put_there_leaves_no_memory_open(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def create(name: str, flags: int) -> int:
        made.append(memfd_create(name, flags))
        return made[-1]

    def refuse(fd: int, command: int, seals: int) -> int:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    memfd_create = os.memfd_create
    monkeypatch.setattr(os, "memfd_create", create)
    with pytest.raises(TypeError):
        shipment.Shipment("no bytes")  # type: ignore[arg-type]
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        shipment.Shipment(b"a function")
    assert len(made) == 2
    for fd in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
