"""The line of mpirun that users copy from the documentation of a platform, word by word."""

from __future__ import annotations

import shlex
import site
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, Ended, Hosts
from .mpis import BY_ID
from .network import Network, why_absent
from .test_mpi_over_hosts import remove_files_of_mpi

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LINE = (
    "mpirun -x HOROVOD_AUTOTUNE=1 -np 4 -H server1:2,server2:2 -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
    "-x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib python train.py"
)
# Installed for whichever Python comes first in PATH: Open MPI puts its own folder there.
TRAIN = """
    import sys
    sys.path[:0] = {places!r}
    import os
    import numpy as np
    import horovod.numpy as hvd
    hvd.init()
    total = hvd.allreduce(np.ones(2), op=hvd.Sum, name="x")[0]
    names = "NCCL_DEBUG", "HOROVOD_AUTOTUNE"
    told = "trained", hvd.rank(), os.uname().nodename, hvd.local_size(), total, *map(os.environ.get, names)
    os.write(1, (" ".join(map(str, told)) + "\\n").encode())  # mpirun may put others' output between two writes
"""
TRAINED = {f"trained {rank} server{1 + rank // 2} 2 4.0 INFO 1" for rank in range(4)}


@pytest.fixture
def servers() -> Iterator[Hosts]:
    """Two hosts of these names."""
    if why := why_absent():
        pytest.skip(why)
    network = Network(2, ["server1", "server2"])
    yield Hosts(network)
    network.close()


def run(servers: Hosts, name: str, line: str, folder: Path) -> Ended:
    """The line, where this Open MPI is installed and a user may be root."""
    mpi = BY_ID[name]
    if why := mpi.why_absent():
        pytest.skip(why)
    places = [str(ROOT / "python"), *site.getsitepackages()]
    (folder / "train.py").write_text(textwrap.dedent(TRAIN).format(places=places))
    environ = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "LD_LIBRARY_PATH": str(mpi.folder / "lib"),
        "PATH": f"{Path(sys.executable).parent}:{mpi.folder / 'bin'}:/usr/bin:/bin",
    }
    program, *words = shlex.split(line)
    began_s = time.monotonic()
    running = servers.start_program([str(mpi.folder / "bin" / program), *words], environ=environ, cwd=folder)
    ended = servers.ended(running, began_s)
    remove_files_of_mpi(servers)
    return ended


def test_open_mpi_4_takes_every_word(servers: Hosts, tmp_path: Path) -> None:
    ended = run(servers, "openmpi4", LINE, tmp_path)
    assert ended.code == 0, ended
    assert {line for line in ended.out if line.startswith("trained")} == TRAINED


def test_open_mpi_5_refuses_two_words_for_their_single_dashes_and_takes_the_rest(
    servers: Hosts, tmp_path: Path
) -> None:
    """It is Open MPI that refuses them, before a rank of ours is there."""
    refused = run(servers, "openmpi5", LINE, tmp_path)
    assert refused.code != 0 and any("Executable: none" in line for line in refused.err), refused
    refused = run(servers, "openmpi5", LINE.replace("-bind-to", "--bind-to"), tmp_path)
    assert refused.code != 0 and any("Option: --map-by" in line for line in refused.err), refused
    line = LINE.replace("-bind-to", "--bind-to").replace("-map-by", "--map-by")
    ended = run(servers, "openmpi5", line, tmp_path)
    assert ended.code == 0, ended
    assert {line for line in ended.out if line.startswith("trained")} == TRAINED
