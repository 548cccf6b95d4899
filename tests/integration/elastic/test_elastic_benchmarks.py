"""The benchmarks of elastic jobs run and print their tables; what they measure beside other tests means nothing."""

from __future__ import annotations

import re

import pytest
from hosts.network import why_absent
from jobs import ROOT, python, run_well
from jobs.needs import needs

BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.slow
@needs("torch")
def test_commits() -> None:
    options = ("--frameworks", "torch,numpy", "--megabytes", 9, "--rounds", 6)
    output = run_well(python(BENCHMARKS / "elastic_commit.py", *options))
    assert re.findall(r"^ +(torch|numpy) +[\d.]+ +[\d.]+ .*\[.*\] +[\d.]+ .*\[.*\]$", output, re.M) == [
        "torch",
        "numpy",
    ]


@pytest.mark.slow
@needs("torch")
def test_overhead() -> None:
    output = run_well(python(BENCHMARKS / "elastic_overhead.py", "--rounds", 6, "--steps", 2, "--steps-per-commit", 2))
    assert re.search(r"^elastic - commits: -?[\d.]+ ms \[.*\], -?[\d.]+ % of the step \[.*\]$", output, re.M), output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_long_training_ends_when_all_ranks_are_there_again() -> None:
    """Its last fault is a link that is cut until a second before the time is over."""
    if reason := why_absent():
        pytest.skip(reason)
    options = ("--minutes", 0.86, "--every", 17, "--fault-free-minutes", 0.05)
    output = run_well(python(BENCHMARKS / "elastic_long.py", *options), patience_s=280)
    assert output.count("equal weights on 8 of 8 ranks, left behind: nothing") == 2, output
    again = r"1 times; the next step committed after [\d.]+ s \(.*\); all ranks there again after [\d.]+ s \(.*\)$"
    assert re.findall(rf"^  (kill|stop|cut): {again}", output, re.M) == ["kill", "stop", "cut"], output
    assert re.search(r"throughput kept: [\d.]+ %; lost: [\d.]+ % while nothing was committed, [\d.]+ % by", output)
