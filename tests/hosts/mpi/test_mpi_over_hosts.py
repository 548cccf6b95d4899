"""A bare mpirun over several hosts: the ranks meet through its library, and are a job like any other from then on."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, Ended, Hosts
from .mpis import BY_ID, MPI4PY, MPIS, Mpi, site_packages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RANK = Path(__file__).with_name("mpi_rank.py")
_IDLE_S = 0.05  # of a second
_FILES_OF_MPI = re.compile(r"mpich_shm|Intel_MPI|sm_segment|vader_segment")


@pytest.fixture(params=[mpi.id for mpi in MPIS])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI in turn."""
    return present(request.param)


def present(name: str) -> Mpi:
    """The MPI; skips the test when it is not there."""
    why = BY_ID[name].why_absent()
    if why is not None:
        pytest.skip(why)
    return BY_ID[name]


def run(
    hosts: Hosts,
    mpi: Mpi,
    counts: Sequence[int],
    part: str,
    environ: Mapping[str, str] = {},
    python: Sequence[str] = (),
) -> tuple[Ended, list[dict[str, Any]]]:
    """A job, and what its ranks have said, in their order."""
    variables = {"PYTHONPATH": str(ROOT / "python"), **environ}
    command = mpi.command(counts, [sys.executable, *python, str(RANK), part], variables)
    began_s = time.monotonic()
    ended = hosts.ended(hosts.start_program(command), began_s)
    remove_files_of_mpi(hosts)
    said = [json.loads(line) for line in ended.out if line.startswith("{")]
    return ended, sorted(said, key=lambda each: int(each["rank"]))


def remove_files_of_mpi(hosts: Hosts) -> None:
    """Libraries leave files in shared memory when their ranks end otherwise than by MPI_Finalize."""
    for host in hosts.network.hosts:
        for name in host.files():
            if _FILES_OF_MPI.match(name):
                host.enter("rm", "-f", f"/proc/{host.pid}/root/dev/shm/{name}")


def with_mpi4py(mpi: Mpi) -> dict[str, str]:
    """The variables by which a rank finds mpi4py, and that one the library."""
    if not list(MPI4PY.glob("lib/python3*/site-packages/mpi4py")):
        pytest.skip("mpi4py is not installed; `make launchers` installs it.")
    packages = f"{ROOT / 'python'}:{site_packages(MPI4PY)}"
    return {"PYTHONPATH": packages, "LD_LIBRARY_PATH": str((mpi.folder / mpi.library).parent)}


@pytest.mark.parametrize("counts", [(1, 1), (2, 2), (1, 2, 1)], ids=str)
def test_ranks_meet_and_work_and_meet_again(hosts: Hosts, mpi: Mpi, counts: tuple[int, ...]) -> None:
    ended, said = run(hosts, mpi, counts, "work")
    assert ended.code == 0, ended.err
    size = sum(counts)
    assert [each["hvd_rank"] for each in said] == list(range(size))
    total = size * (size + 1) / 2
    host_of_rank = [each["hvd_local_size"] for each in said]
    assert sorted(host_of_rank) == sorted(count for count in counts for _ in range(count))
    for each in said:
        assert each["first"] == each["second"] == [total] * 4
        assert (each["hvd_size"], each["launcher"], each["mpi"], each["threads"]) == (size, mpi.name, True, True)
        assert each["idle_s"] < _IDLE_S
    hosts.is_clean()


@pytest.mark.parametrize("name", ["mpich", "intel"])
def test_the_standard_abi_does_as_well(hosts: Hosts, name: str) -> None:
    mpi = present(name)
    library = str(mpi.folder / "lib" / "libmpi_abi.so.1")
    ended, said = run(hosts, mpi, (1, 1), "work", {"HOROVOD_MPI_LIBRARY": library})
    assert ended.code == 0 and [each["first"] for each in said] == [[3.0] * 4] * 2, ended.err
    assert all(each["threads"] for each in said)


def test_one_thread_is_enough(hosts: Hosts, mpi: Mpi) -> None:
    ended, said = run(hosts, mpi, (1, 1), "work", {"HOROVOD_MPI_THREADS_DISABLE": "1"})
    assert ended.code == 0 and [each["first"] for each in said] == [[3.0] * 4] * 2, ended.err
    assert not any(each["threads"] for each in said)


@pytest.mark.parametrize("name", ["openmpi4", "openmpi5", "mpich"])
@pytest.mark.parametrize("words", [(), ("-m", "mpi4py")], ids=["imported", "-m mpi4py"])
def test_a_script_that_uses_mpi4py_goes_on_using_it(hosts: Hosts, name: str, words: tuple[str, ...]) -> None:
    mpi = present(name)
    ended, said = run(hosts, mpi, (2, 1), "work_beside_mpi4py", with_mpi4py(mpi), words)
    assert ended.code == 0 and len(said) == 3, ended.err
    assert [each["world"] for each in said] == [[rank, 3] for rank in range(3)]
    assert [each["first"] for each in said] == [[6.0] * 4] * 3


def test_a_rank_that_dies_while_they_connect_is_named(hosts: Hosts) -> None:
    ended, said = run(hosts, present("openmpi4"), (1, 2), "fail")
    assert ended.code != 0
    assert said and all("Rank 1" in each["error"] and each["seconds"] < 4.0 for each in said), ended


def test_a_rank_that_never_calls_init_is_an_error_in_time(hosts: Hosts, mpi: Mpi) -> None:
    patience = {"HOROVOD_START_TIMEOUT": "2", "HOROVOD_GLOO_TIMEOUT_SECONDS": "2"}
    ended, said = run(hosts, mpi, (1, 1), "stay_away", patience)
    assert ended.code != 0 and ended.seconds < 20
    assert "MPI initialisation did not finish within 2 s. MPI_Init of" in said[0]["error"]
    assert "waits until all ranks of the job have called hvd.init()" in said[0]["error"]
    assert "This is rank 0 of 2 on host1, where 1 of them is; of the 1 on other hosts some have" in said[0]["error"]


def test_an_exception_ends_the_job_though_mpi_waits_for_all_ranks(hosts: Hosts, mpi: Mpi) -> None:
    ended, _ = run(hosts, mpi, (1, 1), "throw")
    assert ended.code != 0 and ended.seconds < 15
    assert any("ValueError: bad batch" in line for line in ended.err)


def test_the_library_of_another_mpi_is_refused(hosts: Hosts) -> None:
    other = present("mpich").folder / "lib" / "libmpi.so.12"
    ended, said = run(hosts, present("openmpi5"), (1, 1), "refused", {"HOROVOD_MPI_LIBRARY": str(other)})
    assert ended.code != 0
    assert "does not belong to the MPI that started this process (Open MPI)" in said[0]["error"]


def test_a_network_that_does_not_join_the_hosts_is_an_error_with_a_remedy(hosts: Hosts) -> None:
    ended, said = run(hosts, present("mpich"), (1, 1), "refused", {"HOROVOD_GLOO_IFACE": "lo"})
    assert ended.code != 0
    assert "HOROVOD_GLOO_IFACE" in said[0]["error"] and "means a different machine on each host" in said[0]["error"]
