"""What the launcher decides: the culprit, the signals, the progress line, the cores."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from horovod.runner.launchers.base import Outcome
from horovod.runner.machines.cores import automatic_ranks, cgroup_quota, threads_per_rank, usable_cores
from horovod.runner.processes.arrivals import DirectoryArrivals
from horovod.runner.supervising import stopping
from horovod.runner.supervising.progress import StartProgress
from horovod.runner.supervising.report import Exit, culprit, story

LOST = (b"Traceback (most recent call last):", b"horovod._core.errors.PeerLostError: rank 1 died")
OWN = (b"Traceback (most recent call last):", b"ValueError: loss is nan")


def ended(rank: int, status: int, at_s: float, tail: tuple[bytes, ...] = (), stopped: bool = False) -> Exit:
    return Exit(rank, "node7", 4000 + rank, status, at_s, 0.0, stopped, tail)


@pytest.mark.parametrize(
    ("exits", "rank"),
    [
        ([ended(0, 0, 1.0), ended(1, 0, 1.0)], None),
        ([ended(2, 1 << 8, 1.0), ended(0, 1 << 8, 1.001)], 2),
        ([ended(2, 1 << 8, 1.0, LOST), ended(1, 9, 1.001)], 1),
        ([ended(2, 1 << 8, 1.0), ended(1, 9, 1.001)], 1),
        ([ended(2, 1 << 8, 1.0, LOST), ended(1, 1 << 8, 1.3, OWN)], 1),
        ([ended(2, 1 << 8, 1.0, LOST), ended(1, 1 << 8, 1.3, LOST)], 2),
        ([ended(2, 3 << 8, 1.0), ended(1, 11, 9.0)], 2),
        ([ended(2, 3 << 8, 1.0), ended(1, 15, 1.2, stopped=True)], 2),
        ([ended(1, 15, 0.9, stopped=True), ended(2, 3 << 8, 1.0)], 2),
    ],
)
def test_culprit(exits: list[Exit], rank: int | None) -> None:
    found = culprit(exits)
    assert (found.rank if found else None) == rank


def test_story_and_code_of_a_failure() -> None:
    outcome = Outcome((ended(0, 0, 1.0), ended(5, 1 << 8, 12.44, OWN), ended(1, 15, 14.0, stopped=True)))
    assert outcome.exit_code == 1
    assert outcome.message == (
        "rank 5 (node7, pid 4005) exited with code 1 after 12.4 s; 1 other rank was then stopped. "
        "Last lines of its stderr:\n  Traceback (most recent call last):\n  ValueError: loss is nan"
    )


def test_story_of_a_signal() -> None:
    killed = ended(0, 11, 1.0)
    assert story([killed], killed) == (
        "rank 0 (node7, pid 4000) was killed by signal 11 (SIGSEGV) after 1.0 s. It wrote nothing to stderr."
    )
    assert ended(0, 11, 1.0).code == 139


def test_the_others_are_counted_in_words() -> None:
    first = ended(1, 1 << 8, 1.0, OWN)

    def words(*others: Exit) -> str:
        return story([first, *others], first).partition(" s")[2].partition(".")[0]

    assert words() == words(ended(0, 0, 2.0)) == ""
    stopped, stopped_too, failed = ended(0, 15, 2.0, (), True), ended(2, 1 << 8, 2.0, (), True), ended(3, 1 << 8, 1.1)
    assert words(stopped) == "; the other rank was then stopped"
    assert words(stopped, stopped_too) == "; the other 2 ranks were then stopped"
    assert words(ended(4, 0, 0.5), stopped) == "; 1 other rank was then stopped"
    assert words(ended(4, 0, 0.5), stopped, stopped_too) == "; 2 other ranks were then stopped"
    assert words(failed) == "; the other rank failed too"
    assert words(failed, ended(4, 9, 1.2)) == "; the other 2 ranks failed too"
    assert words(ended(4, 0, 0.5), failed) == "; 1 other rank failed too"
    both = "; 1 other rank failed too, and 1 other rank was then stopped"
    assert words(failed, stopped) == words(ended(4, 0, 0.5), failed, stopped) == both
    assert words(failed, stopped, stopped_too) == "; 1 other rank failed too, and 2 other ranks were then stopped"


@pytest.mark.parametrize(
    "error",
    [
        b"horovod._core.errors.PeerLostError: rank 1 (pid 4001) died without shutting down",
        b"horovod._core.errors.ShutdownError: allreduce 'w': rank 1 has shut down, and process set 0 needs it",
        b"horovod._core.errors.PeerLostError: Rank 1 ended with code 0 and never called hvd.init()",
    ],
)
def test_a_rank_that_left_early_with_code_0_comes_first(error: bytes) -> None:
    exits = (ended(2, 0, 0.9), ended(1, 0, 1.0), ended(0, 1 << 8, 1.3, (error,)))
    assert Outcome(exits).exit_code == 1
    assert Outcome(exits).message == (
        "rank 1 (node7, pid 4001) ended with code 0 after 1.0 s, while others still needed it; then rank 0 (node7, pid "
        f"4000) exited with code 1 after 1.3 s. Last lines of rank 0's stderr:\n  {error.decode()}"
    )
    just_later = (
        ended(0, 1 << 8, 1.3, (error,)),
        ended(1, 0, 1.4),
    )  # it leaves its connections before its process ends
    assert Outcome(just_later).message.startswith(
        "rank 1 (node7, pid 4001) ended with code 0 after 1.4 s, while others"
    )
    later = (ended(0, 1 << 8, 1.3, (error,)), ended(1, 0, 2.4))
    assert Outcome(later).message.startswith("rank 0 (node7, pid 4000) exited with code 1 after 1.3 s. Last lines of")


def test_last_lines_are_not_repeated_to_who_has_just_read_them() -> None:
    exits = (ended(0, 1 << 8, 1.0, OWN), ended(1, 1 << 8, 1.1, LOST))
    assert Outcome(exits, just_read=frozenset({1})).closing_words == Outcome(exits).message
    assert Outcome(exits, just_read=frozenset({0, 1})).closing_words == (
        "rank 0 (node7, pid 4000) exited with code 1 after 1.0 s; the other rank failed too. "
        "The last lines of rank 0 are above."
    )
    assert Outcome(exits, just_read=frozenset({0}), complaint="x").closing_words == "x"


def test_independent_copies_are_remarked_upon() -> None:
    exits = (ended(0, 0, 1.0), ended(1, 0, 1.1))
    told = "no rank called hvd.init(): 2 independent copies ran. Call it in the program if they are to train together."
    assert Outcome(exits, nobody_met=True).message == told
    assert Outcome(exits, nobody_met=True).exit_code == 0
    cleared = Outcome(exits, nobody_met=True, strays=2).message
    assert "2 processes called hvd.init() without the variables" in cleared and "env -i, sudo" in cleared
    assert "Call it in the program" not in cleared
    assert Outcome((ended(0, 1 << 8, 1.0), *exits), nobody_met=True).message.startswith("rank 0 (")


def test_an_interrupt_beats_the_ranks_own_codes() -> None:
    outcome = Outcome((ended(0, 1 << 8, 1.0),), interrupted=signal.SIGINT)
    assert outcome.exit_code == 130
    assert "SIGINT" in outcome.message
    assert Outcome((), complaint="x", complaint_code=126).exit_code == 126
    assert Outcome((ended(0, 0, 1.0),)).message == ""


def test_signals_after_a_failure() -> None:
    plan = stopping.after_failure(100.0)
    assert plan.due(101.9) is None
    assert plan.next_s() == 102.0
    assert plan.due(102.0) == signal.SIGTERM
    assert plan.due(103.0) is None
    assert plan.due(107.0) == signal.SIGKILL
    assert plan.next_s() is None


def test_signals_after_an_interrupt() -> None:
    plan = stopping.on_signal(signal.SIGINT, 1, 0.0)
    assert [plan.due(now) for now in (0.0, 2.0, 7.0)] == [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    plan = stopping.on_signal(signal.SIGTERM, 1, 0.0)
    assert [plan.due(now) for now in (0.0, 5.0)] == [signal.SIGTERM, signal.SIGKILL]
    assert stopping.on_signal(signal.SIGINT, 2, 0.0).due(0.0) == signal.SIGKILL
    # A loop that was late sends only the strongest.
    assert stopping.on_signal(signal.SIGINT, 1, 0.0).due(9.0) == signal.SIGKILL


def test_progress_in_a_file_has_an_end() -> None:
    progress = StartProgress(2, 30.0, on_tty=False, started_s=1.0)
    assert progress.see([0], False, 4.0) == "horovodrun: 1/2 ranks up; waiting for rank 1\n"
    assert progress.see([0], False, 5.0) == ""
    assert progress.see([0, 1], False, 5.5) == "horovodrun: all 2 ranks are up, after 4.5 s\n"
    assert progress.see([0, 1], False, 6.0) == ""
    swift = StartProgress(2, 30.0, on_tty=False, started_s=1.0)
    assert swift.see([0, 1], False, 9.0) == ""  # of which nothing was said
    parted = StartProgress(2, 30.0, on_tty=False, started_s=1.0)
    assert parted.see([0], False, 4.0)
    assert parted.see([], True, 5.0) == ""


def test_progress_on_a_terminal() -> None:
    progress = StartProgress(3, 30.0, on_tty=True, started_s=0.0)
    assert progress.see([], False, 5.0) == ""
    assert progress.see([0], False, 5.0) == "\r\x1b[Khorovodrun: 1/3 ranks up; waiting for ranks 1, 2"
    assert progress.see([0], False, 6.0) == ""
    assert progress.see([2], False, 6.0) == "\r\x1b[Khorovodrun: 2/3 ranks up; waiting for rank 1"
    assert progress.clear() == "\r\x1b[K"
    assert progress.partly
    assert not progress.overdue(35.0)
    assert progress.overdue(35.1)
    assert "2 of 3 ranks called hvd.init(), but rank 1 did not within 30 s" in progress.complaint()
    assert progress.see([1], False, 36.0) == ""
    assert progress.done
    assert not progress.overdue(99.0)


def test_progress_without_a_terminal_is_said_once_and_late() -> None:
    progress = StartProgress(2, 30.0, on_tty=False, started_s=0.0)
    assert progress.see([0], False, 1.9) == ""
    assert progress.see([0], False, 2.0) == "horovodrun: 1/2 ranks up; waiting for rank 1\n"
    assert progress.see([0], False, 3.0) == ""
    assert progress.see([], True, 3.0) == ""
    assert progress.done


def test_a_start_that_others_watch_is_never_overdue() -> None:
    progress = StartProgress(2, None, on_tty=False, started_s=0.0)
    progress.see([0], False, 1.0)
    assert not progress.overdue(1e9)


def test_arrivals_are_sockets_in_the_meeting_directory(tmp_path: Path) -> None:
    arrivals = DirectoryArrivals(tmp_path)
    assert arrivals.ranks() == set()
    meeting = tmp_path / "0123abcd"
    meeting.mkdir()
    (meeting / "c0").touch()
    (meeting / "r0").touch()
    assert arrivals.ranks() == {0}
    (meeting / "r11").touch()
    assert arrivals.ranks() == {0, 11}
    assert not arrivals.over
    (meeting / "r0").unlink()
    assert arrivals.ranks() == {0, 11}
    assert arrivals.over
    arrivals.close()


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_cgroups_v2_is_the_least_of_the_ancestors(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    assert cgroup_quota(tmp_path) == 1.5
    assert usable_cores(str(tmp_path)) == 1


def test_quota_of_cgroups_v1(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n3:memory:/\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n")
    write(tmp_path, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    assert cgroup_quota(tmp_path) == 0.5
    assert usable_cores(str(tmp_path)) == 1


def test_ranks_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [threads_per_rank(ranks, str(tmp_path)) for ranks in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]


def test_no_quota(tmp_path: Path) -> None:
    assert cgroup_quota(tmp_path) is None
    assert usable_cores(str(tmp_path)) == len(os.sched_getaffinity(0))


NVIDIAS = ["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl"]
AMDS = ["dev/kfd", *(f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id" for node in range(4))]  # node 0: the processor


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        (NVIDIAS, {}, 2),
        (NVIDIAS, {"CUDA_VISIBLE_DEVICES": "1"}, 1),
        (NVIDIAS, {"HIP_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "1"}, 2),
        ([*NVIDIAS, *AMDS], {}, 2),
        (AMDS, {}, 3),
        (AMDS, {"ROCR_VISIBLE_DEVICES": "0,2"}, 2),
        (AMDS, {"ROCR_VISIBLE_DEVICES": "GPU-aa,GPU-bb", "HIP_VISIBLE_DEVICES": "1"}, 1),
        (AMDS, {"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        (AMDS, {"HIP_VISIBLE_DEVICES": "-1"}, 0),
        (["dev/kfd"], {}, 0),
        ([], {"CUDA_VISIBLE_DEVICES": "0,1,2"}, 3),
    ],
)
def test_as_many_ranks_as_gpus_that_may_be_used(
    files: list[str], environ: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("0\n" if "nodes/0/" in file else "51140\n")
    assert automatic_ranks(environ, str(tmp_path)) == (expected or usable_cores(str(tmp_path)))
