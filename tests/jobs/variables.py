"""How the tests start Python and ranks of it: the words and the environment variables."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# What other launchers, or the one that runs these tests, may have put into our own environment.
_FOREIGN = (
    "HOROVOD",
    "OMP_",
    "OMPI_",
    "PMI",
    "PRTE_",
    "MPI_",
    "SLURM",
    "LSB_",
    "PBS_",
    "FLUX_",
    "I_MPI",
    "HYDRA",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC",
)


def environment() -> dict[str, str]:
    """The environment of a job: this source tree, one thread per rank, and no other launcher's variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    if "HOROVOD_LIBRARY" in os.environ:
        kept["HOROVOD_LIBRARY"] = os.path.abspath(os.environ["HOROVOD_LIBRARY"])
    path = [str(ROOT / "python"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
        "OMP_NUM_THREADS": "1",
        # Jobs have temporary folders of their own, but compile for all.
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(tempfile.gettempdir(), f"horovod-tests-inductor-{os.getuid()}"),
    }


def python(*words: object) -> list[str]:
    """The command that runs Python with these words: a script or options, and arguments."""
    return [sys.executable, *map(str, words)]


def on_hosts(counts: Sequence[int], *words: object) -> list[str]:
    """The command that runs Python with these words on so many ranks of each host; the hosts are on the loopback."""
    launcher = python("-m", "jobs.hosts_on_loopback", ",".join(map(str, counts)))
    return [*launcher, *python(*words)]


def horovodrun(ranks: int, *words: object) -> list[str]:
    """The command that runs Python with these words on so many ranks; 0: in one process without a launcher."""
    launcher = python("-m", "horovod.runner", "-np", ranks) if ranks else []
    return [*launcher, *python(*words)]
