"""Runs a script on ranks that share a GPU as members of one NCCL communicator: each believes to have a GPU of its own.

    python -m horovod.runner -np 2 python tests/gpu/nccl_members.py SCRIPT WORDS...

Sets HVD_TEST_WAY=nccl, by which the script fails if NCCL carried nothing (`jobs.ways`). Started by tools/test_gpu.py.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "benchmarks" / "gpu"))
import other_gpu  # noqa: E402


def main() -> None:
    """Never returns otherwise than the script does."""
    rank = int(os.environ["HOROVOD_RANK"])
    os.environ.update(NCCL_HOSTID=f"member-{rank}", FAKE_CUDA_UUID=str(rank), HVD_TEST_WAY="nccl")
    other_gpu.use_for_the_core(rank)
    del sys.argv[0]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
