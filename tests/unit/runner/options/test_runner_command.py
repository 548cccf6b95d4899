"""From the command that the user wrote to a program; what is said when there is none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.processes.command import executable


def test_programs_and_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("pass\n")
    assert executable(("sh", "-c", "true"), "/bin:/usr/bin", "/")[1] == ("sh", "-c", "true")
    assert executable(("train.py", "a"), "/bin", str(tmp_path)) == (sys.executable, (sys.executable, "train.py", "a"))
    (tmp_path / "train.py").write_text("#!/bin/sh\n")
    (tmp_path / "train.py").chmod(0o755)
    assert executable(("./train.py",), "/bin", str(tmp_path)) == (f"{tmp_path}/./train.py", ("./train.py",))


@pytest.mark.parametrize("python", ["python", "python3", "./python3.11"])
def test_a_script_that_a_python_would_not_find(python: str, tmp_path: Path) -> None:
    (tmp_path / python).symlink_to(sys.executable)
    with pytest.raises(InvalidArgumentError) as caught:
        executable((python, "trian.py"), str(tmp_path), str(tmp_path))
    assert str(caught.value) == f"The script 'trian.py' is not found in {tmp_path}."
    (tmp_path / "train.py").touch()
    for command in ((sys.executable, "train.py"), (sys.executable, "-u", "trian.py"), ("sh", "trian.py")):
        assert executable(command, "/bin:/usr/bin", str(tmp_path))[1] == command
    # Another machine may have it.
    assert executable((sys.executable, "trian.py"), "/bin", str(tmp_path), runs_here=False)[1][1] == "trian.py"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("no-such-command", "'no-such-command' is not found."),
        ("train.py", "The script 'train.py' is not found in "),
        ("./folder", "is a folder; name the program to run."),
        ("./data", r"is not executable; run chmod +x ./data, or put its interpreter before it."),
        ("python train.py", "Leave the quotes out, or have a shell read them: sh -c 'python train.py'"),
        ("A=b", "Variables come before horovodrun, or write: env A=b ..."),
    ],
)
def test_what_is_said_when_there_is_no_such_program(word: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "data").touch()
    with pytest.raises(InvalidArgumentError) as caught:
        executable((word,), "/bin:/usr/bin", str(tmp_path))
    assert message in str(caught.value)
