"""How much of the benchmarks to run, and what the row files share: efforts, the machine's cores, native programs.

Used by `run_all` and the row files. Building the native programs is left to CMake; nothing is measured here.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from contenders.peers import ROOT

from harness.contest import Effort
from harness.machine_state import Cores
from harness.progress import Progress


@dataclass(frozen=True)
class Plan:
    """One run's extent.

    Attributes:
        rows: all, few or smoke; see `budget.Extent`.
        effort: of an ordinary row.
        cores: what they are to each other; None = unknown.
        progress: the line that says what is measured.
        native_folder: where the C++ benchmarks are; None = not built.
        native_missing: why they are not.
    """

    rows: str
    effort: Effort
    cores: Optional[Cores]
    progress: Progress
    native_folder: Optional[Path]
    native_missing: str = ""

    @property
    def quick(self) -> bool:
        """Whether this is a smoke test, whose numbers say nothing."""
        return self.rows == "smoke"

    def native(self, name: str) -> Optional[Path]:
        """A C++ benchmark, if it was built."""
        path = self.native_folder / name if self.native_folder else None
        return path if path and os.access(path, os.X_OK) else None


def build_native() -> tuple[Optional[Path], str]:
    """Builds benchmarks/native with CMake; the folder, or None and the last line of the complaint."""
    folder = ROOT / "build" / "benchmarks"
    configure = ["cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", "-DHVD_BENCHMARKS=ON"]
    for command in (configure, ["cmake", "--build", str(folder), "-j", str(os.cpu_count() or 1)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip().splitlines()
            return None, text[-1] if text else f"cmake exited with code {done.returncode}"
    return folder, ""
