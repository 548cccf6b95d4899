"""A link that is gone for a while: a cut that is half a second shorter than --link-timeout is survived, and for one
that is 2 s longer the right host is named within a second and a half of the timeout.

One cut of each timeout is tried, chosen by HVD_TEST_SEED; with HVD_TEST_MATRIX=full (`make matrices`) all of them. Each
cut is that of four jobs: static and elastic, idle and in collectives of 64 MB. HVD_TEST_MATRIX_LOG names a file for
what became of each.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Callable

import pytest

from .conftest import Hosts
from .cuts import all_cuts, some_cuts, try_cut

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

SEED = int(os.environ.get("HVD_TEST_SEED") or random.randrange(1 << 16))
CUTS = all_cuts() if os.environ.get("HVD_TEST_MATRIX") == "full" else some_cuts(SEED)


# By their numbers: processes of pytest that know no common seed must collect the same tests.
@pytest.mark.parametrize("number", range(len(CUTS)))
def test_a_cut_is_survived_or_the_host_is_named(
    hosts: Hosts, record_property: Callable[[str, object], None], number: int
) -> None:
    cut = CUTS[number]
    record_property("seed", SEED)
    record_property("cut", str(cut))
    broken, records = [], []
    for job, result in try_cut(hosts, cut):
        why = result.broken(cut)
        records.append(f"{cut.timeout_s:g} {cut.seconds:.2f} {job.kind} {job.load} {result} {why and 'BROKEN: '}{why}")
        if why:
            broken.append(f"{job.kind} {job.load}: {why}\n{job.said}")
    if log := os.environ.get("HVD_TEST_MATRIX_LOG"):
        with Path(log).open("a") as file:
            file.write("\n".join([*records, ""]))
    assert not broken, f"HVD_TEST_SEED={SEED} {cut}\n" + "\n".join([*records, *broken])
