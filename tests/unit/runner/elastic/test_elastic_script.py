"""Runs of a host discovery script: what it prints, and every way in which it fails."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import pytest

from horovod.runner.elastic.script import Script
from horovod.runner.machines.hosts import Host


def made(tmp_path: Path, text: str, **deadline: float) -> Script:
    path = tmp_path / "find.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Script(str(path), None, str(tmp_path), dict(os.environ), **deadline)


def run(script: Script) -> tuple[Host, ...] | None:
    """The only run, to its end."""
    try:
        return end_of_run(script)
    finally:
        script.close()


def end_of_run(script: Script) -> tuple[Host, ...] | None:
    """The next run, to its end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = script.serve()
        if found is not None or script.problem:
            return found
        poller = select.poll()
        poller.register(script.fd, select.POLLIN)
        poller.poll(max(0.0, script.next_s() - time.monotonic()) * 1000)
    raise AssertionError("the run has not ended")


def test_the_hosts_that_it_prints(tmp_path: Path) -> None:
    assert run(made(tmp_path, "echo a:2; echo b:1")) == (Host("a", 2), Host("b", 1))


def test_arguments_and_the_search_path(tmp_path: Path) -> None:
    assert run(Script("echo c:3", None, str(tmp_path), dict(os.environ))) == (Host("c", 3),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("echo what; exit 3", "failed with code 3: what"),
        ("echo a:1; echo why >&2; exit 3", "failed with code 3: why"),
        ("echo 'no host at all'", "line 1"),
        ("exec >&- 2>&-; sleep 60", "closed its output but did not exit, and was killed"),
        ("sleep 60", "did not end within 0.3 s, and was killed"),
        ("yes a:1", "prints more than 4 MiB"),
    ],
)
def test_a_run_that_fails_says_how(tmp_path: Path, text: str, words: str) -> None:
    script = made(tmp_path, text, **({"deadline_s": 0.3} if "0.3" in words else {}))
    assert run(script) is None
    assert words in script.problem


def test_one_that_is_not_there(tmp_path: Path) -> None:
    script = Script("./nothing", None, str(tmp_path), dict(os.environ))
    assert run(script) is None
    assert "cannot be executed: No such file or directory" in script.problem


def test_stderr_is_passed_on_and_names_no_hosts(tmp_path: Path) -> None:
    script = made(tmp_path, "echo 'Warning: added b:7 to the list' >&2; echo a:2; echo >&2; echo c >&2")
    assert run(script) == (Host("a", 2),)
    name = f"{tmp_path}/find.sh"
    assert script.written() == [f"{name}: Warning: added b:7 to the list", f"{name}: c"]
    assert script.written() == []


def test_a_line_of_stderr_that_comes_with_every_run_is_passed_on_once(tmp_path: Path) -> None:
    script = made(tmp_path, f"echo always >&2; test -e {tmp_path}/more && echo more >&2; echo a:2")
    assert end_of_run(script) and len(script.written()) == 1
    (tmp_path / "more").touch()
    assert end_of_run(script)
    assert script.written() == [f"{tmp_path}/find.sh: more"]
    script.close()


def test_much_stderr_stops_nobody_and_is_cut(tmp_path: Path) -> None:
    script = made(tmp_path, "yes warning | head -c 300000 >&2; echo a:2")
    assert run(script) == (Host("a", 2),)
    assert script.written() == [f"{tmp_path}/find.sh: warning"]


def test_stderr_that_another_process_holds_open_is_not_waited_for(tmp_path: Path) -> None:
    script = made(tmp_path, "sleep 5 >/dev/null & echo a:2")
    before = time.monotonic()
    assert run(script) == (Host("a", 2),)
    assert time.monotonic() - before < 4


def test_a_text_without_an_interpreter_is_run_by_the_shell(tmp_path: Path) -> None:
    path = tmp_path / "find.sh"
    path.write_text("echo a:$1\n")
    path.chmod(0o755)
    assert run(Script("./find.sh 3", None, str(tmp_path), dict(os.environ))) == (Host("a", 3),)


def test_problems_have_kinds(tmp_path: Path) -> None:
    kinds = []
    for text in ("echo '?1'", "echo '?2'", "exit 3", "exit 4"):
        script = made(tmp_path, text)
        run(script)
        kinds.append(script.kind)
    assert kinds == ["hosts", "hosts", "code 3", "code 4"]


def test_a_long_line_that_is_no_host_is_cut(tmp_path: Path) -> None:
    script = made(tmp_path, "head -c 100000 /dev/zero | tr '\\0' '?'")
    assert run(script) is None
    assert len(script.problem) < 700


_LAUNCHER = """
import os, time
from horovod.runner.elastic.script import Script
script = Script("./find.sh", None, ".", dict(os.environ))
while True:
    script.serve()
    time.sleep(0.01)
"""


def test_nothing_that_it_has_started_outlives_a_killed_launcher(tmp_path: Path) -> None:
    made(tmp_path, "sleep 60 & echo $! >pid.new; mv pid.new pid; wait")
    launcher = subprocess.Popen([sys.executable, "-c", _LAUNCHER], cwd=tmp_path)
    try:
        started = tmp_path / "pid"
        assert soon(started.exists)
    finally:
        launcher.kill()
        launcher.wait()
    assert soon(lambda: not is_running(int(started.read_text())))


def soon(condition: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + 20
    while not condition() and time.monotonic() < until_s:
        time.sleep(0.02)
    return condition()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
