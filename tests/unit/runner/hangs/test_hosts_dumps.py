"""Dumps of ranks on two hosts, as the launcher puts them together; the agents are the test's, and so is the clock."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dumps"))
from dump_examples import WAITING, allreduce, at, dump

from horovod._dumps.values import to_json
from horovod._net.failures import ProtocolError
from horovod.runner.hangs.hang import HangDesk
from horovod.runner.hangs.hang_file import HangFile
from horovod.runner.remote.launcher_side.dump_inbox import DumpInbox
from horovod.runner.remote.launcher_side.hosts_dumps import ANSWER_S, HostsDumps
from horovod.runner.remote.launcher_side.link import Link, State

HOSTS = {0: "here", 1: "here", 2: "there", 3: "there"}
ALL = set(HOSTS)


class FakeLink:
    """What `HostsDumps` sees of a link."""

    def __init__(self, host: str, *ranks: int) -> None:
        self.way = self
        self.host = host
        self.ranks = ranks
        self.state = State.RUNNING
        self.dumps = DumpInbox(ranks)
        self.told: list[Any] = []

    def tell(self, message: str, **fields: Any) -> None:
        self.told.append((message, fields["round"]))

    def answers(self, number: int, **silent: str) -> None:
        """As the ranks of this example would: 0 to 2 wait for 3."""
        for rank in self.ranks:
            if f"rank{rank}" in silent:
                self.dumps.silent(rank, silent[f"rank{rank}"])
            elif rank == 3:
                self.dumps.dump(rank, to_json(dump(rank, at(57, "validate"))).encode())
            else:
                self.dumps.dump(rank, to_json(dump(rank, at(60, "step", WAITING), allreduce("w"))).encode())
        self.dumps.collected(number)


class Job:
    def __init__(self, keep_in: Path) -> None:
        self.here, self.there = FakeLink("here", 0, 1), FakeLink("there", 2, 3)
        self.file = keep_in / "hang.txt"
        links = cast("list[Link]", [self.here, self.there])
        self.desk = HangDesk(HostsDumps(links), HangFile(keep_in), HOSTS)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_who_sends_none_is_asked_and_then_all_is_reported(job: Job) -> None:
    assert job.desk.report(ALL, 9.0) == "" and job.desk.next_s() is None
    job.here.answers(0)
    assert job.desk.report(ALL, 10.0) == ""
    asked_s = job.desk.next_s()
    assert asked_s is not None and asked_s < 11.0
    assert job.desk.report(ALL, asked_s) == ""
    assert (job.here.told, job.there.told) == ([], [("dump", 1)])
    job.there.answers(1)
    head, line = job.desk.report(ALL, 10.5).splitlines()
    assert head == f"horovodrun: Where the ranks are (all stacks: {job.file}):"
    assert line == (
        "horovodrun:   rank 3 (there) has not called allreduce 'w' (waited for by ranks 0-2 for 61 s); it is in "
        "train.py:57, in validate()"
    )
    assert job.desk.next_s() is None
    assert all(f"Rank {rank} of 4" in job.file.read_text() for rank in HOSTS)


def test_the_user_s_wish_goes_to_all(job: Job) -> None:
    job.desk.ask(10.0)
    assert (job.here.told, job.there.told) == ([("dump", 1)], [("dump", 1)])


def test_a_host_that_does_not_answer_is_named(job: Job) -> None:
    job.desk.ask(10.0)
    job.here.answers(1)
    assert job.desk.report(ALL, 11.0) == ""
    assert job.desk.next_s() == 10.0 + ANSWER_S
    told = job.desk.report(ALL, 10.0 + ANSWER_S)
    assert "ranks 2, 3 (there) may not have called allreduce 'w' (waited for by ranks 0, 1 for 61 s)" in told
    assert "they gave no dump (there has not answered within 4 s)" in told
    job.there.answers(1)  # late: the next round is not mistaken for it
    assert job.desk.report(ALL, 20.0) == "" and job.desk.next_s() is None


def test_a_lost_host_and_ranks_that_ended_are_not_waited_for(job: Job) -> None:
    job.there.state = State.LOST
    job.desk.ask(10.0)
    job.here.answers(1)
    assert "they gave no dump (there was lost)" in job.desk.report(ALL, 10.1)
    job.there.state = State.RUNNING
    job.desk.ask(20.0)
    job.here.answers(2)
    assert "ranks 2, 3 (there) may not have" in job.desk.report({0, 1}, 20.1)


def test_what_an_agent_could_not_have_is_reported(job: Job) -> None:
    job.here.answers(0)
    job.there.answers(0, rank3="stopped by a signal or a debugger")
    told = job.desk.report(ALL, 10.0)
    assert "rank 3 (there) may not have called allreduce 'w'" in told
    assert "it gave no dump (stopped by a signal or a debugger)" in told


def test_the_end_of_the_job_ends_the_round(job: Job) -> None:
    job.here.answers(0)
    assert job.desk.report(ALL, 10.0) == ""
    assert "ranks 2, 3 (there) may not have called allreduce 'w'" in job.desk.close(set())


@pytest.mark.parametrize(
    ("text", "why"),
    [(b"\xff", "cannot be read"), (b"{}", "cannot be read"), (to_json(dump(1, ())).encode(), "it is of rank 1")],
)
def test_what_is_no_dump_costs_no_more_than_itself(job: Job, text: bytes, why: str) -> None:
    job.here.answers(0)
    job.there.answers(0)
    assert job.there.dumps.take() is not None
    job.there.answers(0, rank3="")
    answer = job.there.dumps.take()
    assert answer is not None
    for rank, one in {**answer.texts, 3: text}.items():
        job.there.dumps.dump(rank, one)
    job.there.dumps.collected(0)
    told = job.desk.report(ALL, 10.0)
    assert "rank 3 (there) may not have called allreduce 'w'" in told and why in told


def test_a_dump_of_another_host_s_rank_is_refused(job: Job) -> None:
    with pytest.raises(ProtocolError):
        job.there.dumps.dump(0, b"{}")


def test_without_a_folder_of_the_user_s_the_file_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = HangFile(None)
    where = file.write(["line"], {0: dump(0, at(57, "validate"))})
    path = Path(where.partition("all stacks: ")[2].partition(",")[0])
    assert path.is_relative_to(tmp_path) and "train.py:57" in path.read_text()
    assert where.endswith(", until the job ends; --dump-directory keeps them")
    assert file.close(failed=True) == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failed", [False, True])
def test_if_the_job_fails_it_goes_to_where_the_user_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    runtime, cwd = tmp_path / "runtime", tmp_path / "cwd"
    for folder in (runtime, cwd):
        folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    file = HangFile(None, afterwards=cwd)
    for line in (50, 57):
        where = file.write(["line"], {0: dump(0, at(line, "validate"))})
    assert where.endswith(
        f", until the job ends; --dump-directory keeps them; if the job fails, they are copied to {cwd}"
    )
    said = file.close(failed)
    assert list(runtime.iterdir()) == []
    if not failed:
        assert said == "" and list(cwd.iterdir()) == []
        return
    found = sorted(cwd.iterdir())
    assert [path.suffix for path in found] == [".json", ".txt"]
    assert said == f"the stacks of all ranks are kept in {found[1]}."
    assert "train.py:57" in found[1].read_text() and {path.stat().st_mode & 0o777 for path in found} == {0o600}
    assert file.close(failed) == ""
    missing = HangFile(None, afterwards=tmp_path / "gone")
    missing.write(["line"], {0: dump(0, at(57, "validate"))})
    assert (
        missing.close(failed)
        == f"the stacks of all ranks could not be kept in {tmp_path}/gone: No such file or directory."
    )
