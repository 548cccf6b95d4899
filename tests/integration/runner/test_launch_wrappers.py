"""`horovod.runner.launch`, as wrappers use it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from horovod.runner.launch import _HorovodArgs, _run, run_commandline

from .conftest import Horovodrun


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HOROVOD"):
            monkeypatch.delenv(name)


def test_the_module_is_horovodrun(horovodrun: Horovodrun) -> None:
    words = [sys.executable, "-m", "horovod.runner.launch", "-np", "1", "sh", "-c", "echo $HOROVOD_SIZE; exit 5"]
    done = subprocess.run(words, env=horovodrun.environ, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (5, b"[0]<stdout>:1\n")
    assert b"RuntimeWarning" not in done.stderr


def test_the_command_line_raises_when_the_job_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run_commandline(["-np", "1", "true"])
    with pytest.raises(SystemExit) as caught:
        run_commandline(["-np", "1", "false"])
    assert caught.value.code == 1
    monkeypatch.setattr(sys, "argv", ["prog", "-np", "1", "sh", "-c", "exit 4"])
    with pytest.raises(SystemExit) as caught:
        run_commandline()
    assert caught.value.code == 4


def test_a_command_as_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    args = _HorovodArgs()
    args.num_proc = 2
    args.command = ["sh", "-c", "echo $HOROVOD_RANK"]
    _run(args)
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0]<stdout>:0", "[1]<stdout>:1"]
    args.command = ["sh", "-c", "exit 3"]
    with pytest.raises(RuntimeError, match="horovodrun: rank . .* exited with code 3"):
        _run(args)


def test_a_function_as_an_object() -> None:
    args = _HorovodArgs()
    args.num_proc = 2
    args.run_func = lambda: __import__("os").environ["HOROVOD_RANK"]
    assert _run(args) == ["0", "1"]
