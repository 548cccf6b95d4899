"""What every source of hosts promises, whatever it is: a list, a file, an allocation, a script, or one of others."""

from __future__ import annotations

import io
import os
import select
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional, Union

import pytest

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic import machine
from horovod.runner.elastic.blacklist import Blacklist
from horovod.runner.elastic.driver import Around, Driver
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.elastic.journal import Journal
from horovod.runner.elastic.state import Limits
from horovod.runner.job import Job, effective_settings, make_job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.elastic_hosts import Discovery, Names, source_of
from horovod.runner.machines.hosts import Host
from horovod.runner.options import flags
from horovod.runner.remote.ways.by_process import HereOrSsh
from horovod.spark import executors
from horovod.spark.executors import ExecutorSource
from horovod.spark.placement import Facts

PATIENCE_S = 20.0
FOUND = (Host("a", 2), Host("b", 1))


class Executors(HostSource):
    """A source of others: it names its hosts when something has come through a pipe."""

    def __init__(self, *named: tuple[Host, ...]) -> None:
        self.name = "the cluster"
        self._named = list(named)
        self._read_fd, self._write_fd = os.pipe()
        self.ring()

    def ring(self) -> None:
        os.write(self._write_fd, b"x")

    def wake(self, poller: select.epoll) -> None:
        poller.register(self._read_fd, select.EPOLLIN)

    def next_s(self) -> Optional[float]:
        return None

    def serve(self) -> Optional[tuple[Host, ...]]:
        if not self._named or not select.select([self._read_fd], [], [], 0)[0]:
            return None
        os.read(self._read_fd, 1)
        return self._named.pop(0)

    def close(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1


def job_of(line: str, tmp_path: Path, environ: Optional[dict[str, str]] = None) -> Job:
    parsed = flags.parse(shlex.split(f"{line} true"))
    given = {"PATH": os.environ["PATH"], "OMPI_MCA_plm_rsh_agent": "sh", **(environ or {})}
    return make_job(effective_settings(parsed.values, "flag", given), parsed.command, given, str(tmp_path))


def _listed(tmp_path: Path) -> HostSource:
    return source_of(job_of("-np 3 --min-np 1 -H a:2,b:1", tmp_path))


def _file(tmp_path: Path) -> HostSource:
    (tmp_path / "hosts").write_text("a slots=2\nb slots=1\n")
    return source_of(job_of(f"-np 3 --min-np 1 --hostfile {tmp_path / 'hosts'}", tmp_path))


def _allocation(tmp_path: Path) -> HostSource:
    slurm = {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "a,b", "SLURM_TASKS_PER_NODE": "2,1"}
    return source_of(job_of("-np 3 --min-np 1", tmp_path, slurm))


def _script(tmp_path: Path) -> HostSource:
    (tmp_path / "find.sh").write_text("#!/bin/sh\necho a:2\necho b:1\n")
    (tmp_path / "find.sh").chmod(0o755)
    return source_of(job_of("-np 3 --min-np 1 --host-discovery-script ./find.sh", tmp_path))


def _others(tmp_path: Path) -> HostSource:
    del tmp_path
    return Executors(FOUND)


def _spark(tmp_path: Path) -> HostSource:
    del tmp_path
    tasks = {str(number): Facts(number, "m", name, name) for number, name in enumerate("aba")}
    return ExecutorSource(executors.Executors(), lambda: tasks)


KINDS: dict[str, Callable[[Path], HostSource]] = {
    "list": _listed, "file": _file, "allocation": _allocation, "script": _script, "others": _others, "spark": _spark,
}  # fmt: skip


def begins_on(source: HostSource, job: Job) -> Union[tuple[Host, ...], Outcome]:
    surroundings = Surroundings(io.StringIO(), io.StringIO())
    return Discovery(source, HereOrSsh(job), Names(), job, surroundings).hosts()


class TestEverySource:
    """The same for all."""

    @pytest.fixture(params=list(KINDS))
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HostSource]:
        made = KINDS[request.param](tmp_path)
        yield made
        made.close()
        made.close()

    def test_it_wakes_who_waits_and_names_its_hosts(self, source: HostSource) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        with select.epoll() as poller:
            source.wake(poller)
            while (found := source.serve()) is None:
                assert time.monotonic() < deadline_s and not source.problem
                next_s = source.next_s()
                poller.poll(max(0.0, min(deadline_s, next_s or deadline_s) - time.monotonic()))
        assert found == FOUND
        assert source.name and not source.written()

    @pytest.mark.parametrize("source", ["list", "file", "allocation"], indirect=True)
    def test_what_does_not_change_says_it_once_and_wakes_nobody(self, source: HostSource) -> None:
        assert not source.changes
        assert source.serve() == FOUND
        assert source.serve() is None and source.next_s() is None
        with select.epoll() as poller:
            source.wake(poller)
            assert not poller.poll(0)

    def test_a_job_begins_on_its_hosts(self, source: HostSource, tmp_path: Path) -> None:
        job = job_of("-np 3 --min-np 1 -H localhost:3", tmp_path)
        assert begins_on(source, job) == FOUND


def test_a_job_waits_until_a_source_of_others_has_named_enough(tmp_path: Path) -> None:
    source = Executors((Host("localhost", 1),), (Host("localhost", 3),))
    nowhere: Any = None
    job = job_of("-np 3 --min-np 1 -H localhost:3 --elastic-timeout 1", tmp_path)
    source.ring()
    assert Discovery(source, HereOrSsh(job), Names(), job, Surroundings(nowhere, nowhere)).hosts() == (
        Host("localhost", 3),
    )
    late = Discovery(source, HereOrSsh(job), Names(), job, Surroundings(nowhere, nowhere)).hosts()
    assert isinstance(late, Outcome) and "but the cluster has not named that many usable ones" in late.complaint
    source.problem = "the cluster does not answer"
    with pytest.raises(InvalidArgumentError, match=r"^The cluster does not answer\.$"):
        begins_on(source, job)
    source.close()


class _Crew:
    """Nobody is there; workers that are to be started are noted."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self._read_fd, self._write_fd = os.pipe()

    def fileno(self) -> int:
        return self._read_fd

    def next_s(self) -> Optional[float]:
        return None

    def begin(self, worker: int, host: str) -> str:
        self.begun.append((worker, host))
        return "begun"

    def close(self) -> None:
        os.close(self._read_fd)
        os.close(self._write_fd)


def test_a_running_job_follows_a_source_of_others() -> None:
    source, crew = Executors((Host("a", 1),), (Host("a", 1), Host("b", 1))), _Crew()
    state, _ = machine.begin(Limits(1, 1, 2), (Host("a", 1),), Blacklist(), time.monotonic())
    face: Any = crew
    driver = Driver(state, face, Around(lambda hosts: hosts, source, Journal(None)))
    assert driver.events() == [] and driver.state.hosts == (Host("a", 1),)
    source.ring()
    assert select.select([driver.fileno()], [], [], 0)[0]
    driver.events()
    assert driver.state.hosts == (Host("a", 1), Host("b", 1))
    assert crew.begun == [(1, "b")]
    driver.close()
