"""Runs of a host discovery script: what it prints, and every way in which it fails."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import pytest

from horovod.runner.elastic.script import Script
from horovod.runner.hosts import Host


def made(tmp_path: Path, text: str, **deadline: float) -> Script:
    path = tmp_path / "find.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Script(str(path), None, str(tmp_path), dict(os.environ), **deadline)


def run(script: Script) -> tuple[Host, ...] | None:
    """One run, to its end."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = script.serve()
        if found is not None or script.problem:
            script.close()
            return found
        poller = select.poll()
        if script.fd >= 0:
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
        ("echo 'no host at all'", "line 1"),
        ("exec >&- 2>&-; sleep 60", "has closed its output and not ended, and was killed"),
        ("sleep 60", "has not ended within 0.3 s, and was killed"),
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
