"""The row of negotiation: 1,000 cached tensors a step with 64 and 1,024 simulated ranks, in the simulator
(benchmarks/native/simulate).

Used by `run_all`. The simulator answers with a line of JSON per number of ranks, which goes into the report whole.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

from harness.contest import Entry
from harness.plan import Plan
from harness.row import Check, Row

_LIMIT_MS = 1.0
_LOCALS = 16


def rows(plan: Plan) -> list[Row]:
    """One row."""
    row = Row("negotiation of 1,000 cached tensors, per step", unit="ms")
    plan.progress.show("negotiation")
    program = plan.native("simulate")
    own: dict[int, float] = {}
    if program is None:
        row.note = f"Not measured: {plan.native_missing or 'simulate was not built'}."
    else:
        try:
            said = {hosts * _LOCALS: _simulated(program, hosts) for hosts in (4, 64)}
            row.note = "CPU time of the busiest simulated rank, its own submissions included."
            row.note += "\n\n```\n" + "".join(f"{ranks} ranks: {text}" for ranks, text in said.items()) + "```"
            own = {ranks: json.loads(text)["busiest_s"] * 1e3 for ranks, text in said.items()}
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


def _simulated(program: Path, hosts: int) -> str:
    """What the simulator says of so many hosts."""
    command = [str(program), f"{hosts}x{_LOCALS}", "negotiation", "1000"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
