"""`horovodrun --mpi` over several hosts: the ranks are mpirun's, and meet through its library."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ..conftest import Ended, Hosts
from ..mistakes import blocked_port
from .mpis import BY_ID, MPIS, Mpi
from .test_mpi_over_hosts import remove_files_of_mpi

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RANK = Path(__file__).with_name("mpi_rank.py")
# How each is told to find hosts by ssh, and which network to take, where it does not by itself.
_OWN_WORDS = {"openmpi4": "--mca btl_tcp_if_include eth0", "openmpi5": "--mca btl_tcp_if_include eth0"}


def run(hosts: Hosts, mpi: Mpi, options: str, part: str = "work", environ: Mapping[str, str] = {}) -> Ended:
    """A job of horovodrun, with this MPI's programs before all others."""
    if why := mpi.why_absent():
        pytest.skip(why)
    environ = {"PATH": f"{mpi.folder / 'bin'}:{hosts.environ['PATH']}", **environ}
    options += f" --mpi --mpi-args '{_OWN_WORDS[mpi.id]}'" if mpi.id in _OWN_WORDS else " --mpi"
    words = [sys.executable, "-m", "horovod.runner", *shlex.split(options), sys.executable, str(RANK), part]
    began_s = time.monotonic()
    ended = hosts.ended(hosts.start_program(words, environ=environ), began_s)
    remove_files_of_mpi(hosts)
    return ended


def said(ended: Ended) -> list[dict[str, object]]:
    """What the ranks have printed, without what mpirun writes before it."""
    found = [json.loads(line[line.index("{") :]) for line in ended.out if "{" in line]
    return sorted(found, key=lambda each: int(each["rank"]))


@pytest.mark.parametrize("mpi", MPIS, ids=lambda mpi: mpi.id)
def test_the_ranks_of_two_hosts_meet(hosts: Hosts, mpi: Mpi) -> None:
    ended = run(hosts, mpi, "-np 3 -H host1:2,host2:1")
    assert ended.code == 0, "\n".join(ended.err)
    assert [each["first"] for each in said(ended)] == [[6.0] * 4] * 3
    assert [each["hvd_local_size"] for each in said(ended)] == [2, 2, 1]
    hosts.is_clean()


def test_a_host_that_is_not_there_is_reported(hosts: Hosts) -> None:
    ended = run(hosts, BY_ID["openmpi5"], "-np 2 -H host1:1,nowhere.invalid:1")
    assert ended.code != 0 and "nowhere.invalid" in "".join(ended.err), ended.err
    hosts.is_clean()


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5"])
def test_a_host_that_does_not_answer_is_reported_within_the_start_timeout(
    hosts: Hosts, name: str, tmp_path: Path
) -> None:
    with blocked_port(hosts, tmp_path):
        ended = run(hosts, BY_ID[name], "-np 2 -H host1:1,host2:1 --start-timeout 3")
    assert ended.code != 0 and ended.seconds < 20, ended
    assert any("connect to host host2 port 22: Connection timed out" in line for line in ended.err + ended.out), ended


def test_a_check_of_host_keys_that_is_given_up_is_warned_of(hosts: Hosts) -> None:
    relaxed = {"OMPI_MCA_plm_rsh_args": "-o StrictHostKeyChecking=no"}
    ended = run(hosts, BY_ID["openmpi4"], "-np 2 -H host1:1,host2:1", environ=relaxed)
    told = "OMPI_MCA_plm_rsh_args has StrictHostKeyChecking=no: with that ssh does not check"
    assert ended.code == 0 and sum(told in line for line in ended.err) == 1, ended
