"""Ranks that are to run an installed Horovod fail with another one (tests/jobs/installed.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import ROOT, python, run
from jobs.installed import VARIABLE
from jobs.needs import needs

CODE = """
import sys
import horovod.numpy as hvd
from jobs.installed import require_installed
if "core" in sys.argv:
    hvd.init()
require_installed()
"""


@pytest.mark.parametrize(
    ("folder", "words", "wrong"),
    [
        ("", (), ""),
        (str(ROOT / "python"), ("core",), ""),
        (str(ROOT / "python"), (), "Horovod is not that of"),  # without its core
        ("/nowhere", ("core",), "libhorovod.so"),
    ],
)
def test_the_package_and_its_libraries_lie_below_the_folder(folder: str, words: tuple[str, ...], wrong: str) -> None:
    ended = run(python("-c", CODE, *words), {VARIABLE: folder})
    assert (ended.code != 0) == bool(wrong), str(ended)
    assert wrong in ended.stderr


@pytest.mark.parametrize(
    ("script", "target", "part", "framework"),
    [
        ("worker.py", "numpy", "sets", "numpy"),
        pytest.param(
            *("tensorflow_worker.py", "eager", "gradients", "tensorflow"),
            marks=[pytest.mark.slow, needs("tensorflow")],
        ),
    ],
)
def test_ranks_of_the_contract_check_it(script: str, target: str, part: str, framework: str, tmp_path: Path) -> None:
    words = (ROOT / "tests" / "contract" / script, "--target", target, "--directory", tmp_path, part)
    ended = run(python(*words, warm=framework), {VARIABLE: "/nowhere"})
    assert ended.code == 1 and "Horovod is not that of /nowhere" in str(ended.of("contract")), str(ended)
