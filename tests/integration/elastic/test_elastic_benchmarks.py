"""The benchmarks of elastic jobs run and print their tables; what they measure beside other tests means nothing."""

from __future__ import annotations

import importlib.util
import re

import pytest
from jobs import ROOT, python, run_well

BENCHMARKS = ROOT / "benchmarks"
TORCH = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed.")


@pytest.mark.slow
@TORCH
def test_commits() -> None:
    options = ("--frameworks", "torch,numpy", "--megabytes", 9, "--rounds", 6)
    output = run_well(python(BENCHMARKS / "elastic_commit.py", *options))
    assert re.findall(r"^ +(torch|numpy) +[\d.]+ +[\d.]+ .*\[.*\] +[\d.]+ .*\[.*\]$", output, re.M) == [
        "torch",
        "numpy",
    ]


@pytest.mark.slow
@TORCH
def test_overhead() -> None:
    output = run_well(python(BENCHMARKS / "elastic_overhead.py", "--rounds", 6, "--steps", 2, "--steps-per-commit", 2))
    assert re.search(r"^elastic - commits: -?[\d.]+ ms \[.*\], -?[\d.]+ % of the step \[.*\]$", output, re.M), output
