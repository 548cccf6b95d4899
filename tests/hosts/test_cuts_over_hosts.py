"""A link that is gone for a while: a cut that is half a second shorter than --link-timeout is survived, and for one
that is 2 s longer the right host is named within a second and a half of the timeout.

One cut of each timeout is tried, chosen by HVD_TEST_SEED; with HVD_TEST_MATRIX=full (`make matrices`) all of them. Each
cut is that of four jobs: static and elastic, idle and in collectives of 64 MB. HVD_TEST_MATRIX_LOG names a file for
what became of each.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

import matrices
import pytest

from .conftest import Hosts
from .cuts import CutJob, all_cuts, some_cuts, try_cut, until

pytestmark = [pytest.mark.slow, pytest.mark.matrix]

SEED = matrices.seed()
CUTS = all_cuts() if matrices.whole() else some_cuts(SEED)


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
    assert not broken, f"{matrices.repeated()} {cut}\n" + "\n".join([*records, *broken])


def test_where_no_datagram_passes_the_stream_counts(hosts: Hosts) -> None:
    """A firewall lets TCP alone through: short cuts are survived all the same, long ones are noticed later."""
    network = hosts.network
    network[1].enter("ip", "route", "add", "blackhole", "default", "table", "77")
    network[1].enter("ip", "rule", "add", "ipproto", "udp", "table", "77")
    jobs = [CutJob(hosts, "static", load, 2.0) for load in ("idle", "busy")]
    try:
        until(lambda: all(job.begun for job in jobs))
        network.cut(network[2])
        time.sleep(1.5)
        network.join(network[2])
        time.sleep(6.0)  # longer than the stream may be silent
        assert all(job.running.entered.poll() is None for job in jobs), [job.said for job in jobs]
        began_s = time.monotonic()
        network.cut(network[2])
        for result in [job.result(began_s) for job in jobs]:
            assert "host2 (rank 1) was lost" in result.named, result
            assert result.named_s is not None and 2 * 2.0 + 1.0 < result.named_s < 2 * 2.0 + 3.0, result
    finally:
        network.join(network[2])
        network[1].enter("ip", "rule", "del", "ipproto", "udp", "table", "77")
        network[1].enter("ip", "route", "flush", "table", "77")
        for job in jobs:
            job.close()
