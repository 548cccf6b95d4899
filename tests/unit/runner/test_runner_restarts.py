"""Which failures a job is started again after, how often, and what a dry run and the end say."""

from __future__ import annotations

import os
import signal
import threading
from typing import Callable

import pytest

from horovod.runner import cli, restarts
from horovod.runner.job import RESTART_VARIABLE, Job, effective_settings, make_job
from horovod.runner.launchers.base import Outcome, Station, Surroundings
from horovod.runner.plan import plan
from horovod.runner.restarts import pause_before, run_with_restarts, worth_another
from horovod.runner.summary import summary
from horovod.runner.supervising.report import Exit

FAILED = Outcome((Exit(1, "node7", 4001, 3 << 8, 1.0),))
WELL = Outcome((Exit(1, "node7", 4001, 0, 1.0),))


class Fails:
    """A launcher whose jobs fail, while something happens."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.starts = 0
        self._happens = happens

    def run(self, job: Job, surroundings: Surroundings) -> Outcome:
        self.starts += 1
        self._happens()
        return FAILED


def a_job(environ: dict[str, str] | None = None, **values: object) -> Job:
    return make_job(
        effective_settings({"num_proc": 2, **values}, "argument", {}), ("python", "a b.py"), environ or {}, "/w"
    )


def starts(most: int, *outcomes: Outcome) -> tuple[list[tuple[int, str]], list[str], list[float], Outcome]:
    """What each start was told, what was said, the pauses, and the end."""
    told: list[tuple[int, str]] = []
    said: list[str] = []
    pauses: list[float] = []

    def run(job: Job) -> Outcome:
        told.append((job.restart, job.environ[RESTART_VARIABLE]))
        return outcomes[min(len(told), len(outcomes)) - 1]

    return told, said, pauses, run_with_restarts(a_job(max_restarts=most), run, said.append, pauses.append)


def test_a_job_that_ends_well_is_not_started_again() -> None:
    assert starts(3, WELL) == ([(0, "0")], [], [], WELL)


def test_a_job_that_fails_is_started_again_so_often() -> None:
    told, said, pauses, outcome = starts(2, FAILED)
    assert (told, outcome) == ([(0, "0"), (1, "1"), (2, "2")], FAILED)
    assert said[0].startswith("rank 1 (node7, pid 4001) exited with code 3")
    assert said[1::2] == [
        "all ranks are started again (restart 1 of 2).",
        "all ranks are started again in 1 s (restart 2 of 2).",
    ]
    assert pauses == [0.0, 1.0]


def test_the_last_start_decides() -> None:
    assert starts(5, FAILED, WELL)[0] == [(0, "0"), (1, "1")]
    assert starts(5, FAILED, WELL)[3] is WELL


@pytest.mark.parametrize(
    ("outcome", "worth"),
    [
        (FAILED, True),
        (WELL, False),
        (Outcome((), signal.SIGTERM), False),
        (Outcome((), 0, "node8 (ranks 2, 3) was lost."), True),
        (Outcome((), 0, "'x' cannot be executed", 126), False),
    ],
)
def test_what_is_worth_another_start(outcome: Outcome, worth: bool) -> None:
    assert worth_another(outcome) is worth


def test_pauses_grow_to_a_bound() -> None:
    assert [pause_before(restart) for restart in (1, 2, 3, 5, 6, 1000000)] == [0.0, 1.0, 3.0, 15.0, 30.0, 30.0]


def test_the_summary_counts_and_names_the_largest_rank() -> None:
    one = Exit(0, "a", 1, 0, 12.34, 2.0, peak_bytes=300 << 20)
    assert summary([one]) == "1 rank on 1 host finished successfully after 10.3 s; it took 300 MiB at its peak."
    other = Exit(1, "b", 2, 0, 3.0, 2.0, peak_bytes=3 << 29)
    assert summary([one, other]) == (
        "2 ranks on 2 hosts finished successfully after 10.3 s; rank 1 took most memory, 1.5 GiB at its peak."
    )
    assert summary([Exit(0, "a", 1, 0, 2.5, 2.0)]) == "1 rank on 1 host finished successfully after 0.5 s."


def test_a_plan_names_everything_and_gives_no_foreign_value_away() -> None:
    environ = {"PATH": "/bin", "MY_TOKEN": "hunter2", "HOROVOD_CYCLE_TIME": "3", "_HOROVOD_SECRET_KEY": "c0ffee"}
    here = Station("a", (0,), "on this machine", True)
    text = plan(a_job(environ), [here, Station("b", (1, 2, 3), "by ssh b 'x'", False)], environ)
    assert text.startswith(
        "command: python 'a b.py'\ndirectory: /w\na: rank 0, on this machine\nb: ranks 1-3, by ssh b"
    )
    for part in ("HOROVOD_CYCLE_TIME=3", "PYTHONUNBUFFERED=1", "HOROVOD_RANK", "_HOROVOD_SECRET_KEY", "MY_TOKEN"):
        assert part in text
    assert "_HOROVOD_ADDRESS" in text
    assert "_HOROVOD_ADDRESS" not in plan(a_job(environ), [here], environ)
    assert "at the start:\n    HOROVOD_RENDEZVOUS_DIR OMP_NUM_THREADS" in plan(a_job(environ), [here], environ)
    for secret in ("hunter2", "c0ffee"):
        assert secret not in text


def test_a_plan_leaves_each_host_its_own() -> None:
    environ = {"HOME": "/home/me", "LANG": "C", "OMP_NUM_THREADS": "3"}
    here, far = Station("a", (0,), "on this machine", True), Station("b", (1,), "by ssh b", False)
    assert "variables inherited:\n    HOME LANG OMP_NUM_THREADS" in plan(a_job(environ), [here], environ)
    text = plan(a_job(environ), [here, far], environ)
    assert "inherited:\n    LANG OMP_NUM_THREADS\nvariables of each host, whose own stay:\n    HOME" in text


def test_a_signal_that_comes_while_a_start_is_cleared_up_ends_the_job_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Fails(lambda: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(cli, "choose", lambda job: launcher)
    assert cli.run_job(a_job(max_restarts=3)).exit_code == 128 + signal.SIGTERM
    assert launcher.starts == 1


def test_who_asks_for_dumps_between_two_starts_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = [threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR2))]
    launcher = Fails(lambda: timers.pop().start() if timers else None)
    monkeypatch.setattr(cli, "choose", lambda job: launcher)
    monkeypatch.setattr(restarts, "pause_before", lambda restart: 0.3)
    assert cli.run_job(a_job(max_restarts=1)).exit_code == 3
    assert launcher.starts == 2
