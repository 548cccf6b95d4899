"""What `horovodrun --check-build` prints: what can be used on this machine now, and why the rest cannot.

Used by `cli`; its sections are those that users know from upstream. `availability` has the answers.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import horovod
from horovod._core.gpu import platforms
from horovod.runner.doctor import availability, gpu_libraries


class Line(NamedTuple):
    """One line with a tick box."""

    name: str
    why_not: str

    def text(self, verbose: bool) -> str:
        """The line as it is printed; with its reason when `verbose`."""
        box = "[ ]" if self.why_not else "[X]"
        return f"    {box} {self.name}" + (f": {self.why_not}" if verbose and self.why_not else "")


def _what_nccl_moves() -> str:
    amd = platforms.of_devices() is platforms.ROCM
    return "tensors on AMD GPUs, by RCCL" if amd else "tensors on NVIDIA GPUs"


def report(verbose: bool = False) -> str:
    """The whole text."""
    core = availability.core().why_not
    by_nccl = core or gpu_libraries.nccl_why_not(os.environ)
    by_mpi = core or availability.mpi_why_not(os.environ)
    sections = {
        "Available Frameworks": [Line(f.name, f.why_not) for f in availability.frameworks()],
        "Available Controllers": [Line("MPI", by_mpi), Line("Gloo", core)],
        "Available Tensor Operations": [
            Line("NCCL", by_nccl),
            Line("DDL", availability.LATER),
            Line("CCL", availability.LATER),
            Line("MPI", by_mpi),
            Line("Gloo", core),
        ],
        "Backends": [
            Line("host (shared memory and TCP; 'Gloo' above)", core),
            Line(f"nccl ({_what_nccl_moves()})", by_nccl),
            Line("mpi (where HOROVOD_CPU_OPERATIONS=mpi)", by_mpi),
        ],
        "Launchers": [Line(f"{name} ({what})", why_not) for name, what, why_not in availability.launchers()],
    }
    text = [f"Horovod v{horovod.__version__}:"]
    for title, lines in sections.items():
        always = verbose or title in ("Backends", "Launchers")
        text += ["", f"{title}:", *(line.text(always) for line in lines)]
    return "\n".join(text)
