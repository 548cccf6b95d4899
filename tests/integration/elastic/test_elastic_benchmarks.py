"""The benchmarks of elastic jobs run and print their tables; what they measure beside other tests means nothing."""

from __future__ import annotations

import re

import pytest
from hosts.network import why_absent
from jobs import ROOT, python, run_well

BENCHMARKS = ROOT / "benchmarks"


@pytest.mark.slow
def test_recovery() -> None:
    output = run_well(python(BENCHMARKS / "elastic_recovery.py", "--ranks", "2,3", "--kills", 1, "--megabytes", 1))
    assert re.findall(r"^ +([23])(?: +[\d.e+]+){6}$", output, re.M) == ["2", "3"], output


@pytest.mark.slow
def test_over_hosts() -> None:
    if reason := why_absent():
        pytest.skip(reason)
    options = ("--hosts", 2, "--ranks-per-host", 1, "--faults", "kill,agent", "--times", 1)
    output = run_well(python(BENCHMARKS / "elastic_hosts.py", *options))
    assert re.findall(r"^\| 2 \| 2 \| (\w+) \| \d+ \| \d+ \| \d+ \|$", output, re.M) == ["kill", "agent"], output
