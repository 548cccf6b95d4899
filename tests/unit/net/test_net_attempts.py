"""Which attempts to meet count: ranks agree on it, whatever has failed and on whichever of them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import time

import pytest
from net_ranks import REGION_BYTES, connect_all, connected, in_threads, open_descriptors, placements

from horovod._net.bootstrap import Ways, bootstrap
from horovod._net.connections import Connections
from horovod._net.failures import ConnectError, NetError
from horovod._net.meeting import deaths


def close(results: list) -> None:
    for result in results:
        result.close()


def test_ranks_that_have_met_among_themselves_meet_all_others(private_base: pathlib.Path) -> None:
    jobs = placements(3)
    for ranks in ([0, 1], [1, 2], [0, 1, 2], [2, 0, 1]):
        close(connected([jobs[rank].restricted_to(ranks) for rank in ranks]))
    close(connected(jobs))


@pytest.mark.parametrize("directory_of_launcher", [True, False])
def test_a_rank_that_waited_in_vain_meets_the_others_later(
    private_base: pathlib.Path, directory_of_launcher: bool
) -> None:
    jobs = placements(3, meeting_directory=str(private_base) if directory_of_launcher else None)
    for early in (jobs[:1], jobs[1:], jobs[:2]):
        assert all(isinstance(result, ConnectError) for result in connect_all(early, timeout_s=0.1))
    close(connected(jobs))


@pytest.mark.parametrize("transport", ["auto", "tcp"])
def test_an_engine_that_does_not_start_is_known_at_once_everywhere(private_base: pathlib.Path, transport: str) -> None:
    def fail(connections: Connections) -> None:
        raise ValueError("no room for a trace")

    jobs = placements(3)
    connected(placements(2))[0].close()  # lets lazily opened descriptors appear
    before = open_descriptors()
    begin = time.monotonic()
    options = {"epoch": 0, "region_bytes": REGION_BYTES, "timeout_s": 60, "ways": Ways(transport)}
    results = in_threads(
        [
            lambda: bootstrap(jobs[0], **options),
            lambda: bootstrap(jobs[1], start=fail, **options),
            lambda: bootstrap(jobs[2], **options),
        ]
    )
    assert time.monotonic() - begin < 20
    assert isinstance(results[1], ValueError)
    for result in (results[0], results[2]):
        assert isinstance(result, ConnectError) and result.ranks == (1,)
        assert "Rank 1" in str(result) and "no room for a trace" in str(result)
    assert len(open_descriptors() - before) == len(jobs), "the claims alone"
    close(connected(jobs, transport=transport))
    assert os.listdir(private_base) == []


def test_a_rank_that_gives_up_last_does_so_for_all(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = deaths.Deaths.agree

    def agree(of: deaths.Deaths) -> None:
        of.tell(1, "its time was over")  # of a rank that nobody had heard yet
        real(of)

    jobs = placements(2)
    monkeypatch.setattr(deaths.Deaths, "agree", agree)
    assert all("its time was over" in str(result) for result in connect_all(jobs))
    monkeypatch.setattr(deaths.Deaths, "agree", real)
    close(connected(jobs))


def test_ranks_meet_after_any_failures(private_base: pathlib.Path) -> None:
    jobs = placements(3)
    end = time.monotonic() + 1.0

    def disturbed(rank: int) -> None:
        chance = random.Random(rank)

        def start(connections: Connections) -> None:
            if chance.random() < 0.2:
                raise ValueError("no room")

        while time.monotonic() < end:
            with contextlib.suppress(NetError, ValueError):
                timeout_s = chance.choice([0.0, 0.01, 0.1])
                bootstrap(jobs[rank], epoch=0, region_bytes=REGION_BYTES, timeout_s=timeout_s, start=start).close()
            time.sleep(chance.choice([0.0, 0.01, 0.05]))

    assert in_threads([lambda rank=rank: disturbed(rank) for rank in range(3)]) == [None] * 3
    results = connected(jobs)
    assert len({result.epoch for result in results}) == 1
    close(results)
