"""Why a process is alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from horovod._net.clusters import lone

POD = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "job-master-0"}


def test_numbers_of_pods_are_no_ranks() -> None:
    text = lone.numbers_of_nodes(POD)
    assert text.startswith("WORLD_SIZE=2, RANK=0 and MASTER_ADDR are set, but LOCAL_RANK is not") and "alone" in text
    for name in POD:
        assert lone.numbers_of_nodes({key: value for key, value in POD.items() if key != name}) == ""
    for other in ({"WORLD_SIZE": "1"}, {"WORLD_SIZE": "many"}, {"RANK": ""}):
        assert lone.numbers_of_nodes({**POD, **other}) == ""


@pytest.mark.parametrize(
    ("line", "directory"),
    [
        ("python -I -S /x/horovod/runner/processes/keeper.py 17 42 /run/h/launch-9ea2", "/run/h/launch-9ea2"),
        ("python -I -S /x/horovod/runner/processes/keeper.py 17 42 /run/other", ""),
        ("python -I -S /x/horovod/runner/processes/keeper.py 17 /run/launch-9ea2", ""),
        ("vi /x/horovod/runner/processes/keeper.py", ""),
        ("python train.py", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_command_line_of_a_keeper(line: str, directory: str) -> None:
    assert lone.keeper_of("\0".join([*line.split(), ""]).encode()) == directory


def test_who_is_below_a_keeper_leaves_a_mark(tmp_path: Path) -> None:
    """A stand-in that has a keeper's command line."""
    keeper, directory = tmp_path / "horovod/runner/processes/keeper.py", tmp_path / "launch-4711"
    keeper.parent.mkdir(parents=True)
    directory.mkdir()
    ask = "from horovod._net.clusters import lone; found = lone.keeper_above(); lone.leave_mark(found); print(found)"
    keeper.write_text(f"import subprocess, sys\nsubprocess.run(['sh', '-c', '\"$0\" -c \"{ask}\"; :', sys.executable])")
    with subprocess.Popen([sys.executable, keeper, "3", "4", directory], stdout=subprocess.PIPE) as process:
        said = process.communicate(timeout=30)[0].decode()
    assert said == f"Keeper(pid={process.pid}, directory='{directory}')\n"
    assert [path.name.rstrip("0123456789") for path in directory.iterdir()] == [lone.MARK]
    lone.leave_mark(lone.Keeper(1, str(directory / "gone")))  # may not be possible
    assert lone.keeper_above() is None or "HOROVOD_RANK" in os.environ
