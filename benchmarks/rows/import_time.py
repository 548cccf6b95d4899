"""Rows of what an installation costs: importing, loading, sizes, installing.

Used by `run_all`. Starts fresh interpreters, reads the library with ldd, and (where all rows are measured) builds the
wheel and installs it into an empty folder under build/bench. Nothing of the environment changes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from contenders.peers import ROOT
from harness.contest import Entry, alternate, timed
from harness.plan import Plan
from harness.row import Check, Row

_FRAMEWORKS = ("torch", "tensorflow", "jax", "mxnet", "keras", "numpy")
_LIBRARY = ROOT / "python" / "horovod" / "_native" / "libhorovod.so"


def rows(plan: Plan) -> Iterator[Row]:
    """Import time, and the library and wheel."""
    plan.progress.show("import")
    yield _imports(plan)
    plan.progress.show("library and wheel")
    yield _library(plan)


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def _imports(plan: Plan) -> Row:
    codes = {
        "python alone": "pass",
        "import horovod": "import horovod",
        "import horovod.runner": "import horovod.runner",
        "import numpy": "import numpy",
        "import horovod.numpy": "import horovod.numpy",
        "import torch": "import torch",
        "import horovod.torch": "import horovod.torch",
    }
    times = alternate({name: _timer(code) for name, code in codes.items()}, 7 if plan.rows == "all" else 2)
    row = Row("import", [Entry(name, "info", [values]) for name, values in times.items()], unit="ms")
    seen = _run(f"import sys, horovod; print(*[m for m in {_FRAMEWORKS!r} if m in sys.modules])").split()
    row.note = f"Fresh interpreters in turn. `import horovod` alone brings in: {', '.join(seen) or 'no framework'}."
    row.checks = [Check("`import horovod` imports no framework (number imported)", len(seen), 0, False)]
    return row


def _timer(code: str) -> object:
    return lambda: timed(lambda: _run(code))


def _library(plan: Plan) -> Row:
    row = Row("library and wheel", unit="s")
    needs = subprocess.run(["ldd", str(_LIBRARY)], capture_output=True, text=True, check=False).stdout
    names = [line.split()[0] for line in needs.splitlines() if line.strip()]
    row.note = f"libhorovod.so: {_LIBRARY.stat().st_size / 1e6:.2f} MB; needs {', '.join(names)}."
    foreign = [
        name for name in names if any(word in name for word in ("python", "torch", "mpi", "cuda", "nccl", "stdc++"))
    ]
    row.checks = [Check("library needs no framework, MPI, CUDA or C++ runtime (number needed)", len(foreign), 0, False)]
    if plan.rows != "all":
        return row
    with tempfile.TemporaryDirectory(dir=ROOT / "build" / "bench") as place:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", place, str(ROOT)]
        row.entries.append(_program("build the wheel", build))
        wheels = list(Path(place).glob("*.whl"))
        if wheels:
            row.note += f" Wheel: {wheels[0].name}, {wheels[0].stat().st_size / 1e6:.2f} MB."
            install = [*pip, "install", "--no-deps", "--target", str(Path(place, "site")), str(wheels[0])]
            row.entries.append(_program("install the wheel", install))
    return row


def _program(label: str, command: list[str]) -> Entry:
    entry = Entry(label, "info")
    try:
        entry.slices = [
            [timed(lambda: subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800))]
        ]
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        entry.void = f"failed: {lines[-1] if lines else error}"
    except subprocess.TimeoutExpired as error:
        entry.void = f"failed: {error}"
    return entry
