"""Where ranks of several hosts meet by a secret that the user has given: addresses, the file, the meeting itself."""

from __future__ import annotations

import os
import pathlib
import socket
import time
from collections.abc import Callable
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from net_ranks import forked, in_threads, unique_key

from horovod._net import fact_exchange, meeting_at_address
from horovod._net.clusters import users_secret
from horovod._net.clusters.addresses import MeetingPoint, meeting_point
from horovod._net.clusters.launchers import detect_placement
from horovod._net.clusters.placement import Placement
from horovod._net.clusters.slurm_counts import first_host
from horovod._net.failures import ConnectError, MeetingError, PlacementError, StartTimeoutError
from horovod._net.meeting.facts import Facts
from horovod._net.mpi.session import Wanted

SECRET = bytes(range(32))
TORCHRUN = {"TORCHELASTIC_RUN_ID": "one", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("launcher", "env", "named", "host", "source"),
    [
        ("torchrun", TORCHRUN, None, "node1", "MASTER_ADDR=node1"),
        ("torchrun", TORCHRUN, "node9:700", "node9", "HOROVOD_MEETING_ADDRESS=node9:700"),
        ("Open MPI", TORCHRUN, None, "node1", "MASTER_ADDR=node1"),
        ("srun", {"SLURM_STEP_NODELIST": "n[07-09,11]"}, None, "n07", "the first host of SLURM_STEP_NODELIST"),
        ("jsrun", {"LSB_MCPU_HOSTS": "c1 4 c2 4"}, None, "c1", "the first host of LSB_MCPU_HOSTS"),
        (
            "jsrun",
            {"LSB_MCPU_HOSTS": "login 1 c1 4", "CSM_ALLOCATION_ID": "7"},
            None,
            "c1",
            "the first host of LSB_MCPU_HOSTS",
        ),
    ],
)
def test_each_launcher_has_an_address(
    launcher: str, env: dict[str, str], named: Optional[str], host: str, source: str
) -> None:
    point = meeting_point(launcher, env, named)
    assert point is not None
    assert (point.host, point.source) == (host, source)
    assert point.port == 700 if named else 20000 <= point.port < 29000


@pytest.mark.parametrize("launcher", ["srun", "jsrun", "Flux", "PALS", "PMIx", "MPICH"])
def test_where_nothing_tells_there_is_none(launcher: str) -> None:
    assert meeting_point(launcher, {}, None) is None


def test_the_port_is_that_of_the_job_on_every_host() -> None:
    def port(**change: str) -> int:
        point = meeting_point("torchrun", {**TORCHRUN, **change}, None)
        assert point is not None
        return point.port

    # An agent of torchrun counts its own restarts, and an address may be spelled in two ways.
    assert port() == port(TORCHELASTIC_RESTART_COUNT="3", RANK="5", MASTER_ADDR="10.0.0.1")
    assert len({port(TORCHELASTIC_RUN_ID=str(job)) for job in range(50)}) > 40


@pytest.mark.parametrize("text", ["node:", "node:0", "node:70000", "a b", "::1", "node:12:13", "[node]:12", ":12"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PlacementError, match="HOROVOD_MEETING_ADDRESS must be the host of rank 0"):
        meeting_point("torchrun", {}, text)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("node7:29400", "node7", 29400), ("[fd00::7]:80", "fd00::7", 80), ("10.0.0.1:9", "10.0.0.1", 9)],
)
def test_an_address_with_a_port(text: str, host: str, port: int) -> None:
    assert meeting_point("torchrun", {}, text) == MeetingPoint(
        host, port, f"HOROVOD_MEETING_ADDRESS={text}", "torchrun/TORCHELASTIC_RUN_ID=/MASTER_PORT="
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [("node7", "node7"), ("a[1-3]b[04,5],c", "a1b04"), ("x,y[1-2]", "x"), ("", ""), ("[", "")],
)
def test_the_first_of_slurms_nodes(text: str, name: str) -> None:
    assert first_host(text) == name


@given(st.text(alphabet="ab[]0-9,- ", max_size=40))
def test_any_list_has_a_first_or_none(text: str) -> None:
    assert "," not in first_host(text) or "[" in text


def written(path: pathlib.Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_secret_is_read_from_its_file(tmp_path: pathlib.Path) -> None:
    assert users_secret.read(written(tmp_path / "secret", SECRET.hex().upper() + "\n", 0o400)) == SECRET


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (SECRET.hex(), 0o640, "has mode 0640, so others can read or change it"),
        (SECRET.hex()[:-1], 0o600, "must hold 64 hexadecimal digits and nothing else"),
        ("", 0o600, "must hold 64 hexadecimal digits"),
        (SECRET.hex() * 2, 0o600, "must hold 64 hexadecimal digits"),
    ],
)
def test_a_bad_secret_is_refused_and_not_shown(tmp_path: pathlib.Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(PlacementError, match=message) as caught:
        users_secret.read(written(tmp_path / "secret", text, mode))
    assert "openssl rand -hex 32" in str(caught.value)
    assert SECRET.hex()[:16] not in str(caught.value)


def test_a_missing_secret_is_named_with_its_host(tmp_path: pathlib.Path) -> None:
    with pytest.raises(PlacementError, match=f"cannot be read on {socket.gethostname()}: No such file"):
        users_secret.read(str(tmp_path / "none"))


def test_each_job_has_a_secret_of_its_own() -> None:
    made = {users_secret.of_job(SECRET, job, token) for job in "ab" for token in "cd"}
    assert len(made) == 4 and all(len(each) == 32 for each in made)


def test_a_launcher_without_hosts_leaves_them_open_when_there_is_a_secret() -> None:
    alone = {"PMIX_RANK": "2", "HOROVOD_SIZE": "4"}
    assert detect_placement(dict(alone)).one_host
    placement = detect_placement({**alone, "HOROVOD_SECRET_FILE": "/some"})
    assert (placement.rank, placement.size, placement.one_host) == (2, 4, False)


def test_fluxs_unequal_nodes_show_when_the_ranks_meet() -> None:
    env = {"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "3", "FLUX_TASK_LOCAL_ID": "0", "FLUX_JOB_NNODES": "2"}
    placement = detect_placement(env)
    assert placement.lacks_a_place_to_meet and placement.rank == 2


# ---- the meeting


class Job:
    """A job of so many ranks, each on a host of its own as far as its launcher tells."""

    def __init__(self, size: int, **fields: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.point = MeetingPoint("127.0.0.1", port, "a test", unique_key())
        key = unique_key()
        self.ranks = [
            Placement(rank, size, 0, 1, rank, size, "torchrun", key, f"host{rank}", **fields) for rank in range(size)
        ]

    def come(self, rank: int, secret: bytes = SECRET, patience_s: float = 10.0) -> meeting_at_address.Gathered:
        own = Facts(f"host{rank}", f"place{rank}", ("10.0.0.1/8",)).packed()
        return meeting_at_address.gather(self.point, self.ranks[rank], secret, own, time.monotonic() + patience_s)

    def all_come(self, *calls: Callable[[], Any]) -> list[Any]:
        results = in_threads(calls or [lambda r=r: self.come(r) for r in range(len(self.ranks))])
        for each in results:
            if isinstance(each, meeting_at_address.Gathered):
                each.board.close()
        return results


def test_all_hear_what_each_has_said_and_one_token() -> None:
    told = Job(3).all_come()
    assert {each.token for each in told} == {told[0].token}
    assert [each.by_rank for each in told] == [told[0].by_rank] * 3
    assert b"host2" in told[1].by_rank[2]


def test_the_keeper_may_come_last() -> None:
    job = Job(2)

    def late() -> Any:
        time.sleep(0.5)
        return job.come(0)

    assert all(isinstance(each, meeting_at_address.Gathered) for each in job.all_come(lambda: job.come(1), late))


def test_who_lacks_the_secret_hears_it_at_once() -> None:
    job = Job(2)
    began_s = time.monotonic()
    kept, refused = job.all_come(lambda: job.come(0, patience_s=2), lambda: job.come(1, secret=bytes(32)))
    assert isinstance(refused, ConnectError) and "does not hold this job's secret" in str(refused)
    assert isinstance(kept, StartTimeoutError) and kept.ranks == (1,) and "the same secret" in str(kept)
    assert "A process at 127.0.0.1 said that it was rank 1 and left after the proof of the secret" in str(kept)
    assert time.monotonic() - began_s < 5


def test_a_meeting_that_failed_can_be_tried_again() -> None:
    job = Job(2)
    with pytest.raises(StartTimeoutError, match="Rank 1 of 2 did not come to the meeting"):
        job.come(0, patience_s=0.2)
    assert all(isinstance(each, meeting_at_address.Gathered) for each in job.all_come())


def test_a_rank_that_ends_before_all_have_met_is_named() -> None:
    job = Job(3)

    def give_up() -> Any:
        return job.come(2, patience_s=0.5)

    first, second, third = job.all_come(lambda: job.come(0), lambda: time.sleep(3), give_up)
    assert isinstance(third, StartTimeoutError) and third.ranks == (1,)
    assert second is None and isinstance(first, ConnectError) and first.ranks == (2,)


def test_a_port_that_is_taken_is_reported_with_the_remedy() -> None:
    job = Job(2)
    with (
        socket.create_server(("127.0.0.1", job.point.port)),
        pytest.raises(PlacementError, match=r"cannot keep the board of this job, by a test.*HOROVOD_MEETING_ADDRESS"),
    ):
        job.come(0)


def test_an_address_of_another_host_is_reported() -> None:
    job = Job(2)
    job.point = job.point._replace(host="192.0.2.1")
    with pytest.raises(PlacementError, match="must be one of this host"):
        job.come(0)


def test_a_name_without_an_address_is_reported() -> None:
    job = Job(2)
    job.point = job.point._replace(host="nosuchhost.invalid")
    with pytest.raises(ConnectError, match=r"nosuchhost.invalid \(a test\), whose name has no address"):
        job.come(1)


def test_ranks_without_the_one_that_keeps_the_board_are_refused() -> None:
    job = Job(2, launcher_ranks=(1, 2))
    with pytest.raises(PlacementError, match="rank 0 of torchrun keeps the board"):
        job.come(0)


# ---- what decides that they meet so


@pytest.mark.parametrize(
    ("launcher", "env", "secret", "address", "message"),
    [
        (
            "torchrun",
            {"MASTER_ADDR": "n1"},
            None,
            None,
            r"secret to trust one another, and torchrun gives them none.*HOROVOD_SECRET_FILE",
        ),
        ("torchrun", {}, "/file", None, "the ranks of torchrun have no address to meet at"),
        ("Open MPI", {}, "/file", None, "the ranks of Open MPI have no address to meet at"),
        ("Open MPI", {}, None, "n1:77", "HOROVOD_MEETING_ADDRESS is set, but HOROVOD_SECRET_FILE is not"),
        ("torchrun", {"MASTER_ADDR": "n1"}, "/nofile", None, "HOROVOD_SECRET_FILE=/nofile cannot be read"),
    ],
)
def test_means_that_do_not_fit_are_refused(
    launcher: str,
    env: dict[str, str],
    secret: Optional[str],
    address: Optional[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    placement = Placement(0, 2, 0, 1, 0, 2, launcher, unique_key(), "here")
    means = fact_exchange.Means(Wanted(), secret, address)
    with pytest.raises(PlacementError, match=message):
        fact_exchange.exchange_facts(placement, placement, means, 1.0)


def known(job: Job, folder: pathlib.Path, rank: int, version: str = "1.0") -> fact_exchange.KnownJob:
    address = f"{job.point.host}:{job.point.port}"
    means = fact_exchange.Means(Wanted(), written(folder / f"secret{rank}", SECRET.hex()), address, version)
    return fact_exchange.exchange_facts(job.ranks[rank], job.ranks[rank], means, 10.0)


def test_ranks_of_another_version_are_refused_by_name(private_base: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = Job(2)
    for each in in_threads([lambda r=r: known(job, tmp_path, r, version=("1.0", "0.9")[r]) for r in range(2)]):
        assert isinstance(each, MeetingError)
        assert "Rank 1 on host1 has Horovod 0.9, rank 0 on host0 has 1.0; install the same" in str(each)


def test_ranks_of_one_directory_find_that_they_share_a_host(private_base: pathlib.Path, tmp_path: pathlib.Path) -> None:
    job = Job(2)
    keep, over = os.pipe()

    def child(rank: int) -> None:
        place = known(job, tmp_path, rank).placement  # a process remembers it, so this one must not make it
        if rank == 0:
            os.close(over)
            os.read(keep, 1)  # its board goes last
        assert (place.local_rank, place.local_size, place.cross_size) == (rank, 2, 1)

    first, second = (forked(lambda r=r: child(r)) for r in range(2))
    assert os.waitpid(second, 0)[1] == 0
    os.close(over)
    assert os.waitpid(first, 0)[1] == 0
    os.close(keep)
    assert list(private_base.iterdir()) == []
