"""What `horovodrun` makes of a command and of what was asked for, before anything runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT, Horovodrun

SCRIPT = "import sys\nprint(sys.executable, *sys.argv[1:])\n"


def test_a_script_runs_with_this_python(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    done = horovodrun("-np 1", ["mine.py", "a"], cwd=tmp_path)
    assert done.stdout.decode() == f"[0]<stdout>:{sys.executable} a\n"
    (tmp_path / "mine.py").chmod(0o755)  # it still says nothing of an interpreter
    assert horovodrun("-np 1", ["./mine.py"], cwd=tmp_path).returncode == 0


def test_a_script_that_names_its_interpreter_keeps_it(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("#!/bin/sh\necho the shell\n")
    (tmp_path / "mine.py").chmod(0o755)
    assert horovodrun("-np 1", ["./mine.py"], cwd=tmp_path).stdout == b"[0]<stdout>:the shell\n"


def test_a_script_that_is_not_there(horovodrun: Horovodrun, tmp_path: Path) -> None:
    done = horovodrun("-np 1", ["mine.py"], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.decode() == f"horovodrun: error: The script 'mine.py' is not found in {tmp_path}.\n"


def test_the_folder_of_a_timeline_is_made(horovodrun: Horovodrun, tmp_path: Path) -> None:
    for told in (1, 0):
        done = horovodrun("-np 1 --timeline-filename a/b/t.json", ["true"], cwd=tmp_path)
        assert done.returncode == 0 and (tmp_path / "a/b").is_dir()
        assert done.stderr.decode().count(f"the folder {tmp_path}/a/b of the timeline did not exist") == told
    (tmp_path / "file").touch()
    done = horovodrun("-np 1 --timeline-filename file/t.json", ["true"], cwd=tmp_path)
    assert (done.returncode, b"The folder of the timeline file/t.json cannot be created" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--network-interface nosuch0", "this machine has no such network interface; it has "),
        ("--thread-affinity 99999", "no thread may run on core 99999"),
        ("--thread-affinity 0,0", "names 2 cores for 3 ranks; give one core per local rank"),
        ("--hostfile /dev/zero", "The hostfile /dev/zero is larger than 4 MiB; is it the right file?"),
        ("--config-file /dev/zero", "--config-file /dev/zero is larger than 65536 bytes"),
    ],
)
def test_what_this_machine_cannot_do_is_refused(horovodrun: Horovodrun, options: str, message: str) -> None:
    done = horovodrun(f"-np 3 {options}", ["true"])
    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-np 1 --hierarchical-allreduce", "--hierarchical-allreduce has no effect on one host"),
        ("-np 1 --autotune-log-file x.csv", "--autotune-log-file has no effect without --autotune."),
        ("-np 1 --timeline-mark-cycles", "--timeline-mark-cycles has no effect without --timeline-filename."),
        (f"-np {5 * len(os.sched_getaffinity(0))}", "so they will take turns"),
    ],
)
def test_what_does_nothing_here_is_said(horovodrun: Horovodrun, options: str, message: str) -> None:
    done = horovodrun(options, ["true"])
    assert done.returncode == 0
    assert message in done.stderr.decode().splitlines()[0]


def test_and_said_as_the_user_has_spelled_it(horovodrun: Horovodrun) -> None:
    horovodrun.environ["HOROVOD_TORUS_ALLREDUCE"] = "1"
    done = horovodrun("-np 1", ["true"])
    assert done.returncode == 0
    assert b"WARNING: HOROVOD_TORUS_ALLREDUCE has no effect on one host" in done.stderr


def test_keys_of_other_versions_are_a_warning(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("logging:\n  hide_timestamp: true\n")
    done = horovodrun(f"-np 1 --config-file {tmp_path}/c.yaml", ["true"])
    assert done.returncode == 0
    assert b"'logging.hide_timestamp' is not a key that Horovod knows, so it has no effect." in done.stderr


def test_an_interrupt_during_the_imports_shows_no_traceback(tmp_path: Path) -> None:
    # A module that the launcher imports interrupts it.
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT / 'python'}"}
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner", "-np", "1", "true"], env=environ, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, b"")
