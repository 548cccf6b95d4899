"""`horovod.run`: results, errors, and what it refuses."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import horovod
from horovod._core.errors import UnsupportedError

from .conftest import Horovodrun, alive


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOROVOD"):
            monkeypatch.delenv(name)


def test_results_are_in_order_of_ranks() -> None:
    offset = 10

    def work(factor: int, *, more: str) -> tuple[int, str, bool]:
        import os

        return offset + factor * int(os.environ["HOROVOD_RANK"]), more, "_HOROVOD_SECRET_KEY" in os.environ

    results = horovod.run(work, args=(2,), kwargs={"more": "x"}, num_proc=3)
    assert results == [(10, "x", True), (12, "x", True), (14, "x", True)]
    assert horovod.run is __import__("horovod.runner").runner.run


def test_objects_of_the_callers_modules_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_module_of_this_test.py").write_text(
        "class Thing:\n    value = 5\ndef make():\n    return Thing()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_module_of_this_test as module  # type: ignore[import-not-found]

    assert horovod.run(module.make)[0].value == 5


def test_an_exception_names_the_rank_and_has_its_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        import os

        if os.environ["HOROVOD_RANK"] == "1":
            raise LookupError("no such thing")

    with pytest.raises(RuntimeError) as caught:
        horovod.run(work, num_proc=2)
    text = str(caught.value)
    assert text.startswith("horovod.run: rank 1 (localhost, pid ")
    assert "exited with code 1" in text
    assert "Traceback" in text
    assert "LookupError: no such thing" in text
    capfd.readouterr()


def test_a_rank_that_dies_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"rank 0 \(localhost, pid \d+\) was killed by signal 9"):
        horovod.run(lambda: __import__("os").kill(__import__("os").getpid(), 9))
    with pytest.raises(RuntimeError, match="rank 0 ended with code 0 before the function returned"):
        horovod.run(lambda: __import__("os")._exit(0))


def test_output_is_prefixed_and_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    horovod.run(lambda: print("hello"), num_proc=2, output_filename=str(tmp_path / "o"))
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0]<stdout>:hello", "[1]<stdout>:hello"]
    assert (tmp_path / "o/rank.1/stdout").read_text() == "hello\n"


def test_in_a_thread_and_with_another_interpreter(tmp_path: Path) -> None:
    other = tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\nOTHER=yes exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    results: list[Any] = []

    def call() -> None:
        results.extend(horovod.run(lambda: __import__("os").environ.get("OTHER"), executable=str(other)))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert results == ["yes"]


def test_an_interrupt_stops_the_ranks_and_is_raised(horovodrun: Horovodrun) -> None:
    code = """
        import sys, os
        sys.path.insert(0, os.environ["PYTHONPATH"])
        import horovod
        def work():
            import os, time
            print(os.getpid(), flush=True)
            time.sleep(1000)
        try:
            horovod.run(work, num_proc=2)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    words = [sys.executable, "-c", textwrap.dedent(code)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=horovodrun.environ)
    assert process.stdout
    pids = [int(process.stdout.readline().partition(b":")[2]) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=30)
    assert stdout == b"interrupted\n"
    assert [pid for pid in pids if alive(pid)] == []
    assert list(horovodrun.place.iterdir()) == []


def test_a_killed_keeper_leaves_no_shared_memory(tmp_path: Path) -> None:
    def work() -> None:
        import os
        import time
        from multiprocessing import shared_memory

        memory = shared_memory.SharedMemory(create=True, size=4096)
        (tmp_path / "name").write_text(memory.name)
        os.kill(os.getppid(), 9)
        time.sleep(1000)

    with pytest.raises(RuntimeError, match="the process that keeps the ranks has died"):
        horovod.run(work)
    assert (tmp_path / "name").read_text() not in os.listdir("/dev/shm")


def test_nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    seen = horovod.run(lambda: __import__("os").environ["HOROVOD_RENDEZVOUS_DIR"])[0]
    assert seen.startswith("/tmp/horovodrun-")
    assert not os.path.exists(seen)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"hosts": "a:1", "hostfile": "f"}, ValueError, "hosts and hostfile exclude each other"),
        ({"use_gloo": True, "use_mpi": True}, ValueError, "use_gloo and use_mpi exclude each other"),
        ({"min_num_proc": 2}, ValueError, "--min-np is 2, more than the 1 processes to begin with"),
        ({"min_num_proc": 1, "use_mpi": True}, UnsupportedError, "Elastic jobs cannot be started by mpirun"),
        (
            {"num_proc": 0},
            ValueError,
            "horovod.run: num_proc must be an integer number of processes >= 1, or auto. Received: 0.",
        ),
        (
            {"num_proc": 2, "hosts": "localhost:1"},
            ValueError,
            "2 slots, but the hosts have 1 (localhost:1). Name more slots or lower num_proc.",
        ),
        ({"hosts": "no-such-host.invalid:1"}, RuntimeError, "no-such-host.invalid"),
    ],
)
def test_refused_arguments(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        horovod.run(int, **arguments)
    assert message in str(caught.value)


def test_verbose_says_what_the_launcher_does(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("horovod.runner")
    handlers, logger.handlers = logger.handlers, []
    root_handlers, logger.root.handlers = logger.root.handlers, []  # as in a program that sets up no logging
    before = logger.level, logger.propagate
    try:
        horovod.run(int, num_proc=2, verbose=True)
        told = capfd.readouterr().err
        assert re.search(r"horovod\.run: INFO: 2 ranks of .* with:\n.*num_proc = 2", told, re.DOTALL)
        assert re.search(r"horovod\.run: INFO: rank 1 started with pid \d+\n", told)
        assert re.search(r"horovod\.run: INFO: rank 1 \(localhost, pid \d+\) ended with code 0 after", told)
        assert (logger.handlers, logger.level, logger.propagate) == ([], *before)
        horovod.run(int)
        assert capfd.readouterr().err == ""
    finally:
        logger.handlers, logger.root.handlers = handlers, root_handlers


def test_verbose_leaves_it_to_the_users_logging(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    horovod.run(int, verbose=True)
    assert "rank 0 started with pid" in caplog.text
    assert "horovod.run: INFO" not in capfd.readouterr().err


def test_deprecated_arguments_warn_and_work() -> None:
    with pytest.warns(DeprecationWarning, match="np is deprecated; use num_proc"):
        assert horovod.run(lambda: 1, np=2) == [1, 1]
    with pytest.warns(DeprecationWarning, match="network_interface is deprecated"):
        assert horovod.run(lambda: __import__("os").environ["NCCL_SOCKET_IFNAME"], network_interface="lo,lo") == ["lo"]


def test_ranks_are_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    horovod.run(int, num_proc=2)
    assert capfd.readouterr() == ("", "")


# What a notebook's cell is to `horovod.run`: streams that name the descriptors of the kernel's own.
CELL = """
import io, sys
class Cell(io.TextIOBase):
    def __init__(self, own):
        self.own, self.text = own, ""
    def fileno(self):
        return self.own.fileno()
    def write(self, text):
        self.text += text
        if "up" in text:
            print("seen", file=sys.__stdout__, flush=True)
        return len(text)
sys.stdout, sys.stderr = Cell(sys.__stdout__), Cell(sys.__stderr__)
def work(seconds):
    import os, sys, time
    sys.stderr.write("\\r50%")
    sys.stderr.flush()
    sys.stderr.write("\\r100%\\n")
    print("up", os.environ["HOROVOD_RANK"], flush=True)
    time.sleep(seconds)
import horovod
try:
    horovod.run(work, args=(float(sys.argv[1]),), num_proc=2)
except KeyboardInterrupt:
    print("interrupted", file=sys.__stdout__)
print(sorted(sys.stdout.text.split("\\n")), file=sys.__stdout__)
print(sys.stderr.text.count("100%"), "50%" in sys.stderr.text, file=sys.__stdout__)
"""


def cell(seconds: float) -> subprocess.Popen[str]:
    """A process that runs it, in a group of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", CELL, str(seconds)], text=True, start_new_session=True, **pipes)


def test_output_and_progress_bars_appear_in_a_notebooks_cell() -> None:
    with cell(0.0) as kernel:
        out, err = kernel.communicate(timeout=60)
    assert kernel.returncode == 0 and not err, err
    assert out.splitlines()[-2:] == ["['', '[0]<stdout>:up 0', '[1]<stdout>:up 1']", "2 True"]


def test_ctrl_c_in_a_notebook_interrupts_the_cell() -> None:
    with cell(60.0) as kernel:
        assert kernel.stdout
        assert [kernel.stdout.readline() for _ in range(2)] == ["seen\n"] * 2
        os.killpg(kernel.pid, signal.SIGINT)  # as Jupyter interrupts a kernel
        out, err = kernel.communicate(timeout=30)
    assert kernel.returncode == 0 and "interrupted" in out and not err, (out, err)
