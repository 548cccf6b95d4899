"""The lines of mpirun that platforms make, or that users copy from their documentation, word by word on two hosts."""

from __future__ import annotations

import site
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from launchers.platform_lines import GRADIENT, SAGEMAKER_SDK_3, SAGEMAKER_TOOLKIT, exported, with_two_hyphens, words_of

from ..conftest import ROOT, Ended, Hosts
from ..network import Network, why_absent
from .mpis import BY_ID, MPI4PY, site_packages
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


def run(servers: Hosts, name: str, words: Sequence[str], folder: Path, **variables: str) -> Ended:
    """The line, where this Open MPI is installed and a user may be root."""
    mpi = BY_ID[name]
    if why := mpi.why_absent():
        pytest.skip(why)
    places = [str(ROOT / "python"), *site.getsitepackages()]
    (folder / "train.py").write_text(textwrap.dedent(TRAIN).format(places=places))
    environ = {
        **variables,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "LD_LIBRARY_PATH": str(mpi.folder / "lib"),
        "PATH": f"{Path(sys.executable).parent}:{mpi.folder / 'bin'}:/usr/bin:/bin",
    }
    program, *words = words
    began_s = time.monotonic()
    running = servers.start_program([str(mpi.folder / "bin" / program), *words], environ=environ, cwd=folder)
    ended = servers.ended(running, began_s)
    remove_files_of_mpi(servers)
    return ended


def test_open_mpi_4_takes_every_word(servers: Hosts, tmp_path: Path) -> None:
    ended = run(servers, "openmpi4", LINE.split(), tmp_path)
    assert ended.code == 0, ended
    assert {line for line in ended.out if line.startswith("trained")} == TRAINED


def test_open_mpi_5_refuses_two_words_for_their_single_dashes_and_takes_the_rest(
    servers: Hosts, tmp_path: Path
) -> None:
    """It is Open MPI that refuses them, before a rank of ours is there."""
    refused = run(servers, "openmpi5", LINE.split(), tmp_path)
    assert refused.code != 0 and any("Executable: none" in line for line in refused.err), refused
    refused = run(servers, "openmpi5", LINE.replace("-bind-to", "--bind-to").split(), tmp_path)
    assert refused.code != 0 and any("Option: --map-by" in line for line in refused.err), refused
    ended = run(servers, "openmpi5", with_two_hyphens(LINE).split(), tmp_path)
    assert ended.code == 0, ended
    assert {line for line in ended.out if line.startswith("trained")} == TRAINED


# SageMaker's images have Open MPI 4. Version 3 of its SDK asks for two ranks altogether, those of one instance; the
# options of the job say four.
PLATFORMS = [
    ("openmpi4", "sagemaker-toolkit", SAGEMAKER_TOOLKIT),
    (
        "openmpi4",
        "sagemaker-sdk-3",
        SAGEMAKER_SDK_3.replace("-np COUNT", "-np 2").replace("VARIABLES", "-np 4 VARIABLES"),
    ),
    ("openmpi4", "gradient", GRADIENT),
    ("openmpi5", "gradient", with_two_hyphens(GRADIENT)),
]


@pytest.mark.parametrize(
    ("mpi", "line"), [pytest.param(mpi, line, id=f"{name}-{mpi}") for mpi, name, line in PLATFORMS]
)
def test_a_platforms_line_starts_ranks_on_two_hosts(servers: Hosts, mpi: str, line: str, tmp_path: Path) -> None:
    if "mpi4py" in line and not (MPI4PY / "ready").is_file():
        pytest.skip("mpi4py is not installed; `make launchers` installs it.")
    variables = {
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_EXPECTED_SIZE": "4",
        "HOROVOD_EXPECTED_HOSTS": "2",
        "NCCL_DEBUG": "INFO",
        "PYTHONPATH": site_packages(MPI4PY),
    }
    (tmp_path / "hostfile").write_text("server1 slots=2\nserver2 slots=2\n")
    places = {
        "HOSTS": ["server1:2,server2:2"],
        "COUNT": ["4"],
        "HOSTFILE": [str(tmp_path / "hostfile")],
        "VARIABLES": exported(variables),
        "PYTHON": ["python"],
        "SCRIPT": ["train.py"],
    }
    ended = run(servers, mpi, words_of(line, places, "eth0"), tmp_path, **variables)
    assert ended.code == 0, ended
    found = {line[line.index("trained") :] for line in ended.out if "trained" in line}  # behind the tag of --tag-output
    assert found == TRAINED, ended
