"""Ranks that use Horovod, on several hosts: they meet, they reduce, and they notice who is gone."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest
from jobs.traces import Trace

from .conftest import Hosts

SUM = """
    import horovod.numpy as hvd, numpy as np
    hvd.init()
    total = hvd.allreduce(np.full(1000, 1.0 + hvd.rank()), op=hvd.Sum)
    print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.cross_rank(), total[0])
"""
LOOP = """
    import horovod.numpy as hvd, numpy as np
    hvd.init()
    print("ready", flush=True)
    while True:
        hvd.allreduce(np.ones(1000), name="w")
"""


def python(code: str) -> list[str]:
    """Not isolated: Horovod and NumPy are to be found."""
    return [sys.executable, "-c", textwrap.dedent(code)]


def test_ranks_of_three_hosts_reduce(hosts: Hosts) -> None:
    ended = hosts("-np 5 -H host1:2,host2:2,host3:1", python(SUM))
    assert ended.code == 0, ended.err
    assert sorted(ended.out) == [
        "[0]<stdout>:0 5 0 0 15.0",
        "[1]<stdout>:1 5 1 0 15.0",
        "[2]<stdout>:2 5 0 1 15.0",
        "[3]<stdout>:3 5 1 1 15.0",
        "[4]<stdout>:4 5 0 2 15.0",
    ]


def test_all_ranks_on_one_other_host_are_seen_to_come(hosts: Hosts) -> None:
    ended = hosts("-np 2 -H host2:2", python(SUM))
    assert (ended.code, ended.troubles) == (0, [])
    late = "import os, time\nif os.environ['HOROVOD_RANK'] == '1': time.sleep(60)\n" + textwrap.dedent(SUM)
    ended = hosts("--start-timeout 3 -np 2 -H host2:2", [sys.executable, "-c", late], patience_s=30.0)
    assert ended.code == 1 and ended.seconds < 20.0
    assert "rank 1" in ended.err[-1].lower() and "3 s" in ended.err[-1], ended.err


def test_one_trace_holds_the_ranks_of_all_hosts(hosts: Hosts, tmp_path: Path) -> None:
    steps = """
        import time
        import horovod.numpy as hvd, numpy as np
        hvd.init()
        for step in range(20):
            time.sleep(0.03 * (hvd.rank() == 3))
            hvd.allreduce(np.ones(1000), name="w")
        hvd.shutdown()
    """
    path = tmp_path / "t.json"
    ended = hosts(f"-np 4 -H host1:2,host2:2 --timeline-filename {path}", python(steps))
    assert ended.code == 0, ended.err
    trace = Trace(path)
    assert trace.processes == {rank: f"rank {rank} (host{1 + rank // 2})" for rank in range(4)}
    waited = {}
    for rank in range(4):
        trace.check_flows(rank)
        waits = sorted(slice["dur"] for slice in trace.slices(rank, "NEGOTIATE_ALLREDUCE"))
        assert len(waits) >= 18  # the other host may learn of the trace too late for a first step
        waited[rank] = waits[len(waits) // 2]
        offset_us, error_us = trace.clock(rank)
        assert error_us is not None and abs(offset_us) <= error_us <= 50_000, (rank, offset_us, error_us)
        assert (error_us == 0) is (rank < 2)
    assert waited[3] < 10_000 and min(waited[rank] for rank in range(3)) > 20_000, waited


@pytest.mark.slow
def test_the_last_collective_before_shutdown_is_whole(hosts: Hosts) -> None:
    """Rank 1 carries the log to rank 2; once it has left, nobody says goodbye any more."""
    again = """
        import horovod.numpy as hvd, numpy as np
        for _ in range(40):
            hvd.init()
            total = hvd.allreduce(np.ones(2, np.float32), op=hvd.Sum)
            assert total[0] == 4
            hvd.shutdown()
        """
    ended = hosts("-np 4 -H host1:1,host2:2,host3:1", python(again))
    assert (ended.code, ended.troubles) == (0, [])


@pytest.mark.slow
@pytest.mark.parametrize(("interface", "code"), [("lo", 1), ("eth0", 0)])
def test_the_named_interface_is_the_one_that_ranks_use(hosts: Hosts, interface: str, code: int) -> None:
    ended = hosts(f"--network-interface {interface} -np 2 -H host1:1,host2:1", python(SUM))
    assert ended.code == code
    assert bool(code) == any("means a different machine on each host" in line for line in ended.err)


def test_a_rank_that_ends_before_init_is_named_by_the_others(hosts: Hosts) -> None:
    code = "import os\nif os.environ['HOROVOD_RANK'] == '1': os._exit(0)\n" + textwrap.dedent(SUM)
    ended = hosts("-np 2 -H host1:1,host2:1", [sys.executable, "-c", code], patience_s=20.0)
    assert ended.code == 1
    assert any("Rank 1 ended with code 0 and never called hvd.init()" in line for line in ended.err), ended.err


@pytest.mark.slow
@pytest.mark.parametrize("cut", [True, False])
def test_a_loss_in_the_middle_ends_every_rank_with_the_name(hosts: Hosts, cut: bool) -> None:
    network = hosts.network
    running = hosts.start("-np 4 -H host1:2,host2:2", python(LOOP))
    assert running.entered.stdout is not None
    for _ in range(4):
        assert b"ready" in running.entered.stdout.readline()
    began = time.monotonic()
    if cut:
        network.cut(network[2])
    else:
        ranks = [pid for pid, command in network[2].processes().items() if "while True" in command]
        os.kill(min(ranks), signal.SIGKILL)
    try:
        done = running.end(20.0)
        seconds = time.monotonic() - began
    finally:
        network.join(network[2])
    said = done.stderr.decode()
    assert done.returncode == (1 if cut else 137)
    assert seconds < (8.0 if cut else 3.0)
    # After a silence the launcher ends those that have not raised by then.
    assert cut or said.count("PeerLostError: ") >= 3, said
    assert all("rank 2" in line or "rank 3" in line for line in said.splitlines() if "PeerLostError: " in line), said
    assert "host2 (ranks 2, 3) was lost" in said if cut else "rank 2 (host2, pid " in said
    hosts.is_clean()
