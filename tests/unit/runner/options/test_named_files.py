"""Files that somebody names may be pipes: read to their end, and not waited for without one."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Callable

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.allocations.choose import allocation
from horovod.runner.machines import hosts
from horovod.runner.options import config_file
from horovod.runner.readers import named_files


@pytest.fixture
def fifo(tmp_path: Path) -> str:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    return path


def write_later(path: str, data: bytes) -> threading.Thread:
    def write() -> None:
        time.sleep(0.1)
        Path(path).write_bytes(data)

    made = threading.Thread(target=write)
    made.start()
    return made


def test_a_pipe_is_read_to_its_end(fifo: str) -> None:
    data = b"host1 slots=2\n" * 20_000  # more than a pipe holds
    writer = write_later(fifo, data)
    assert named_files.read(fifo, 1 << 20) == data
    writer.join()
    writer = write_later(fifo, b"host1 slots=2\nhost2\n")
    assert [host.to_string() for host in hosts.read_hostfile(fifo)] == ["host1:2", "host2:1"]
    writer.join()


def test_a_pipe_that_does_not_end_is_given_up(fifo: str) -> None:
    keeps_it_open = os.open(fifo, os.O_RDWR)
    try:
        for _ in range(2):
            began_s = time.monotonic()
            with pytest.raises(TimeoutError, match="whose writer has not closed it within 0.2 s"):
                named_files.read(fifo, 100, 0.2)
            assert 0.15 < time.monotonic() - began_s < 5.0
            os.write(keeps_it_open, b"host1\n")
    finally:
        os.close(keeps_it_open)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    assert len(named_files.read(str(tmp_path / "file"), 1000)) == 1000
    assert len(named_files.read(str(tmp_path / "file"), 10)) == 11
    with pytest.raises(IsADirectoryError):
        named_files.read(str(tmp_path), 10)


def in_lsf(path: str) -> object:
    return allocation({"LSB_JOBID": "1", "LSB_DJOB_HOSTFILE": path})


def in_pbs(path: str) -> object:
    return allocation({"PBS_JOBID": "1", "PBS_NODEFILE": path})


@pytest.mark.parametrize("read", [hosts.read_hostfile, config_file.read, in_lsf, in_pbs])
def test_a_pipe_that_nobody_writes_to_is_an_error_in_time(
    read: Callable[[str], object], fifo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_files.read, "__defaults__", (0.1,))
    with pytest.raises(InvalidArgumentError, match=f"{fifo} cannot be read: it is a pipe whose writer"):
        read(fifo)
