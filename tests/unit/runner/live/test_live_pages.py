"""What users, programs and Prometheus read of made-up figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from made_up import a_rank, rows_of

from horovod.runner.live.exposition import families
from horovod.runner.live.figures import Reading
from horovod.runner.live.pages import as_data, closing_lines, screen
from horovod.runner.live.straggler import straggler
from horovod.runner.live.table import rows

JOB: dict[str, Any] = {"pid": 7, "command": "python train.py", "size": 2, "elastic": False, "seconds": 75.0}
SLOW = (a_rank(0, 0.48, 0.02), a_rank(1, 0.01, 0.02))


def test_the_closing_lines_name_shares_and_the_slowest() -> None:
    lines = closing_lines(rows_of(*SLOW))
    assert lines[0] == "rank 0: computing 50 %, waiting for others 48 %, transferring 2 % of 10.0 s, 10.0 steps/s"
    assert lines[2].startswith("Rank 1 on alpha is the slowest")


def test_a_job_without_operations_has_no_closing_lines() -> None:
    idle = {"tensors": 0, "operations": ((0, 0),) * 9}
    assert closing_lines(rows_of(a_rank(0, **idle))) == []
    assert closing_lines([]) == []


def test_of_many_ranks_the_extremes_are_shown() -> None:
    lines = closing_lines(rows_of(*(a_rank(rank, rank / 100) for rank in range(40))))
    assert any(line.startswith("rank 39:") for line in lines)
    assert not any(line.startswith("rank 20:") for line in lines)
    assert "24 ranks in between are not shown" in lines


def test_the_screen() -> None:
    lines = screen(JOB, rows_of(*SLOW), 100)
    assert lines[:2] == ["job 7: python train.py", "2 ranks, 1:15"]
    assert " ".join(lines[2].split()) == ("rank host pid steps steps/s computing waiting transfer bytes/s in flight")
    assert " ".join(lines[4].split()) == "1 alpha 101 100 10.0 97 % 1 % 2 % 400.0 k 0"
    assert lines[5].startswith("Rank 1 on alpha is the slowest")
    assert all(len(line) <= 100 for line in lines[:5])


def test_the_screen_of_a_job_that_starts_and_of_one_with_errors() -> None:
    assert screen(JOB, [])[-1] == "no rank has called hvd.init() yet"
    lines = screen({**JOB, "size": 3, "elastic": True}, rows_of(a_rank(0, epoch=4, errors=2, last_error="gone")))
    assert lines[1] == "3 ranks, 1:15, elastic, epoch 4"
    assert "1 of 3 ranks are connected" in lines
    assert lines[-1] == "rank 0: 2 errors; the last: gone"
    assert screen(JOB, rows_of(a_rank(0, errors=1, last_error="gone")))[-1] == "rank 0: 1 error: gone"


def test_programs_get_the_same() -> None:
    made = json.loads(json.dumps(as_data(JOB, rows_of(*SLOW))))
    assert made["pid"] == 7
    assert made["straggler"]["rank"] == 1
    assert made["straggler"]["clear"]
    assert made["ranks"][0]["waiting"] == 0.48
    assert as_data(JOB, [])["straggler"] is None


def test_prometheus_gets_all_ranks() -> None:
    made = rows_of(*SLOW)
    found = {family.name: family for family in families(made, straggler(made))}
    assert found["horovod_ranks"].samples == (((), 2.0),)
    assert found["horovod_waiting_seconds"].samples[0] == (("0", "alpha"), 4.8)
    assert found["horovod_bytes"].samples[1] == (("1", "alpha", "allreduce"), 4_000_000.0)
    assert found["horovod_straggler"].samples == ((("1", "alpha"), 1.0),)
    assert families([], None)[0].samples == (((), 0.0),)
    assert all(len(labels) == len(family.labels) for family in found.values() for labels, _ in family.samples)


@pytest.mark.parametrize("elastic", [False, True])
def test_no_two_series_have_the_same_labels(elastic: bool) -> None:
    # Several worlds in one job, or two workers of an elastic job with one rank for a moment; all on one host.
    figures = (a_rank(0, 0.4), a_rank(1, 0.4), a_rank(0, 0.4), a_rank(1, 0.01))
    made = rows({number: Reading(each, 0.0, "alpha") for number, each in enumerate(figures)}, {}, {}, elastic=elastic)
    found = {family.name: family for family in families(made, straggler(made), elastic)}
    for family in found.values():
        assert len({labels for labels, _ in family.samples}) == len(family.samples), family
        assert all(len(labels) == len(family.labels) for labels, _ in family.samples), family
    assert len(found["horovod_steps"].samples) == 4
    slowest = ("1", "alpha", "3") if elastic else ("3", "alpha")
    assert found["horovod_straggler"].samples == ((slowest, 1.0),)
