"""A link that is gone for a while: a cut that is half a second shorter than --link-timeout is survived, and for one
that is 2 s longer the right host is named within a second and a half of the timeout.

One cut of each timeout is tried, chosen by HVD_TEST_SEED; with HVD_TEST_MATRIX=full (`make matrices`) all of them. Each
cut is that of four jobs: static and elastic, idle and in collectives of 64 MB. HVD_TEST_MATRIX_LOG names a file for
what became of each.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import matrices
import pytest

from ..conftest import Hosts
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
    with contextlib.ExitStack() as undo:
        undo.enter_context(without_datagrams(hosts))
        jobs = [CutJob(hosts, "static", load, 2.0) for load in ("idle", "busy")]
        for job in jobs:
            undo.callback(job.close)
        undo.callback(network.join, network[2])
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


def test_where_no_datagram_passes_a_keeper_waits_for_its_agent_as_long_as_the_launcher_does(hosts: Hosts) -> None:
    """An agent that stands still for 5 s has not been given up by then: --link-timeout is 2 s, so that takes 6 s."""
    with without_datagrams(hosts), contextlib.closing(CutJob(hosts, "static", "idle", 2.0)) as job:
        until(lambda: job.begun)
        time.sleep(1.5)  # a beat has told the keeper how long to wait
        processes = hosts.network[2].processes()
        (agent,) = [
            pid for pid, words in processes.items() if "-m horovod.runner.remote.agent" in words and "ssh" not in words
        ]
        os.kill(agent, signal.SIGSTOP)
        time.sleep(5.0)
        os.kill(agent, signal.SIGCONT)
        time.sleep(2.0)
        assert job.running.entered.poll() is None, job.said


@contextlib.contextmanager
def without_datagrams(hosts: Hosts) -> Iterator[None]:
    """A firewall lets TCP alone through from the launcher's host."""
    host = hosts.network[1]
    host.enter("ip", "route", "add", "blackhole", "default", "table", "77")
    host.enter("ip", "rule", "add", "ipproto", "udp", "table", "77")
    try:
        yield
    finally:
        host.enter("ip", "rule", "del", "ipproto", "udp", "table", "77")
        host.enter("ip", "route", "flush", "table", "77")
