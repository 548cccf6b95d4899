"""Which scheduler's allocation this process runs in, if any.

Used by `hosts_of_job`. The list has names, not plug-ins: outside of any allocation none is loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Optional

if TYPE_CHECKING:
    from horovod.runner.allocations.base import Allocation, Scheduler, Sources

# A variable that each sets, and its plug-in. Flux comes first, because it is started inside of the others.
MARKS: Final = {"FLUX_ENCLOSING_ID": "flux", "SLURM_JOB_ID": "slurm", "LSB_JOBID": "lsf", "PBS_JOBID": "pbs"}


def allocation(environ: Mapping[str, str], sources: Optional[Sources] = None) -> Optional[Allocation]:
    """What the scheduler has given to this job; None outside of any.

    Args:
        environ: of this process.
        sources: instead of files and commands, for tests.

    Raises:
        InvalidArgumentError: what the scheduler says cannot be parsed.
    """
    for mark, name in MARKS.items():
        if mark in environ:
            plug_in = importlib.import_module(f"horovod.runner.allocations.{name}")
            scheduler: Scheduler = plug_in.SCHEDULER
            if scheduler.present(environ):
                from horovod.runner.allocations.base import SOURCES

                return scheduler.read(environ, sources or SOURCES)
    return None
