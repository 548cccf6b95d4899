"""Tests of horovod._net.meeting: a private place, one claim per rank, nothing left behind."""

from __future__ import annotations

import os
import pathlib
import stat
import time

import pytest
from net_ranks import forked, placements

from horovod._net import MeetingError, Placement, meeting


def join(placement: Placement, base: str, epoch: int = 0, own_base: bool = True) -> meeting.Meeting:
    place = meeting.Meeting(placement, epoch, base, own_base=own_base)
    place.join(time.monotonic() + 5)
    return place


def leave(*places: meeting.Meeting) -> None:
    for place in places:
        place.leave(time.monotonic() + 5)


def test_everything_is_private(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    place = join(placements(2)[0], base)
    modes = {name: stat.S_IMODE(os.stat(os.path.join(place.path, name)).st_mode) for name in os.listdir(place.path)}
    assert modes == {"secret": 0o600, "c0": 0o600, "r0": 0o600}
    assert stat.S_IMODE(os.stat(base).st_mode) == stat.S_IMODE(os.stat(place.path).st_mode) == 0o700
    leave(place)


def test_the_first_comer_makes_the_secret_and_the_last_one_removes_everything(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    first, second = (join(p, base) for p in placements(2))
    assert first.secret == second.secret and len(first.secret) == 32
    leave(first)
    assert os.path.exists(second.path)
    leave(second)
    assert os.listdir(private_base) == []


def test_jobs_and_epochs_side_by_side_do_not_meet(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    rank = placements(2)[0]
    places = [join(rank, base), join(placements(2)[0], base), join(rank, base, epoch=1)]
    assert len({place.path for place in places}) == len({place.secret for place in places}) == 3
    leave(*places)
    assert os.listdir(private_base) == []


def test_the_launchers_secret_is_used_and_not_written(private_base: pathlib.Path) -> None:
    place = join(placements(2, secret=bytes(range(32)))[0], str(private_base), own_base=False)
    assert place.secret == bytes(range(32)) and "secret" not in os.listdir(place.path)
    leave(place)
    assert private_base.exists()


def test_the_launchers_directory_must_exist(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MeetingError, match="the launcher has ended"):
        join(placements(2, secret=bytes(32))[0], str(tmp_path / "gone"), own_base=False)


def test_a_rank_cannot_be_claimed_twice(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    rank = placements(2)[0]
    place = join(rank, base)
    with pytest.raises(
        MeetingError, match=f"Rank 0 of this test launcher job is already taken by process {os.getpid()}"
    ):
        join(rank, base)
    assert place.claim_is_live(0) and place.listening_ranks() == []
    leave(place)


def test_a_forked_child_cannot_take_its_parents_rank() -> None:
    rank = placements(2)[0]
    meeting.take_lasting_claim(rank, 0)
    meeting.take_lasting_claim(rank, 0)  # the same process may

    def child() -> None:
        with pytest.raises(MeetingError, match="cannot join as the same rank"):
            meeting.take_lasting_claim(rank, 0)

    assert os.waitpid(forked(child), 0)[1] == 0


def test_what_a_crash_leaves_is_swept_by_the_next_job(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    dead = placements(2)[1]
    os.waitpid(forked(lambda: join(dead, base) and None), 0)
    assert len(os.listdir(base)) == 1
    place = join(placements(2)[0], base)
    assert os.listdir(base) == [os.path.basename(place.path)]
    leave(place)


def test_a_living_job_is_not_swept(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    place = join(placements(2)[0], base)
    assert meeting.sweep(base) == 0 and place.claim_is_live(0)
    leave(place)


def test_a_rank_that_died_here_can_be_told_from_a_living_one(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    first, second = placements(2)
    place = join(first, base)
    pid = forked(lambda: join(second, base) and None)
    os.waitpid(pid, 0)
    assert place.listening_ranks() == [1] and not place.claim_is_live(1) and place.claimed_pid(1) == str(pid)
    leave(place)
    assert os.listdir(private_base) == []


def test_a_link_in_place_of_the_base_is_not_followed(private_base: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir(mode=0o700)
    os.symlink(trap, private_base / "horovod")
    assert not meeting.choose_base().startswith(str(private_base))
    with pytest.raises(MeetingError, match="is a link"):
        meeting._open_private(str(private_base / "horovod"), make=True)


def test_a_base_that_others_can_enter_is_refused(private_base: pathlib.Path) -> None:
    os.mkdir(private_base / "horovod", 0o755)
    with pytest.raises(MeetingError, match="has mode 0755; it must be 0700"):
        meeting._open_private(str(private_base / "horovod"), make=True)


def test_a_base_of_another_user_is_refused(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(private_base, os.O_RDONLY)
    owner = os.stat(private_base).st_uid
    monkeypatch.setattr(meeting.os, "geteuid", lambda: owner + 1)
    with pytest.raises(MeetingError, match=f"belongs to uid {owner}"):
        meeting.check_private(fd, str(private_base))
    os.close(fd)


def test_a_tampered_secret_is_refused(private_base: pathlib.Path) -> None:
    base = meeting.choose_base()
    first, second = placements(2)
    place = join(first, base)
    os.chmod(os.path.join(place.path, "secret"), 0o644)
    with pytest.raises(MeetingError, match="malformed"):
        join(second, base)
    leave(place)
    assert os.listdir(private_base) == []


def test_without_any_place_each_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "candidate_bases", lambda env=None: [("/nonexistent", "a"), ("/proc", "b")])
    with pytest.raises(MeetingError, match="/nonexistent/a: .*; /proc/b: "):
        meeting.choose_base()
