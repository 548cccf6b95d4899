"""Who asks a rank for a dump, and where it goes; the core is played by the test."""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from fakes.engine import FakeEngine, FakeJob

from horovod._core.life.dumps import call_sites, dump_service, dump_writer
from horovod._core.life.session import Session
from horovod._core.settings import Settings
from horovod._dumps import files, paths
from horovod._native import abi

STALL = 1 << 32
PATIENCE_S = 10.0


class Core:
    """The core's side of dumps."""

    def __init__(self) -> None:
        self.fd, self.write_fd = os.pipe()  # as an eventfd
        os.set_blocking(self.fd, False)
        self.signals: list[int] = []

    def text(self) -> str:
        operation = '"what": "allreduce \'w\'", "name": "allreduce.w", "process_set": 0, "operation": "allreduce"'
        pending = f'{{{operation}, "dtype": "float32", "shape": [2], "seconds": 61.5}}'
        return f'{{"pending": [{pending}], "untold": 3, "finished": [], "process_sets": {{"0": [0, 1]}}}}'

    def call_fd(self) -> int:
        return self.fd

    def on_signal(self, number: int) -> bool:
        self.signals.append(number)
        return False

    def call(self, count: int) -> None:
        os.write(self.write_fd, count.to_bytes(8, "little"))


@pytest.fixture
def core() -> Iterator[Core]:
    one = Core()
    yield one
    dump_service.end()
    os.close(one.fd)
    os.close(one.write_fd)


def session_of(core: Core, meeting: Optional[Path] = None, size: int = 2, **given: Any) -> Session:
    engine = FakeEngine(FakeJob(2), 1)
    engine.dumps = core  # type: ignore[assignment]
    place = {"rank": 1, "size": size, "local_rank": 1, "local_size": 2, "cross_rank": 0, "cross_size": 1}
    return Session(
        **place,
        is_homogeneous=True,
        engine=engine,
        dynamic_process_sets=False,
        timeline_allowed=False,
        epoch=0,
        settings=Settings([("test", given)]),
        hostname="here",
        meeting_directory=str(meeting) if meeting else None,
    )


def once_it_is_heard(ask: Callable[[], Any]) -> threading.Thread:
    """Asks, from another thread, when the main thread stands in `heard`: a dump that comes sooner shows the asking."""
    main = threading.main_thread().ident
    assert main is not None

    def wait_and_ask() -> None:
        while sys._current_frames()[main].f_code is not heard.__code__:
            time.sleep(0.001)
        ask()

    asking = threading.Thread(target=wait_and_ask, daemon=True)
    asking.start()
    return asking


def heard(fd: int) -> bytes:
    assert select.select([fd], [], [], PATIENCE_S)[0]
    return os.read(fd, 99)


@pytest.mark.parametrize("ask", ["stall", "signal", "request"])
def test_the_launcher_hears_of_a_dump(core: Core, tmp_path: Path, ask: str) -> None:
    news = paths.open_own_pipe(tmp_path / paths.NEWS)
    dump_service.begin(session_of(core, tmp_path))
    if ask == "request":
        asking = once_it_is_heard(lambda: paths.ask(tmp_path, 1))
    else:
        asking = once_it_is_heard(lambda: core.call(STALL if ask == "stall" else 1))
    assert heard(news) == b"1\n"
    asking.join()
    os.close(news)
    dump = files.read_dumps(tmp_path, [1])[0][1]
    assert (dump.reason, dump.rank, dump.size, dump.host, dump.pid) == (ask, 1, 2, "here", os.getpid())
    assert (dump.pending[0].what, dump.pending[0].shape, dump.untold) == ("allreduce 'w'", (2,), 3)
    assert dump.main_thread[-1].function == "heard"
    assert "horovod-dumps" not in [thread.name for thread in dump.threads]


def test_the_end_takes_the_thread_along(core: Core, tmp_path: Path) -> None:
    dump_service.begin(session_of(core, tmp_path))
    assert "horovod-dumps" in [thread.name for thread in threading.enumerate()]
    dump_service.end()
    assert "horovod-dumps" not in [thread.name for thread in threading.enumerate()]
    assert not paths.ask(tmp_path, 1)


@pytest.mark.parametrize(
    "given", [{"dump_on_stall": False, "dump_signal": "none"}, {"size": 1}], ids=["switched off", "alone"]
)
def test_nobody_to_ask_it(core: Core, given: dict[str, Any]) -> None:
    dump_service.begin(session_of(core, **given))
    assert "horovod-dumps" not in [thread.name for thread in threading.enumerate()]


def test_a_stall_asks_for_nothing_when_that_is_switched_off(core: Core, tmp_path: Path) -> None:
    news = paths.open_own_pipe(tmp_path / paths.NEWS)
    dump_service.begin(session_of(core, tmp_path, dump_on_stall=False))
    core.call(STALL)
    time.sleep(0.05)
    core.call(1)
    assert heard(news) == b"1\n"
    os.close(news)
    assert files.read_dumps(tmp_path, [1])[0][1].reason == "signal"


def test_without_a_launcher_a_named_directory_keeps_it(core: Core, tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / ".dump-x").touch()
    os.utime(tmp_path / "kept" / ".dump-x", (0, 0))  # of a process that was killed
    dump_service.begin(session_of(core, dump_directory=str(tmp_path / "kept")))
    core.call(STALL)
    deadline_s = time.monotonic() + PATIENCE_S
    while "Its dump (stall)" not in (told := capfd.readouterr().err):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert str(tmp_path / "kept" / "dump.rank.1.txt") in told
    assert list(files.read_dumps(tmp_path / "kept", [1])[0]) == [1]
    assert not (tmp_path / "kept" / ".dump-x").exists()


def test_without_any_place_a_signal_prints_it(core: Core, capfd: Any) -> None:
    dump_service.begin(session_of(core))
    core.call(STALL)  # says nothing
    time.sleep(0.05)
    core.call(1)
    deadline_s = time.monotonic() + PATIENCE_S
    told = ""
    while "Main thread" not in told:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
        told += capfd.readouterr().err
    assert told.count("waits for allreduce 'w' (float32 2) for 61.5 s") == 1


def test_a_dump_that_cannot_be_written_ends_nothing(core: Core, tmp_path: Path, caplog: Any) -> None:
    news = paths.open_own_pipe(tmp_path / paths.NEWS)
    dump_service.begin(session_of(core, tmp_path))
    dump_file = paths.dump_file(tmp_path, 1)
    dump_file.mkdir()  # nothing can take its place
    core.call(1)
    deadline_s = time.monotonic() + PATIENCE_S
    while "could not write its dump" not in caplog.text:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    dump_file.rmdir()
    core.call(1)
    assert heard(news) == b"1\n"
    os.close(news)


def test_call_sites(core: Core) -> None:
    ops = (abi.HvdOp * 2)()
    ops[0].name, ops[1].name = b"allreduce.w", b""
    engine = call_sites.NotingEngine(Submits())  # type: ignore[arg-type]

    def submit_it() -> None:
        assert engine.submit(ctypes.addressof(ops), 2, 0, 7) == 2
        assert engine.run(ctypes.addressof(ops), 2, 0.0, 7) == 3

    submit_it()
    assert engine.poll(5) == 5
    assert call_sites.of(0, "allreduce.w").endswith(", in submit_it")
    assert __file__ in call_sites.of(0, "allreduce.noname.7")
    assert call_sites.of(0, "allreduce.other") == ""
    assert dump_writer.take(session_of(core), "stall", "").pending[0].call_site.endswith("in submit_it")


class Submits:
    """Of an engine, what call sites need."""

    def submit(self, ops: int, n: int, flags: int, handle: int) -> int:
        return n

    def run(self, ops: int, n: int, timeout_s: float, handle: int) -> int:
        return n + 1

    def poll(self, handle: int) -> int:
        return handle
