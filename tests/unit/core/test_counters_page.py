"""The page in which a rank counts: a file where its job has a directory, and what becomes of it."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod._core.life import counters_page
from horovod._native import abi
from horovod.runner.live.figures import decoded
from horovod.runner.processes.page_reader import readings


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    before, counters_page._page = counters_page._page, None
    yield
    counters_page._page = before


def test_in_a_job_s_directory_it_is_a_private_file_that_the_launcher_reads(tmp_path: Path) -> None:
    page = counters_page.begin(str(tmp_path), 5)
    path = tmp_path / "counters.5"
    assert readings(tmp_path, [5]) == {}  # it has no place yet
    page.place(2, 4, 7)
    counters_page.count_commit()
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_blocks > 0, "a hole would end the rank when the file system is full"
    figures = readings(tmp_path, [5, 6])[5].figures
    assert (figures.rank, figures.size, figures.epoch, figures.commits) == (2, 4, 7, 1)
    assert figures.pid == os.getpid()
    assert 0 < figures.wall_ns < 60e9


def test_the_same_process_goes_on_in_the_same_page(tmp_path: Path) -> None:
    first = counters_page.begin(str(tmp_path), 0)
    counters_page.count_reset()
    assert counters_page.begin(str(tmp_path), 0) is first
    # With another place it takes along what it has counted.
    other = counters_page.begin(str(tmp_path), 1)
    assert other is not first
    assert other.read(abi.COUNTER_RESETS) == 1


def test_between_two_engines_the_clock_stands_still(tmp_path: Path) -> None:
    def wall_ns() -> int:
        return readings(tmp_path, [0])[0].figures.wall_ns

    page = counters_page.begin(str(tmp_path), 0)
    page.place(0, 1, 0)
    counters_page.pause()
    before_ns = wall_ns()
    time.sleep(0.2)
    counters_page.pause()  # again: the first one stands
    assert wall_ns() == before_ns
    again_ns = time.monotonic_ns()
    counters_page.begin(str(tmp_path), 0).place(0, 1, 1)
    assert before_ns < wall_ns() < before_ns + time.monotonic_ns() - again_ns


def test_without_a_directory_and_without_room_it_is_memory(tmp_path: Path) -> None:
    for directory in (None, str(tmp_path / "missing")):
        page = counters_page.begin(directory, 0)
        page.place(0, 1, 0)
        counters_page.count_commit()
        assert counters_page.read(abi.COUNTER_COMMITS) >= 1
        figures = decoded(b"".join(n.to_bytes(8, "little") for n in page.numbers()), time.monotonic_ns())
        assert figures is None or figures.size == 1
    assert not (tmp_path / "missing").exists()


def test_a_file_of_another_program_or_a_link_is_not_written(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "counters.0").symlink_to(victim)
    counters_page.begin(str(tmp_path), 0).place(0, 1, 0)
    assert victim.read_text() == "mine"
    assert not (tmp_path / "counters.0").is_symlink()


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 4096])
def test_the_launcher_reads_no_nonsense(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "counters.0").write_bytes(content)
    os.mkfifo(tmp_path / "counters.1")
    (tmp_path / "counters.2").symlink_to(tmp_path / "counters.0")
    assert readings(tmp_path, [0, 1, 2, 3]) == {}


def test_before_init_and_in_a_forked_child_there_is_none(tmp_path: Path) -> None:
    assert counters_page.numbers() == [0] * abi.COUNTER_WORDS
    counters_page.count_reset()
    assert counters_page.read(abi.COUNTER_RESETS) == 0
    counters_page.begin(str(tmp_path), 0)
    counters_page.count_reset()
    counters_page.forget()
    assert counters_page.read(abi.COUNTER_RESETS) == 0
