"""What `horovodrun --check-build` prints: what can be used on this machine now, and why the rest cannot.

Used by `cli`. It imports no framework: looking for a package is enough to answer; the core is loaded in a child
process.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Final, NamedTuple

import horovod
from horovod._later import MISSING


class Line(NamedTuple):
    """One line with a tick box."""

    name: str
    why_not: str

    def text(self, verbose: bool) -> str:
        """The line as it is printed; with its reason when `verbose`."""
        box = "[ ]" if self.why_not else "[X]"
        return f"    {box} {self.name}" + (f": {self.why_not}" if verbose and self.why_not else "")


_FRAMEWORKS: Final = (
    ("TensorFlow", "tensorflow"),
    ("PyTorch", "torch"),
    ("MXNet", "mxnet"),
    ("JAX", "jax"),
    ("NumPy", "numpy"),
)
_CORE_PROBE: Final = "from horovod._native.library import load; load()"
_LATER: Final = "not in this version"


def report(verbose: bool = False) -> str:
    """The whole text."""
    core = _core_why_not()
    sections = {
        "Available Frameworks": [Line(name, _framework_why_not(package)) for name, package in _FRAMEWORKS],
        "Available Controllers": [Line("MPI", _LATER), Line("Gloo", core)],
        "Available Tensor Operations": [
            Line("NCCL", _LATER),
            Line("DDL", _LATER),
            Line("CCL", _LATER),
            Line("MPI", _LATER),
            Line("Gloo", core),
        ],
        "Backends": [
            Line("host (shared memory and TCP; 'Gloo' above)", core),
            Line("nccl", _LATER),
            Line("mpi", _LATER),
        ],
    }
    text = [f"Horovod v{horovod.__version__}:"]
    for title, lines in sections.items():
        always = verbose or title == "Backends"
        text += ["", f"{title}:", *(line.text(always) for line in lines)]
    return "\n".join(text)


def _framework_why_not(package: str) -> str:
    if not _is_there(package):
        return f"{package} is not installed"
    if f"horovod.{package}" in MISSING:
        return f"horovod.{package} is {_LATER}"
    return ""


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _core_why_not() -> str:
    # A broken library may take its process down, so it is tried in another one.
    child = subprocess.run(
        [sys.executable, "-c", _CORE_PROBE],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if child.returncode == 0:
        return ""
    lines = child.stderr.strip().splitlines()
    return lines[-1] if lines else f"loading the core ended with code {child.returncode}"
