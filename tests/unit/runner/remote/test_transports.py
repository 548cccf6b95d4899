"""What every way to an agent promises: on this machine, over ssh, by TCP."""

from __future__ import annotations

import io
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, Optional

import pytest
from agent_ways import LINK_TIMEOUT_S, PATIENCE_S, WAYS, Reached, job_on, slots_on

import horovod
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.elastic import ElasticLauncher
from horovod.runner.launchers.over_hosts import HostsLauncher
from horovod.runner.machines.hosts import Host
from horovod.runner.remote.launcher_side.fleet import Fleet
from horovod.runner.remote.launcher_side.link import Link, State, Way

# Of a rank: its parent is the keeper, whose parent is the agent. One rank does it: to the second the keeper's parent
# might be this process already.
KILL_THE_AGENT = """
[ $HOROVOD_RANK = 0 ] || exec sleep 60
read -r _ _ _ agent _ < /proc/$PPID/stat
kill -9 $agent
sleep 60
"""

GROWS = """
import pathlib, sys, time
import numpy as np
import horovod.numpy as hvd
hvd.init()
@hvd.elastic.run
def train(state):
    while hvd.size() < 2 or state.steps < 5:
        hvd.allreduce(np.ones(1), name="x")
        state.steps += 1
        if state.steps == 3:
            pathlib.Path(sys.argv[1]).touch()
        state.commit()
        time.sleep(0.02)
train(hvd.elastic.ObjectState(steps=0))
print("ends as", hvd.rank(), "of", hvd.size())
"""


class Growing(HostSource):
    """Names one slot, and a second one when a rank has trained for some steps."""

    name = "the cluster"

    def __init__(self, host: str, trained: Path) -> None:
        self._host, self._trained, self._named = host, trained, 0

    def wake(self, poller: select.epoll) -> None:
        """By time alone."""

    def next_s(self) -> Optional[float]:
        return time.monotonic() + 0.05

    def serve(self) -> Optional[tuple[Host, ...]]:
        if self._named == 2 or (self._named and not self._trained.exists()):
            return None
        self._named += 1
        return (Host(self._host, self._named),)

    def close(self) -> None:
        """Nothing is open."""


def until(fleet: Fleet, over: Callable[[Link], bool]) -> Link:
    """Turns until this holds for the only link."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not over(fleet.links[0]):
        assert time.monotonic() < deadline_s, fleet.links[0].state
        fleet.turn()
        time.sleep(0.002)
    return fleet.links[0]


class TestEveryTransport:
    """The same for all."""

    @pytest.fixture(params=list(WAYS))
    def reached(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reached]:
        with WAYS[request.param](tmp_path) as made:
            yield made

    def fleet(self, reached: Reached, host: str) -> Fleet:
        return Fleet([Way(reached.transport, host, slots_on(host), LINK_TIMEOUT_S)])

    def run(self, reached: Reached, script: str) -> tuple[Outcome, str, str]:
        job = job_on(reached.host, "sh", "-c", script)
        stdout, stderr = io.StringIO(), io.StringIO()
        outcome = HostsLauncher(lambda _: reached.transport).run(job, Surroundings(stdout, stderr))
        return outcome, stdout.getvalue(), stderr.getvalue()

    def test_it_says_how_it_reaches_a_host_and_sees_no_obstacle(self, reached: Reached) -> None:
        assert reached.transport.why_not([reached.host]) == ""
        assert reached.transport.remarks() == []
        (station,) = HostsLauncher(lambda _: reached.transport).stations(job_on(reached.host))
        assert station.ranks == (0, 1) and station.way == f"by {reached.transport.described(reached.host)}"

    def test_an_agent_introduces_itself_and_ends_when_its_launcher_hangs_up(self, reached: Reached) -> None:
        fleet = self.fleet(reached, reached.host)
        link = until(fleet, lambda link: link.state is not State.CALLED)
        assert link.state is State.GREETED and link.hello["version"] == horovod.__version__
        began_s = time.monotonic()
        fleet.close()
        assert link._connection.ended() and time.monotonic() - began_s < LINK_TIMEOUT_S

    def test_a_whole_job(self, reached: Reached) -> None:
        script = "echo rank $HOROVOD_RANK of $HOROVOD_SIZE; head -c 300000 /dev/zero | tr '\\0' x; echo; exit 0"
        outcome, out, _ = self.run(reached, script)
        assert outcome.exit_code == 0 and len(outcome.exits) == 2
        assert sorted(line for line in out.splitlines() if " of 2" in line) == [
            "[0]<stdout>:rank 0 of 2",
            "[1]<stdout>:rank 1 of 2",
        ]
        assert out.count("x") == 600000

    def test_a_rank_that_fails(self, reached: Reached) -> None:
        outcome, _, _ = self.run(reached, "[ $HOROVOD_RANK = 0 ] && exit 0; exit 7")
        assert outcome.exit_code == 7 and "rank 1" in outcome.message

    def test_an_agent_that_dies_is_lost_with_its_host(self, reached: Reached) -> None:
        outcome, _, _ = self.run(reached, KILL_THE_AGENT)
        assert f"{reached.host} (ranks 0, 1) was lost: the connection to it has ended" in outcome.message
        assert outcome.exit_code != 0

    def test_a_host_that_does_not_answer_is_given_up_and_may_come(self, reached: Reached) -> None:
        fleet = self.fleet(reached, reached.silence())
        link = fleet.links[0]
        for _ in range(20):
            fleet.turn()
            time.sleep(0.01)
        assert link.state is State.CALLED
        link.give_up()
        assert link.state is State.LOST and "(--start-timeout)" in link.why and link.absent
        began_s = time.monotonic()
        fleet.close()
        assert link._connection.ended() and time.monotonic() - began_s < 2.0

    def test_an_elastic_job_grows_by_a_source_of_others(self, reached: Reached, tmp_path: Path) -> None:
        trained = tmp_path / "trained"
        words = (sys.executable, "-c", GROWS, str(trained))
        job = job_on(reached.host, *words, ranks=1, elastic=True, min_num_proc=1, max_num_proc=2)
        launcher = ElasticLauncher(lambda _: Growing(reached.host, trained), lambda _: reached.transport)
        stdout, stderr = io.StringIO(), io.StringIO()
        outcome = launcher.run(job, Surroundings(stdout, stderr))
        assert outcome.exit_code == 0, stderr.getvalue()
        assert sorted(line.partition(":")[2] for line in stdout.getvalue().splitlines()) == [
            "ends as 0 of 2",
            "ends as 1 of 2",
        ]
