"""A process that runs a job and lives on: nothing of the job is left in it, also when it cannot be started."""

from __future__ import annotations

import errno
import gc
import io
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.display.output import Outlet
from horovod.runner.interruption import taken_signals
from horovod.runner.job import Job, effective_settings, make_job, working_directory
from horovod.runner.launchers import local
from horovod.runner.launchers.base import Surroundings
from horovod.runner.machines.limits import allowed_descriptors
from horovod.runner.processes import keeper
from horovod.runner.processes.process import RankProcesses

SURROUNDINGS = Surroundings(io.StringIO(), io.StringIO())


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def a_job(*command: str) -> Job:
    return make_job(effective_settings({"num_proc": 2}, "argument", {}), command, dict(os.environ), "/")


def descriptors() -> dict[str, str]:
    gc.collect()  # else sockets of tests before this one are closed at any time
    found = {}
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.lexists(path):
            found[name] = os.readlink(path)
    return found


def children() -> list[str]:
    """The processes that this one has started, those among them that have ended and that nobody has waited for."""
    return [pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def refuse_the_fourth_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = os.pipe, []

    def pipe() -> tuple[int, int]:
        made.append(1)
        return real() if len(made) < 4 else refuse()

    monkeypatch.setattr(os, "pipe", pipe)


@pytest.mark.parametrize("missing", ["keeper", "socket", "pipe"])
def test_descriptors_of_a_job_that_cannot_be_started_are_closed(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = descriptors()
    with monkeypatch.context() as short:
        if missing == "keeper":
            short.setattr(subprocess, "Popen", refuse)
        elif missing == "socket":
            short.setattr(socket, "socketpair", refuse)
        else:
            refuse_the_fourth_pipe(short)
        with pytest.raises(OSError):
            local.LocalLauncher().run(a_job("/bin/true"), SURROUNDINGS)
    assert descriptors() == before


def test_a_job_that_cannot_be_followed_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def not_followed(job: Job, processes: RankProcesses, *_: Any) -> NoReturn:
        started.extend(each for each in children() if each not in others)
        raise RuntimeError("no")

    monkeypatch.setattr(local, "Supervision", not_followed)
    before, others = descriptors(), children()
    with pytest.raises(RuntimeError, match="no"):
        local.LocalLauncher().run(a_job(sys.executable, "-c", "import time; time.sleep(1000)"), SURROUNDINGS)
    assert started and not set(started) & set(children()), "the keeper runs on, or nobody has waited for it"
    assert descriptors() == before
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_in_a_stream_without_a_reader_does_not_keep_the_job_from_starting() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    stream.write("left")
    outlet = Outlet(stream)
    outlet.put(b"x")
    outlet.write_some()
    assert not outlet.waiting
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_the_callers_limit_of_open_files_is_given_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        with allowed_descriptors(50) as limits:
            assert limits == (200, before[1])
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (200, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_signals_of_others_go_on_to_whom_they_are_meant_for() -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        handler = signal.signal(signal.SIGUSR1, lambda *_: None)
        before = signal.set_wakeup_fd(writer.fileno())
        try:
            with taken_signals((signal.SIGUSR2,)) as (_, take):
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGUSR2)
                assert take() == [signal.SIGUSR2]
                assert reader.recv(9) == bytes([signal.SIGUSR1])
                signal.raise_signal(signal.SIGUSR1)
            assert reader.recv(9) == bytes([signal.SIGUSR1]), "what came last, too"
        finally:
            signal.set_wakeup_fd(before)
            signal.signal(signal.SIGUSR1, handler)


def test_a_second_ctrl_c_leaves_no_descriptor_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    put_back = signal.signal

    def interrupted(number: int, handler: Any) -> Any:
        before = put_back(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            signal.raise_signal(number)  # the user presses it again
        return before

    handlers = {signal.SIGINT: put_back(signal.SIGINT, signal.default_int_handler)}
    handlers[signal.SIGTERM] = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt), taken_signals((signal.SIGINT, signal.SIGTERM)) as (_, take):
            signal.raise_signal(signal.SIGINT)
            assert take() == [signal.SIGINT]
            monkeypatch.setattr(signal, "signal", interrupted)
        assert signal.set_wakeup_fd(-1) == -1
        assert signal.getsignal(signal.SIGTERM) is handlers[signal.SIGTERM]
    finally:
        for number, handler in handlers.items():
            put_back(number, handler)


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidArgumentError, match="working directory.* has been removed"):
        working_directory()


def test_a_keeper_that_hears_nothing_removes_the_directory_too(tmp_path: Path) -> None:
    directory = tmp_path / "home" / "job"
    directory.mkdir(parents=True)
    ours, theirs = socket.socketpair()
    with theirs:
        words = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno()), str(os.getpid()), str(directory)]
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        ours.close()
    assert process.wait(timeout=30) == 0
    assert list(tmp_path.iterdir()) == []
