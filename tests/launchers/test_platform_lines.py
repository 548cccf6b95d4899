"""The mpirun lines that managed platforms make, as far as one host goes: names of hosts become this one, names of its
network interface "lo", and Python the one of this environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hosts.mpi.mpis import MPI4PY, site_packages
from jobs import ROOT, Ended, Place

from .conftest import present
from .launched import assert_worked, job_of, worker
from .platform_lines import GRADIENT, LINES, SAGEMAKER_SDK_3, exported, with_two_hyphens, words_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def run(line: str, mpi: str, variables: Mapping[str, str], place: Place, request: pytest.FixtureRequest) -> Ended:
    """A job of the line, with variables for its ranks as the platform gives them: in the environment, and by -x."""
    starter = present(mpi, request)
    if not (MPI4PY / "ready").is_file():
        pytest.skip("mpi4py is not installed; `make launchers` installs it.")
    hostfile = place.folder / "hostfile"
    hostfile.write_text("localhost slots=2\n")
    python, script, part = worker("work")
    places = {
        "HOSTS": ["localhost:2"],
        "COUNT": ["2"],
        "HOSTFILE": [str(hostfile)],
        "VARIABLES": exported(variables),
        "PYTHON": [python],
        "SCRIPT": [script, part],
    }
    libraries = str(Path(starter.path().split(os.pathsep)[0]).parent / "lib")
    paths = [str(ROOT / "python"), str(ROOT / "tests"), site_packages(MPI4PY)]
    environ = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": os.pathsep.join(paths), **variables}
    job = job_of(starter, place, environ=environ)
    job.start(words_of(line, places, "lo"))
    return job.end()


@pytest.mark.parametrize("mpi", ["openmpi4", "openmpi5"])
@pytest.mark.parametrize("name", list(LINES))
def test_the_line_works_and_settings_come_with_it(
    name: str, mpi: str, place: Place, request: pytest.FixtureRequest
) -> None:
    timeline = place.folder / "timeline.json"
    promised = {"HOROVOD_EXPECTED_SIZE": "2", "HOROVOD_EXPECTED_HOSTS": "1"}
    line = LINES[name]
    if mpi == "openmpi5":
        line = with_two_hyphens(line)
    ended = run(line, mpi, {"HOROVOD_TIMELINE": str(timeline), **promised}, place, request)
    assert_worked(ended, 2, "Open MPI")
    assert "NEGOTIATE_ALLREDUCE" in {entry.get("name") for entry in json.loads(timeline.read_text())}
    given = ended.of("worked")[0]["given"]
    assert given["expected_size"] == "2" and ("autotune" in given) == (name == "azure-ml"), given


def test_open_mpi_5_does_not_take_words_with_one_hyphen(place: Place, request: pytest.FixtureRequest) -> None:
    ended = run(GRADIENT, "openmpi5", {}, place, request)
    assert ended.code != 0 and "unable to find the specified executable file" in ended.output, str(ended)


def test_fewer_ranks_than_the_nodes_should_have_stop_in_init(place: Place, request: pytest.FixtureRequest) -> None:
    """As on two nodes of two, for which the driver of SageMaker's SDK 3 asks mpirun for two ranks altogether."""
    promised = {"HOROVOD_EXPECTED_SIZE": "4", "HOROVOD_EXPECTED_HOSTS": "2"}
    ended = run(SAGEMAKER_SDK_3, "openmpi4", promised, place, request)
    assert ended.code != 0 and ended.of("worked") == [], str(ended)
    assert "HOROVOD_EXPECTED_SIZE=4 and HOROVOD_EXPECTED_HOSTS=2 was promised" in ended.output, str(ended)


def test_the_number_of_ranks_may_be_given_again(place: Place, request: pytest.FixtureRequest) -> None:
    """The last one counts: that is how a job of SDK 3 gets all of its ranks."""
    again = SAGEMAKER_SDK_3.replace("HOSTS", "localhost:3").replace("VARIABLES", "-np 3 VARIABLES")
    ended = run(again, "openmpi4", {}, place, request)
    assert_worked(ended, 3, "Open MPI")
