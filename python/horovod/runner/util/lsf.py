"""Kept for import paths that other people use: what LSF says in the environment.

The launcher itself reads LSF's hosts in `horovod.runner.allocations.lsf`.
"""

from __future__ import annotations

import os


class LSFUtils:
    """See the head of the file."""

    @staticmethod
    def using_lsf() -> bool:
        """This process runs inside an LSF job."""
        return "LSB_JOBID" in os.environ

    @staticmethod
    def get_compute_hosts() -> list[str]:
        """The hosts of the allocation, each once, without the batch host, which LSF lists first."""
        return list(dict.fromkeys(os.environ.get("LSB_HOSTS", "").split()[1:]))
