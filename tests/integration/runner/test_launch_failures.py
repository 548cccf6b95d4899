"""What a person reads when a real job fails: the cause first, each traceback once."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from .conftest import Horovodrun

HEAD = """
import os, sys
import numpy as np
import horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(2), name="first")
"""


def run(horovodrun: Horovodrun, place: Path, options: str, code: str) -> list[str]:
    (place / "train.py").write_text(HEAD + code)
    done = horovodrun(options, [sys.executable, str(place / "train.py")])
    assert done.returncode == 1, done.stderr
    return done.stderr.decode().splitlines()


@pytest.mark.parametrize("leaving", ["sys.exit(0)", "hvd.shutdown(); os._exit(0)", "os._exit(0)"])
def test_a_rank_that_leaves_early_is_named_before_its_victim(
    horovodrun: Horovodrun, tmp_path: Path, leaving: str
) -> None:
    code = f"if hvd.rank() == 1:\n    {leaving}\nhvd.allreduce(np.ones(2), name='second')\n"
    lines = run(horovodrun, tmp_path, "-np 2", code)
    story = next(line for line in lines if line.startswith("horovodrun: rank"))
    assert re.match(
        r"horovodrun: rank 1 \(localhost, pid \d+\) ended with code 0 after \d+\.\d s, while others still needed it; "
        r"then rank 0 \(localhost, pid \d+\) exited with code 1 after",
        story,
    )


def test_the_same_traceback_of_many_ranks_is_shown_once(horovodrun: Horovodrun, tmp_path: Path) -> None:
    lines = run(horovodrun, tmp_path, "-np 4", "raise ValueError('loss is nan')\n")
    shown = [line for line in lines if "<stderr>:Traceback" in line]
    same = [line for line in lines if "ValueError: loss is nan (the same traceback as rank " in line]
    assert (len(shown), len(same)) == (1, 3)
    lines = run(horovodrun, tmp_path, "-np 4 --verbose", "raise ValueError('loss is nan')\n")
    assert len([line for line in lines if "<stderr>:Traceback" in line]) == 4


def test_frames_inside_horovod_are_left_out(horovodrun: Horovodrun, tmp_path: Path) -> None:
    code = "if hvd.rank() == 1:\n    os._exit(3)\nhvd.allreduce(np.ones(2), name='second')\n"
    (tmp_path / "train.py").write_text(HEAD + code)
    done = horovodrun("-np 2", [sys.executable, str(tmp_path / "train.py")])
    assert done.returncode == 3
    text = done.stderr.decode()
    assert re.search(r"\[0\]<stderr>:  \.\.\. \d+ frames? of Horovod itself; --verbose shows (it|them)\n", text)
    assert "_core" not in text.replace("horovod._core.errors.PeerLostError", "")
