"""The row of negotiation: 1,000 cached tensors a step with 64 and 1,024 simulated ranks, in the simulator
(benchmarks/native/negotiation_sim).

Used by `run_all`. The simulator prints a line per number of ranks: ranks, tensors and bursts, a bar, then the CPU time
of the busiest rank per step in microseconds, which is read here; the whole output goes into the report.
"""

from __future__ import annotations

import math
import subprocess

from harness.contest import Entry
from harness.plan import Plan
from harness.row import Check, Row

_LIMIT_MS = 1.0


def rows(plan: Plan) -> list[Row]:
    """One row."""
    row = Row("negotiation of 1,000 cached tensors, per step", unit="ms")
    plan.progress.show("negotiation")
    program = plan.native("negotiation_sim")
    own: dict[int, float] = {}
    if program is None:
        row.note = f"Not measured: {plan.native_missing or 'negotiation_sim was not built'}."
    else:
        try:
            done = subprocess.run(
                [str(program), "1000", "1", "20", "64", "1024"], capture_output=True, text=True, timeout=300, check=True
            )
            row.note = "CPU time of the busiest simulated rank, its own submissions included."
            row.note += "\n\n```\n" + done.stdout.strip() + "\n```"
            own = _parsed(done.stdout)
        except (OSError, subprocess.SubprocessError) as error:
            row.note = f"The simulator failed: {error}"
    row.entries = [Entry(f"{ranks} ranks", "info", [[time_ms / 1e3]]) for ranks, time_ms in own.items()]
    most, few = own.get(1024, math.nan), own.get(64, math.nan)
    row.checks = [
        Check("own time at 1,024 ranks <= 1 ms", most, _LIMIT_MS, False, "ms"),
        # Logarithmic growth would be log(1024) / log(64) = 1.67, linear growth 16; half as much again is left to noise.
        Check("logarithmic: own time at 1,024 ranks <= 2.5 x that at 64", most / few, 2.5, False),
    ]
    return [row]


def _parsed(output: str) -> dict[int, float]:
    """Milliseconds by number of ranks."""
    found = {}
    for line in output.splitlines():
        left, _, rest = line.partition("|")
        if left.split() and left.split()[0].isdigit():
            found[int(left.split()[0])] = float(rest.split()[0]) / 1e3
    return found
