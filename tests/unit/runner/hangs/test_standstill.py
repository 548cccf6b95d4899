"""Which ranks stand still: what they have used, what they write, and when that has lasted too long."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

import pytest

from horovod.runner.hangs.hang_watch import HangWatch, limit_of, watch_interval_s
from horovod.runner.hangs.standstill import Standstill
from horovod.runner.job import effective_settings, make_job
from horovod.runner.processes.vitals import Vitals, read

LIMIT_S = 1800.0
STALL = (
    b"2026-11-28 03:17:51,283 [rank 0] 1 operation has waited for more than 60 s for ranks that have not submitted it\n"
    b"  rank 1 has not submitted: allreduce 'w' (60 s)\n"
)


def looked(*ranks: list[Optional[Vitals]], every_s: float = 60.0) -> bool:
    """Whether it has lasted too long after looks at what each rank has used."""
    standstill = Standstill(LIMIT_S, 60.0)
    for number, vitals in enumerate(zip(*ranks)):
        standstill.see(dict(enumerate(vitals)), number * every_s)
    return standstill.lasts_too_long(set(range(len(ranks))), (len(ranks[0]) - 1) * every_s)


def using(processor_s: float, io_bytes: int = 0, looks: int = 31) -> list[Optional[Vitals]]:
    """A rank that uses so much between two looks."""
    return [Vitals(5.0 + processor_s * number, io_bytes * number) for number in range(looks)]


def test_ranks_that_wait_and_write_their_stacks_stand_still() -> None:
    assert looked(using(0.0), using(0.04, 50_000))


def test_a_minute_less_is_not_too_long() -> None:
    assert not looked(using(0.0, looks=30), using(0.0, looks=30))


@pytest.mark.parametrize("works", [using(0.7), using(0.0, 2 << 20)], ids=["computes", "reads"])
def test_one_rank_that_works_a_little_keeps_the_job(works: list[Optional[Vitals]]) -> None:
    assert not looked(using(0.0), works)


def test_little_work_is_seen_also_when_looks_come_often() -> None:
    """The kernel counts in hundredths of a second, and a look finds one of them now and then."""
    standstill = Standstill(4.0, 0.1)
    for number in range(60):
        standstill.see({0: Vitals(number // 5 * 0.02, 0)}, number * 0.1)
        assert not standstill.lasts_too_long({0}, number * 0.1)


def test_a_rank_whose_use_is_not_known_keeps_the_job() -> None:
    assert not looked(using(0.0), [*using(0.0, looks=29), None, Vitals(5.0, 0)])


def test_a_child_that_ended_and_took_its_sums_was_work() -> None:
    before, after = Vitals(9.0, 0), Vitals(5.0, 0)
    assert not looked(using(0.0), [before] * 20 + [after] * 11)


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """The launcher was stopped with Ctrl-Z, say, or the machine suspended."""
    assert not looked(using(0.0, looks=3), using(0.0, looks=3), every_s=LIMIT_S)


def test_ranks_that_have_ended_are_not_waited_for() -> None:
    standstill = Standstill(LIMIT_S, 60.0)
    for number in range(31):
        standstill.see({0: Vitals(1.0, 0)}, number * 60.0)
    assert standstill.lasts_too_long({0}, LIMIT_S)
    assert not standstill.lasts_too_long({0, 1}, LIMIT_S)
    assert not standstill.lasts_too_long(set(), LIMIT_S)


class Watched:
    """Two ranks that use nothing, and a watch."""

    def __init__(self, after_init: bool = False) -> None:
        self.watch = HangWatch(LIMIT_S, 0.0, after_init)
        self.now_s = 0.0

    def minutes(self, count: int, written: bytes = b"", nobody_met: bool = False) -> str:
        """What the last look says; rank 0 writes the same before each."""
        why = ""
        for _ in range(count):
            self.now_s += 60.0
            if written:
                self.watch.heard(0, "stderr", written)
            assert self.watch.due(self.now_s)
            vitals = {0: Vitals(1.0, 0), 1: Vitals(1.0, 0)}
            why = self.watch.why_to_end(vitals, {0, 1}, self.now_s, nobody_met)
        return why


def test_the_message_names_the_flag() -> None:
    watched = Watched()
    assert watched.minutes(30) == ""
    why = watched.minutes(1)
    assert why.startswith("all ranks have stood still for 1800 s")
    assert "--hang-shutdown-time-seconds" in why


def test_idle_programs_that_never_call_init_go_on_unless_a_limit_is_given() -> None:
    """Such as the workers of a data service."""
    by_default, given = Watched(after_init=True), Watched()
    assert not by_default.minutes(40, nobody_met=True)
    assert by_default.minutes(1)
    assert given.minutes(40, nobody_met=True)


def test_the_stall_report_is_no_sign_of_life() -> None:
    assert Watched().minutes(31, STALL)


@pytest.mark.parametrize("written", [b"epoch 3\n", b"."], ids=["a line", "a dot of a bar"])
def test_what_a_rank_writes_is_a_sign_of_life(written: bytes) -> None:
    assert not Watched().minutes(40, written)


def test_it_counts_from_the_last_line() -> None:
    watched = Watched()
    watched.minutes(20)
    watched.minutes(1, b"epoch 3\n")
    assert not watched.minutes(29)
    assert watched.minutes(1)


def limit(size: int = 2, **given: Any) -> float:
    settings = effective_settings({"num_proc": size, **given}, "argument", {})
    return limit_of(make_job(settings, ["python"], {}, "/"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 1800.0),
        ({"hang_shutdown_s": 60.0}, 60.0),
        ({"hang_shutdown_s": 0.0}, 0.0),
        ({"stall_shutdown_s": 0.0}, 0.0),
        ({"stall_shutdown_s": 600.0}, 0.0),
        ({"stall_shutdown_s": 600.0, "hang_shutdown_s": 60.0}, 60.0),
        ({"stall_check_disable": True}, 0.0),
        ({"stdin_rank": 0}, 0.0),
    ],
)
def test_what_users_say_of_waiting_wins(given: dict[str, Any], expected: float) -> None:
    assert limit(**given) == expected


def test_a_rank_that_is_alone_waits_for_nobody() -> None:
    assert limit(1) == 0.0


def test_looks_are_a_minute_apart_at_most() -> None:
    assert [watch_interval_s(limit_s) for limit_s in (0.0, 0.1, 5.0, 1800.0)] == [0.0, 0.05, 0.5, 60.0]


BUSY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print("there", flush=True)
time.sleep(60)
"""


def test_a_rank_is_its_process_and_all_that_come_from_it() -> None:
    rank = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, start_new_session=True)
    assert rank.stdout is not None
    try:
        rank.stdout.readline()
        begun = read({7: rank.pid})[7]
        deadline_s = time.monotonic() + 30.0
        while (now := read({7: rank.pid})[7]) is None or begun is None or now.processor_s < begun.processor_s + 0.2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    finally:
        os.killpg(rank.pid, 9)
        rank.wait()
        rank.stdout.close()
    assert read({7: rank.pid}) == {}


def fake_process(proc: Path, pid: int, state: str, ticks: int) -> None:
    """Of the kernel's files those that are read."""
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} (a (name)) {state} 1 {pid} 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20\n")
    (proc / str(pid) / "io").write_text("rchar: 10\nwchar: 20\nsyscr: 99\nread_bytes: 30\nwrite_bytes: 99\n")


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    fake_process(tmp_path, 5, "S", 3 * os.sysconf("SC_CLK_TCK"))
    assert read({0: 5}, proc=tmp_path) == {0: Vitals(3.0, 60)}


def test_of_a_rank_in_a_debugger_nothing_is_known(tmp_path: Path) -> None:
    fake_process(tmp_path, 5, "t", 0)
    assert read({0: 5}, proc=tmp_path) == {0: None}


def test_of_a_rank_whose_program_a_daemon_has_started_nothing_is_known(tmp_path: Path) -> None:
    fake_process(tmp_path, 5, "S", 0)  # waits for the program
    fake_process(tmp_path, 6, "S", 0)
    assert read({0: 5}, {0: 6}, tmp_path) == {0: None}
    assert read({0: 5}, {0: 5}, tmp_path) == {0: Vitals(0.0, 60)}
    assert read({0: 5}, {0: 7}, tmp_path) == {0: Vitals(0.0, 60)}  # it has ended
