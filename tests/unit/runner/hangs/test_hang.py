"""The launcher's desk for dumps, with ranks that the test plays and a clock of its own."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "dumps"))
from dump_examples import WAITING, allreduce, at, dump

from horovod._dumps import files, paths, values
from horovod.runner.hangs.collecting import Collecting
from horovod.runner.hangs.hang import HangDesk
from horovod.runner.hangs.hang_file import HangFile

BOTH = {0, 1}
TWO = {0: (0, 1)}


@pytest.fixture
def desk(tmp_path: Path) -> HangDesk:
    return desk_at(tmp_path, tmp_path / "kept")


def desk_at(place: Path, keep_in: Path) -> HangDesk:
    hosts = {0: "here", 1: "here"}
    return HangDesk(Collecting(place, 0, hosts, 2, "/job"), HangFile(keep_in), hosts)


def tell(place: Path, one: values.Dump) -> None:
    files.write(paths.dump_file(place, one.rank), values.to_json(one))
    assert paths.tell(place, one.rank)


def waiting(rank: int, seconds: float = 61.0) -> values.Dump:
    return dump(rank, at(60, "step", WAITING), allreduce("w", seconds), process_sets=TWO)


def test_nothing_happens_until_a_rank_dumps(desk: HangDesk) -> None:
    assert desk.next_s() is None
    assert desk.report(BOTH, 10.0) == ""
    assert desk.close(BOTH) == ""


def test_reported_as_soon_as_all_have_dumped(desk: HangDesk, tmp_path: Path) -> None:
    tell(tmp_path, waiting(0))
    desk.read(10.0)
    assert desk.report(BOTH, 10.0) == ""
    tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
    desk.read(10.1)
    head, line = desk.report(BOTH, 10.1).splitlines()
    assert head == f"horovodrun: Where the ranks are (all stacks: {tmp_path}/kept/hang.txt):"
    assert line == (
        "horovodrun:   rank 1 has not called allreduce 'w' (waited for by rank 0 for 61 s); it is in train.py:57, in "
        "validate()"
    )
    told = json.loads((tmp_path / "kept" / "hang.json").read_text())
    assert [one["rank"] for one in told["ranks"]] == [0, 1]
    assert desk.next_s() is None


def test_what_has_not_changed_is_reported_once_unless_asked_for(desk: HangDesk, tmp_path: Path) -> None:
    texts = []
    for seconds in (61.0, 121.0, 181.0):
        if seconds == 181.0:
            desk.ask(0.0)
        tell(tmp_path, waiting(0, seconds))
        tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
        desk.read(0.0)
        texts.append(bool(desk.report(BOTH, 0.0)))
    assert texts == [True, False, True]


def test_who_has_not_dumped_is_asked_and_then_given_up(desk: HangDesk, tmp_path: Path) -> None:
    asked = paths.open_own_pipe(paths.ask_pipe(tmp_path, 1))
    tell(tmp_path, waiting(0))
    desk.read(10.0)
    with pytest.raises(BlockingIOError):
        os.read(asked, 9)
    for _ in range(5):
        now_s = desk.next_s()
        assert now_s is not None
        text = desk.report(BOTH, now_s)
        if text:
            break
    assert os.read(asked, 9) == b"?"
    os.close(asked)
    assert now_s == pytest.approx(12.5)
    assert "rank 1 may not have called allreduce 'w'" in text
    assert "it gave no dump (no hvd.init() yet, dumps are off, or it handles the signal itself)" in text


def test_stacks_stand_in_for_a_dump(desk: HangDesk, tmp_path: Path) -> None:
    fd = paths.open_stacks_file(paths.stacks_file(tmp_path, 1, os.getpid()))
    os.write(fd, b'Current thread 0x1 (most recent call first):\n  File "/job/train.py", line 57 in load\n')
    os.close(fd)
    tell(tmp_path, waiting(0))
    desk.read(10.0)
    assert "it is in train.py:57, in load(), where native code lets no Python run" in desk.report(BOTH, 20.0)


def test_the_end_of_the_job_ends_the_wait(desk: HangDesk, tmp_path: Path) -> None:
    tell(tmp_path, waiting(0))
    desk.read(10.0)
    assert "rank 1 may not have called allreduce 'w' (waited for by rank 0 for 61 s); it gave no dump (ended)" in (
        desk.close({0})
    )
    assert desk.fd == -1


def test_the_end_spoils_no_earlier_report(desk: HangDesk, tmp_path: Path) -> None:
    tell(tmp_path, waiting(0))
    tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
    desk.read(10.0)
    assert desk.report(BOTH, 10.0)
    kept = (tmp_path / "kept" / "hang.txt").read_text()
    tell(tmp_path, waiting(0, 121.0))
    desk.read(70.0)
    assert desk.close({0}) == ""
    assert (tmp_path / "kept" / "hang.txt").read_text() == kept


def test_nor_does_a_rank_that_has_shut_down_and_takes_its_time_to_end(desk: HangDesk, tmp_path: Path) -> None:
    listening = paths.open_own_pipe(paths.ask_pipe(tmp_path, 1))
    tell(tmp_path, waiting(0))
    tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
    desk.read(10.0)
    assert desk.report(BOTH, 10.0)
    kept = (tmp_path / "kept" / "hang.txt").read_text()
    os.close(listening)
    tell(tmp_path, waiting(0, 63.0))
    desk.read(12.0)
    assert desk.report(BOTH, 15.0) == ""
    assert (tmp_path / "kept" / "hang.txt").read_text() == kept


def test_a_rank_that_has_shut_down_is_reported_as_such(desk: HangDesk, tmp_path: Path) -> None:
    os.close(paths.open_own_pipe(paths.ask_pipe(tmp_path, 1)))
    tell(tmp_path, waiting(0))
    desk.read(10.0)
    assert "it gave no dump (it has shut Horovod down)" in desk.report(BOTH, 13.0)


def test_a_rank_that_dumped_and_ended_counts(desk: HangDesk, tmp_path: Path) -> None:
    tell(tmp_path, waiting(0))
    tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
    desk.read(10.0)
    assert "it is in train.py:57, in validate()" in desk.close(set())


def test_dumps_are_not_lost_with_a_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "file").write_text("")
    desk = desk_at(tmp_path, tmp_path / "file" / "below")
    tell(tmp_path, waiting(0))
    tell(tmp_path, dump(1, at(57, "validate"), process_sets=TWO))
    desk.read(0.0)
    text = desk.report(BOTH, 0.0)
    found = re.search(
        r"all stacks: (.*), until the job ends; (.*)/file/below cannot be written: Not a directory\):", text
    )
    assert found, text
    assert "rank 1 has not called" in Path(found[1]).read_text()
    desk.close(set())
    assert not Path(found[1]).exists()


def test_a_report_removes_what_killed_processes_have_left(tmp_path: Path) -> None:
    (tmp_path / ".dump-x").touch()
    os.utime(tmp_path / ".dump-x", (0, 0))
    assert "all stacks: " in HangFile(tmp_path).write(["a line"], {})
    assert not (tmp_path / ".dump-x").exists()


def test_of_a_report_that_cannot_be_kept_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = files.write

    def full(path: Path, text: str) -> None:
        if path.suffix == ".txt" and path.parent == kept:
            raise OSError(28, "No space left on device")
        real(path, text)

    kept, private = tmp_path / "kept", tmp_path / "private"
    kept.mkdir()
    private.mkdir()
    monkeypatch.setattr(files, "write", full)
    file = HangFile(None, private, kept)
    file.write(["a line"], {})
    assert "could not be kept" in file.close(failed=True)
    assert list(kept.iterdir()) == []
