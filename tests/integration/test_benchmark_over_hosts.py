"""The benchmark between hosts runs, is right, and leaves nothing behind, even when it is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hosts.network import why_absent
from jobs import ROOT, Job, Place, python, run
from jobs.needs import needs

pytestmark = needs("torch")
PROGRAM = ROOT / "benchmarks" / "over_hosts.py"


@pytest.fixture(autouse=True)
def _hosts_can_be_made() -> Iterator[None]:
    if reason := why_absent():
        pytest.skip(reason)
    yield


@pytest.mark.slow
@pytest.mark.timeout(600)  # Open MPI's environment may have to be made
def test_small_sizes_of_two_hosts() -> None:
    with Place() as place:
        job = Job(place)
        words = ["--rows", "allreduce", "alltoall", "--sizes", "4B", "64KB", "--rounds", "1", "--slice", "0.02"]
        job.start(python(PROGRAM, "--local-size", "2", *words))
        ended = job.end(patience_s=580, leftovers=True)
    assert (ended.code, ended.leftovers) == (0, []), str(ended)
    rows = [line.strip("| ").split(" | ") for line in ended.stdout.splitlines()]
    names = ["allreduce 4 B", "allreduce 64 KB", "alltoall 16 B", "alltoall 64 KB"]
    for contender in ("ours (numpy)", "ours, flat", "torch gloo"):
        times = {row[0]: float(row[2].replace(",", "")) for row in rows if contender in row[1:2]}
        assert list(times) == names and all(time > 0 for time in times.values()), str(ended)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_interrupted_it_says_what_it_has_and_leaves_nothing() -> None:
    with Place() as place:
        job = Job(place)
        job.start(python(PROGRAM, "--rate", "none", "--rows", "allreduce", "--slice", "0.05"))
        job.until(lambda: ["measured"] if "| allreduce 4 B |" in job.output else [], patience_s=500)
        job.signal(job.process.pid, signal.SIGINT)
        ended = job.end(leftovers=True)
    assert (ended.code, ended.leftovers) == (130, []), str(ended)
    assert "INTERRUPTED" in ended.stdout and "Traceback" not in ended.output


def test_a_size_that_is_none_is_refused() -> None:
    ended = run(python(PROGRAM, "--sizes", "much"))
    assert ended.code == 2 and "'much' is no size of at least 4 bytes" in ended.stderr
