"""The lines of `runner.mpi` start programs on two hosts, where they should, with their variables and without a value of
theirs on the line.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from launchers.starters import BY_ID, SYSTEM_PATH, Starter

from horovod._core.settings import Settings
from horovod.runner.machines.hosts import Host
from horovod.runner.mpi import lines
from horovod.runner.mpi.kinds import implementation

from ..conftest import Hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HOSTS = (Host("host1", 1), Host("host2", 2))
# The second word is the rank, by whoever tells it.
RANK = 'echo "ranks $(uname -n) ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $MY_TOKEN"'


@pytest.fixture(params=["openmpi5", "openmpi4", "mpich", "intel"])
def starter(request: pytest.FixtureRequest) -> Starter:
    """Each MPI that is there."""
    found = BY_ID[request.param]
    missing = found.why_absent()
    if missing is not None:
        pytest.skip(missing)
    return found


def test_a_line_starts_ranks_on_two_hosts(starter: Starter, hosts: Hosts, tmp_path: Path) -> None:
    folder = starter.path().split(":")[0]
    program = f"{folder}/mpirun"
    environ = {"PATH": f"{folder}:{SYSTEM_PATH}", "HOME": os.environ["HOME"], "MY_TOKEN": "very secret"}
    environ.update(starter.environ)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, env=environ, check=True).stdout
    (tmp_path / "hosts").write_text(lines.host_file(HOSTS))
    wanted = lines.Wanted(
        program, HOSTS, ("sh", "-c", RANK), lines.exported(environ), str(tmp_path / "hosts"), as_root=True
    )
    words = lines.line(wanted, Settings(), implementation(said))
    assert not any("very secret" in word for word in words)
    ended = hosts.program(words, environ=environ)
    assert ended.code == 0, "\n".join(ended.err)
    found = {line[line.index("ranks ") :] for line in ended.out if "ranks " in line}
    assert found == {"ranks host1 0 very secret", "ranks host2 1 very secret", "ranks host2 2 very secret"}, ended
