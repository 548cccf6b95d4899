"""Upstream Horovod, which is not installed here: what it would take, from its ratio to Open MPI on one machine times
the Open MPI measured.

The reference was measured on a 2-core Debian 12 VM (AMD EPYC), 2 ranks, float32 sum in place, medians in seconds of
the slowest rank; upstream is the better of its two controllers. Upstream's floor is a timer (its cycle of 1 ms),
which does not grow with the machine: at small sizes the ratio is a convention, and the report says so. Another
installed Horovod (--peer-python) is measured instead.
"""

from __future__ import annotations

import math

# bytes of an allreduce -> (upstream, Open MPI)
_ALLREDUCE = {
    4: (1071e-6, 0.9e-6),
    1 << 10: (1074e-6, 1.2e-6),
    64 << 10: (1072e-6, 18e-6),
    1 << 20: (1073e-6, 112e-6),
    16 << 20: (4.9e-3, 1.95e-3),
    64 << 20: (29.6e-3, 26.2e-3),
    256 << 20: (114e-3, 106.6e-3),
}
# The ResNet-50 gradient set: upstream's best of its best controller against Open MPI's best, separate calls.
_GRADIENT_SET = (62e-3, 18.4e-3)

SAYING = "upstream is not installed: its ratio to Open MPI in the reference table, times the Open MPI of this run"


def allreduce_s(size_bytes: int, open_mpi_s: float) -> float:
    """Estimated seconds; nan where the table has no such size."""
    upstream, open_mpi = _ALLREDUCE.get(size_bytes, (math.nan, 1.0))
    return upstream / open_mpi * open_mpi_s


def gradient_set_s(open_mpi_separate_s: float) -> float:
    """Estimated seconds of one step."""
    upstream, open_mpi = _GRADIENT_SET
    return upstream / open_mpi * open_mpi_separate_s
