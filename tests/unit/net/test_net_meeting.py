"""Tests of horovod._net.meeting.directory: a private place, one claim per rank, nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from net_ranks import connected, forked, placements

from horovod._net.clusters.placement import Placement
from horovod._net.failures import MeetingError, ResourceError
from horovod._net.meeting import directory, lasting_claim, private_directories

NOBODY = 65534
as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="Not here: only root can mount file systems and become another user."
)


@pytest.fixture
def two_places(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[pathlib.Path]]:
    """Two parents of candidates, the first with room for 32 KiB."""
    parents = [tmp_path / "small", tmp_path / "other"]
    for parent in parents:
        parent.mkdir()
    monkeypatch.setattr(
        private_directories, "candidate_bases", lambda env=None: [(str(parent), "base") for parent in parents]
    )
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", str(parents[0])], check=False).returncode:
        pytest.skip("Not here: this machine lets nobody mount a file system.")
    yield parents
    subprocess.run(["umount", str(parents[0])], check=True)


def join(placement: Placement, base: str, epoch: int = 0, own_base: bool = True) -> directory.Meeting:
    place = directory.Meeting(placement, epoch, base, own_base=own_base)
    place.join(time.monotonic() + 5)
    return place


def leave(*places: directory.Meeting) -> None:
    for place in places:
        place.leave(time.monotonic() + 5)


def test_everything_is_private(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    place = join(placements(2)[0], base)
    modes = {name: stat.S_IMODE(os.stat(os.path.join(place.path, name)).st_mode) for name in os.listdir(place.path)}
    assert modes == {"secret": 0o600, "c0": 0o600, "r0": 0o600}
    assert stat.S_IMODE(os.stat(base).st_mode) == stat.S_IMODE(os.stat(place.path).st_mode) == 0o700
    leave(place)


def test_another_job_that_takes_the_place_along_changes_no_choice(private_base: pathlib.Path) -> None:
    """Otherwise ranks of one host would meet in two places."""
    first = private_directories.choose_base("0")
    over = threading.Event()

    def end_jobs() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                os.rmdir(first)

    other = threading.Thread(target=end_jobs)
    other.start()
    try:
        assert {private_directories.choose_base("0") for _ in range(2000)} == {first}
    finally:
        over.set()
        other.join()


def test_the_first_comer_makes_the_secret_and_the_last_one_removes_everything(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    first, second = (join(p, base) for p in placements(2))
    assert first.secret == second.secret and len(first.secret) == 32
    leave(first)
    assert os.path.exists(second.path)
    leave(second)
    assert os.listdir(private_base) == []


def test_the_first_outcome_stands_and_who_comes_later_waits_until_all_have_left(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    zero, one = placements(2)
    first, second = join(zero, base), join(one, base)
    assert first.outcome() == second.outcome() == ""
    assert first.settle("met") == second.settle("1 1\nlate") == second.outcome() == "met"
    second.leave(time.monotonic() + 5)
    with pytest.raises(MeetingError, match="have not left an earlier meeting, which ended with: met"):
        directory.Meeting(one, 0, base, own_base=True).join(time.monotonic() + 0.05)
    timer = threading.Timer(0.05, first.leave, [time.monotonic() + 5])
    timer.start()
    again = join(one, base)
    timer.join()
    assert again.outcome() == ""
    again.leave(time.monotonic() + 5)


def test_jobs_and_epochs_side_by_side_do_not_meet(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    rank = placements(2)[0]
    met = [join(rank, base), join(placements(2)[0], base), join(rank, base, epoch=1)]
    assert len({place.path for place in met}) == len({place.secret for place in met}) == 3
    leave(*met)
    assert os.listdir(private_base) == []


def test_the_launchers_secret_is_used_and_not_written(private_base: pathlib.Path) -> None:
    place = join(placements(2, secret=bytes(range(32)))[0], str(private_base), own_base=False)
    assert place.secret == bytes(range(32)) and "secret" not in os.listdir(place.path)
    leave(place)
    assert private_base.exists()


def test_the_launchers_directory_must_exist(tmp_path: pathlib.Path) -> None:
    with pytest.raises(MeetingError, match=r"the launcher has ended, or somebody has removed .*loginctl enable-linger"):
        join(placements(2, secret=bytes(32))[0], str(tmp_path / "gone"), own_base=False)


def test_a_rank_cannot_be_claimed_twice(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    rank = placements(2)[0]
    place = join(rank, base)
    with pytest.raises(
        MeetingError, match=f"Rank 0 of this test launcher job is already taken by process {os.getpid()}"
    ):
        join(rank, base)
    assert place.claim_is_live(0) and place.listening_ranks() == []
    leave(place)


def bind_as_another_user(name: str, listening: bool) -> int:
    """A child process of nobody's that holds an abstract name until it is killed; its pid."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(NOBODY)
        holder = socket.socket(socket.AF_UNIX)
        holder.bind(name)
        if listening:
            holder.listen(1)
        os.write(write, b"x")
        signal.pause()
    os.read(read, 1)
    os.close(read)
    os.close(write)
    return pid


@as_root
@pytest.mark.parametrize("listening", [True, False])
def test_a_claim_whose_name_another_user_has_taken_does_not_stop_the_job(
    private_base: pathlib.Path, caplog: pytest.LogCaptureFixture, listening: bool
) -> None:
    jobs = placements(2)
    pid = bind_as_another_user(lasting_claim.claim_name(jobs[0], 0), listening)
    try:
        for result in connected(jobs):
            result.close()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    holder = "user nobody (uid 65534)" if listening else "somebody"
    assert f"rank 0: {holder} holds the name that guards this rank" in caplog.text


def test_the_name_of_a_claim_needs_the_secret() -> None:
    with_secret = placements(1, "job", secret=bytes(range(1, 33)))[0]
    other_secret = placements(1, "job", secret=bytes(range(32)))[0]
    names = {lasting_claim.claim_name(place, 0) for place in (with_secret, other_secret, placements(1, "job")[0])}
    assert len(names) == 3


def test_a_forked_child_cannot_take_its_parents_rank() -> None:
    rank = placements(2)[0]
    lasting_claim.take(rank, 0)
    lasting_claim.take(rank, 0)  # the same process may

    def child() -> None:
        with pytest.raises(MeetingError, match="cannot join as the same rank"):
            lasting_claim.take(rank, 0)

    assert os.waitpid(forked(child), 0)[1] == 0


def test_what_a_crash_leaves_is_swept_by_the_next_job(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    dead = placements(2)[1]
    os.waitpid(forked(lambda: join(dead, base) and None), 0)
    assert len(os.listdir(base)) == 1
    place = join(placements(2)[0], base)
    assert os.listdir(base) == [os.path.basename(place.path)]
    leave(place)


def test_a_living_job_is_not_swept(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    place = join(placements(2)[0], base)
    assert directory.sweep(base) == 0 and place.claim_is_live(0)
    leave(place)


def test_a_claim_that_cannot_be_looked_at_is_taken_for_live(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process without a free descriptor must not call a living rank dead, nor remove its meeting."""
    base = private_directories.choose_base("0")
    place = join(placements(2)[0], base)
    real = os.open

    def without_room(path: str, *args: Any, **kwargs: Any) -> int:
        if path == "c0":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", without_room)
        assert place.claim_is_live(0) and place.abandoned_claims([0]) == []
        assert directory.sweep(base) == 0
    assert not place.claim_is_live(1)
    leave(place)
    assert os.listdir(private_base) == []


def test_a_rank_that_died_here_is_distinguished_from_a_living_one(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
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
    assert not private_directories.choose_base("0").startswith(str(private_base))
    with pytest.raises(MeetingError, match="is a link"):
        private_directories.open_private(str(private_base / "horovod"), make=True)


def test_a_base_that_others_can_enter_is_refused(private_base: pathlib.Path) -> None:
    os.mkdir(private_base / "horovod", 0o755)
    with pytest.raises(MeetingError, match="has mode 0755; it must be 0700"):
        private_directories.open_private(str(private_base / "horovod"), make=True)


def test_a_base_of_another_user_is_refused(private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(private_base, os.O_RDONLY)
    owner = os.stat(private_base).st_uid
    monkeypatch.setattr(private_directories.os, "geteuid", lambda: owner + 1)
    with pytest.raises(MeetingError, match=rf"belongs to (user \w+ \()?uid {owner}"):
        private_directories.check_private(fd, str(private_base))
    os.close(fd)


def test_a_tampered_secret_is_refused(private_base: pathlib.Path) -> None:
    base = private_directories.choose_base("0")
    first, second = placements(2)
    place = join(first, base)
    os.chmod(os.path.join(place.path, "secret"), 0o644)
    with pytest.raises(MeetingError, match="malformed"):
        join(second, base)
    leave(place)
    assert os.listdir(private_base) == []


def test_without_any_place_each_reason_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        private_directories, "candidate_bases", lambda env=None: [("/nonexistent", "a"), ("/proc", "b")]
    )
    with pytest.raises(MeetingError, match="/nonexistent/a: .*; /proc/b: "):
        private_directories.choose_base("0")


@as_root
def test_a_place_without_room_is_passed_over_and_left_clean(two_places: list[pathlib.Path]) -> None:
    assert private_directories.choose_base("job") == str(two_places[1] / "base")
    assert os.listdir(two_places[0]) == []


@as_root
def test_when_every_place_is_full_no_rank_is_blamed(
    two_places: list[pathlib.Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_directories, "candidate_bases", lambda env=None: [(str(two_places[0]), "base")])
    with pytest.raises(ResourceError, match=r"base: \d+ bytes are free, 65536 are needed.*Set XDG_RUNTIME_DIR"):
        private_directories.choose_base("job")


@as_root
def test_a_job_meets_where_it_already_meets(two_places: list[pathlib.Path]) -> None:
    """What one rank finds full another one may find free."""
    base = private_directories.choose_base("job")
    os.mkdir(os.path.join(base, "job"), 0o700)
    subprocess.run(["mount", "-o", "remount,size=1m", str(two_places[0])], check=True)
    assert private_directories.choose_base("job") == base
    assert private_directories.choose_base("another") == str(two_places[0] / "base")


@as_root
def test_when_all_names_are_squatted_the_job_takes_one_of_its_own(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(private_directories, "candidate_bases", lambda env=None: [(str(private_base), "horovod")])
    squatted = private_base / "horovod"
    squatted.mkdir(mode=0o700)
    os.chown(squatted, NOBODY, NOBODY)
    for result in connected(placements(3)):
        result.close()
    assert f"{squatted} belongs to user nobody (uid 65534)" in caplog.text
    assert os.listdir(private_base) == ["horovod"]


def test_without_a_temporary_directory_the_other_places_count(
    private_base: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert private_directories.choose_base("job").startswith(str(private_base))


def test_a_directory_that_another_rank_is_making_is_waited_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "horovod"
    path.mkdir(0o000)
    maker = threading.Timer(0.05, path.chmod, [0o700])
    maker.start()
    os.close(private_directories.open_private(str(path), make=True))
    maker.join()


def test_no_umask_gets_in_the_way(private_base: pathlib.Path) -> None:
    before = os.umask(0o777)
    try:
        results = connected(placements(2))
    finally:
        os.umask(before)
    for result in results:
        result.close()
