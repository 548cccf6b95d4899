"""The environment variables of the jobs."""

from __future__ import annotations

import os
import tempfile
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
