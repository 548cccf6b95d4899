"""Jobs of the tests: commands that start ranks as processes. The ranks report through files; nothing outlives a test.

`run` is for a command that is only waited for, `Place` and `Job` for one that something happens to meanwhile, `cases`
for a script of many small cases. `report` and `case_runner` are for the ranks.
"""

from __future__ import annotations

from .commands import horovodrun, on_hosts, python
from .job import PATIENCE_S, Ended, Hangs, Job, Place, run, run_well
from .variables import ROOT

__all__ = [
    "PATIENCE_S",
    "ROOT",
    "Ended",
    "Hangs",
    "Job",
    "Place",
    "horovodrun",
    "on_hosts",
    "python",
    "run",
    "run_well",
]
