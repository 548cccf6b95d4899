"""A link that is gone for a while: a cut that is half a second shorter than --link-timeout is survived, and for one
that is 2 s longer the right host is named within a second and a half of the timeout.

One cut of each timeout is tried, chosen by HVD_TEST_SEED; with HVD_TEST_MATRIX=full (`make matrices`) all of them. Each
cut is that of four jobs: static and elastic, idle and in collectives of 64 MB.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from .conftest import Hosts
from .cuts import Cut, all_cuts, some_cuts, try_cut

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

SEED = int(os.environ.get("HVD_TEST_SEED") or random.randrange(1 << 16))
FULL = os.environ.get("HVD_TEST_MATRIX") == "full"


@pytest.mark.parametrize(
    "cut", all_cuts() if FULL else some_cuts(SEED), ids=lambda cut: "-".join(map("{:.4g}".format, cut))
)
def test_a_cut_is_survived_or_the_host_is_named(hosts: Hosts, cut: Cut) -> None:
    print(f"HVD_TEST_SEED={SEED}")
    broken = []
    for job, result in try_cut(hosts, cut):
        record = f"{cut.timeout_s:g} {cut.seconds:.2f} {job.kind} {job.load} {result}"
        print(record)
        if log := os.environ.get("HVD_TEST_MATRIX_LOG"):
            with Path(log).open("a") as file:
                file.write(f"{record}{' BROKEN: ' if result.broken(cut) else ''}{result.broken(cut)}\n")
        if why := result.broken(cut):
            broken.append(f"{job.kind} {job.load}: {why}\n{job.said}")
    assert not broken, f"HVD_TEST_SEED={SEED} {cut}\n" + "\n".join(broken)
