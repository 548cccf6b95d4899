"""A job's supervision over ranks that are not there: their pipes are the test's, their events are told by a script."""

from __future__ import annotations

import io
import os
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest

from horovod.runner.display import output
from horovod.runner.display.output import OutputFile, RankStream
from horovod.runner.hangs.hang_watch import HangWatch
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.launchers.base import Surroundings
from horovod.runner.live.figures import Reading
from horovod.runner.processes.arrivals import DirectoryArrivals
from horovod.runner.processes.crew import Done, Event, Exited, Finished, GivenUp, HostLost, Said, Survived
from horovod.runner.processes.shipment import ResultStream
from horovod.runner.processes.vitals import Vitals
from horovod.runner.supervising import stopping
from horovod.runner.supervising import supervision as supervising
from horovod.runner.supervising.supervision import Supervision

FAILED = 1 << 8


class ScriptedProcesses:
    """Has the face of `RankProcesses`. A signal ends the ranks that it is for."""

    def __init__(self, *events: Event) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._events: list[Event] = []
        self.looks = 0
        for event in events:
            self._add(event)

    def fileno(self) -> int:
        self.looks += 1
        return self._ours.fileno()

    def events(self) -> list[Event]:
        self._ours.recv(64)
        events, self._events = self._events, []
        return events

    def signal(self, ranks: Iterable[int], number: int) -> None:
        for rank in sorted(ranks):
            self._add(Exited(rank, number, 0.0))

    def taken(self) -> None: ...

    def next_s(self) -> None: ...

    def vitals(self) -> dict[int, Optional[Vitals]]:
        return {}

    def figures(self) -> dict[int, Reading]:
        return {}

    def finish(self) -> None:
        self._add(Done())

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._theirs.send(b".")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """One whose write end somebody outside of the job holds, to the end and beyond."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(writer)


def a_job(ranks: int, **more: Any) -> Job:
    return make_job(effective_settings({"num_proc": ranks, **more}, "argument", {}), ["true"], {}, "/")


def supervision(ranks: int, processes: Any, streams: Any, place: Path, **more: Any) -> Supervision:
    texts = {"stdout": io.StringIO(), "stderr": io.StringIO(), **more}
    silent = {silent_pipe(): RankStream(rank, "stderr") for rank in range(ranks)}
    return Supervision(a_job(ranks), processes, {**silent, **streams}, DirectoryArrivals(place), Surroundings(**texts))


def silent_pipe() -> int:
    reader, writer = os.pipe()
    os.close(writer)
    return reader


def test_a_result_pipe_that_stays_open_ends_with_the_job(pipe: tuple[int, int], tmp_path: Path) -> None:
    os.write(pipe[1], b"\x01" + bytes(7) + b"r")
    stream = ResultStream(0)
    assert supervision(1, ScriptedProcesses(Exited(0, 0, 0.0)), {pipe[0]: stream}, tmp_path).run().exit_code == 0
    assert bytes(stream.result() or b"") == b"r"


def test_what_a_slow_reader_leaves_in_the_pipes_is_shown_in_the_end(
    pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output.Outlet, "full", True)  # from the beginning
    os.write(pipe[1], b"x" * 65500 + b"\nthe end")
    stdout = io.StringIO()
    streams = {pipe[0]: RankStream(0, "stdout")}
    supervision(1, ScriptedProcesses(Exited(0, 0, 0.0)), streams, tmp_path, stdout=stdout).run()
    assert stdout.getvalue() == f"[0]<stdout>:{'x' * 65500}\n[0]<stdout>:the end\n"


class Tee:
    """What a notebook or a script puts in the place of a standard stream: it can write, and little else."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


def test_a_stream_that_knows_no_terminal_will_do(pipe: tuple[int, int], tmp_path: Path) -> None:
    os.write(pipe[1], b"word\n")
    tee = Tee()
    streams = {pipe[0]: RankStream(0, "stderr")}
    supervision(1, ScriptedProcesses(Exited(0, 0, 0.0)), streams, tmp_path, stderr=tee).run()
    assert tee.text == "[0]<stderr>:word\n"


def test_a_file_whose_name_is_no_utf8_may_be_on_a_full_disk(pipe: tuple[int, int], tmp_path: Path) -> None:
    os.write(pipe[1], b"word\n")
    path = tmp_path / "o\udcff"
    path.symlink_to("/dev/full")
    stdout, stderr = io.StringIO(), io.StringIO()
    streams = {pipe[0]: RankStream(0, "stdout", OutputFile(path))}
    supervision(1, ScriptedProcesses(Exited(0, 0, 0.0)), streams, tmp_path, stdout=stdout, stderr=stderr).run()
    assert stdout.getvalue() == "[0]<stdout>:word\n"
    assert "/o\\udcff cannot be written: No space left on device." in stderr.getvalue()


def test_a_stopping_job_is_waited_for_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = ((0.5, signal.SIGTERM),)
    monkeypatch.setattr(supervising, "after_failure", lambda now_s: stopping.Escalation(soon, now_s))
    processes = ScriptedProcesses(Exited(0, FAILED, 0.0))
    watched = supervision(2, processes, {}, tmp_path)
    (tmp_path / "meeting").mkdir()
    outcome = watched.run()
    assert outcome.exit_code == 1
    assert [end.stopped_by_us for end in outcome.exits] == [False, True]
    assert processes.looks < 50


@pytest.mark.parametrize(("between", "still_there"), [(0, True), (15, True), (25, False)])
def test_last_lines_are_said_again_when_they_are_a_page_away(tmp_path: Path, between: int, still_there: bool) -> None:
    (read, write), (others, theirs) = os.pipe(), os.pipe()
    os.write(write, b"Traceback\nValueError: first\n")
    os.close(write)
    streams = {read: RankStream(0, "stderr"), others: RankStream(1, "stderr")}
    watched = supervision(2, ScriptedProcesses(Exited(0, FAILED, 0.0), Exited(1, 0, 0.0)), streams, tmp_path)
    watched._feed(read, os.read(read, 100))
    os.write(theirs, b"a line\n" * between)
    os.close(theirs)
    outcome = watched.run()
    assert ("The last lines of rank 0 are above." in outcome.closing_words) is still_there, outcome.closing_words


def test_who_has_come_without_the_launchers_variables(tmp_path: Path) -> None:
    (tmp_path / "stray.4711").touch()
    outcome = supervision(2, ScriptedProcesses(Exited(0, 0, 0.0), Exited(1, 0, 0.0)), {}, tmp_path).run()
    assert outcome.nobody_met and outcome.strays == 1


@pytest.mark.parametrize("met", [False, True])
def test_whether_the_ranks_have_met(met: bool, tmp_path: Path) -> None:
    watched = supervision(2, ScriptedProcesses(Exited(0, 0, 0.0), Exited(1, 0, 0.0)), {}, tmp_path)
    if met:
        (tmp_path / "meeting").mkdir()
    assert watched.run().nobody_met is not met


class IdleProcesses(ScriptedProcesses):
    """Two ranks that use nothing, and end well when their time has come."""

    def vitals(self) -> dict[int, Optional[Vitals]]:
        return {0: Vitals(1.0, 0), 1: Vitals(1.0, 0)}


@pytest.mark.parametrize("met", [False, True])
def test_only_ranks_that_have_met_stand_still_by_default(
    met: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising, "hang_watch", lambda job, now_s: HangWatch(0.3, now_s, after_init=True))
    processes = IdleProcesses()
    watched = supervision(2, processes, {}, tmp_path)
    if met:
        (tmp_path / "meeting").mkdir()
    ending = threading.Timer(1.5, lambda: [processes._add(Exited(rank, 0, 0.0)) for rank in range(2)])
    ending.start()
    outcome = watched.run()
    ending.cancel()
    assert ("stood still" in outcome.closing_words, outcome.exit_code) == (met, int(met)), outcome.closing_words


class ElasticProcesses(ScriptedProcesses):
    """Further events come one by one, as long as the crew is asked."""

    def __init__(self, *events: Event) -> None:
        super().__init__(events[0])
        self._further = list(events[1:])

    def events(self) -> list[Event]:
        found = super().events()
        if self._further:
            self._add(self._further.pop(0))
        return found


def elastic(processes: ScriptedProcesses, tmp_path: Path) -> Supervision:
    job = a_job(2, min_num_proc=1, start_timeout_s=0.1)
    streams = {silent_pipe(): RankStream(rank, "stderr") for rank in range(2)}
    surroundings = Surroundings(io.StringIO(), io.StringIO())
    return Supervision(job, processes, streams, DirectoryArrivals(tmp_path), surroundings)  # type: ignore[arg-type]


def test_an_elastic_job_without_ranks_goes_on_until_it_is_done_or_given_up(tmp_path: Path) -> None:
    lost = (Survived(0), Survived(1), Said("nobody is left"))
    outcome = elastic(ElasticProcesses(*lost, Finished()), tmp_path).run()
    assert outcome.exit_code == 0
    outcome = elastic(ElasticProcesses(*lost, GivenUp("nobody has come")), tmp_path).run()
    assert (outcome.exit_code, outcome.message) == (1, "nobody has come")


def test_a_dismissed_rank_that_does_not_end_does_not_keep_a_job_that_is_done(tmp_path: Path) -> None:
    outcome = elastic(ScriptedProcesses(Finished(), Exited(0, 0, 0.0)), tmp_path).run()
    assert outcome.exit_code == 0
    assert [end.stopped_by_us for end in outcome.exits] == [False, True]


@pytest.mark.parametrize(
    ("before", "after", "waits"),
    [((), (), "silence"), ((), (Exited(0, FAILED, 0.0),), "failure"), ((Exited(0, FAILED, 0.0),), (), "failure")],
)
def test_the_others_of_a_silent_host_have_waited_long_enough(
    before: tuple[Event, ...], after: tuple[Event, ...], waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless one of them has raised the error: the rest then get the time that they always get."""
    called: list[str] = []
    for name in ("silence", "failure"):

        def steps(now_s: float, name: str = name) -> stopping.Escalation:
            called.append(name)
            return stopping.Escalation(((0.05, signal.SIGTERM),), now_s)

        monkeypatch.setattr(supervising, f"after_{name}", steps)
    lost = HostLost((1,), "host2 (rank 1) was lost: nothing was heard from it for 6.0 s.", "host2", silent=True)
    said = io.StringIO()
    outcome = supervision(3, ScriptedProcesses(*before, lost, *after), {}, tmp_path, stderr=said).run()
    assert "host2 (rank 1) was lost: nothing was heard from it for 6.0 s; the job ends.\n" in said.getvalue()
    assert outcome.complaint.startswith("host2 (rank 1) was lost") and outcome.exit_code == 1
    assert called[-1 if after else 0] == waits
