"""What Slurm writes into its variables, as far as ranks and the launcher both read it. Pure.

Used by `launchers` and by `horovod.runner.allocations.slurm`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Optional

_LARGEST: Final = 1 << 24
# Slurm numbers the batch script and the interactive shell of an allocation as steps, too: from here on they are not
# srun steps.
_FIRST_RESERVED_STEP: Final = 0xFFFFFFF0


def run_lengths(text: str, most: int = _LARGEST) -> Optional[list[int]]:
    """Slurm's run-length list: "2(x3),1" is [2, 2, 2, 1]. None when it is not of that form, or has more than `most`."""
    counts: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?", part.strip())
        if match is None or len(counts) + int(match.group(2) or 1) > most:
            return None
        counts.extend([int(match.group(1))] * int(match.group(2) or 1))
    return counts


def in_srun_step(env: Mapping[str, str]) -> bool:
    """This process is a task that srun has started."""
    step = env.get("SLURM_STEP_ID", env.get("SLURM_STEPID", ""))
    return (
        re.fullmatch(r"[0-9]{1,12}", step) is not None
        and int(step) < _FIRST_RESERVED_STEP
        and "SLURM_PROCID" in env
        and "SLURM_LOCALID" in env
    )


def first_host(text: str) -> str:
    """The first name of a list like `node[01-03,7],login`; empty when there is none."""
    first = re.match(r"(?:[^\[\],\s]|\[[^\[\]]*\])*", text.strip())
    return re.sub(r"\[([0-9]+)[^\]]*\]", r"\1", first.group()) if first else ""
