"""What can be used on this machine now, and why the rest cannot: frameworks, the core library, transports.

Used by `checks` and by `python -m horovod`. It imports no framework: that a package can be found, and what its
metadata say, is enough to answer. The core runs in a child process, because a broken library may take its process
down.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from horovod._core.frameworks import FRAMEWORKS
from horovod._later import MISSING
from horovod._net.mpi.finding import SETTING, is_installed

LATER: Final = "not in this version"
# Packages that come under several names.
_DISTRIBUTIONS: Final = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")}
# Program, what it is for, what to do without it.
_LAUNCHERS: Final = (
    ("ssh", "other hosts", "install OpenSSH's client"),
    ("mpirun", "--mpi", "install an MPI"),
    ("jsrun", "--jsrun", "it comes with LSF's Job Step Manager"),
    ("srun", "Slurm", "it comes with Slurm"),
    ("torchrun", "PyTorch", "it comes with PyTorch"),
)
_CORE_PROBE: Final = """
import json
from horovod._core.life import context, engine_start
from horovod._native import library
library.load()
context.init()
facts = json.loads(engine_start.describe())
context.shutdown()
backends = [[backend["name"], backend["why_not"]] for backend in facts["backends"]]
path = library.used_path()
print(json.dumps({"path": path, "abi": facts["abi"], "kernels": facts["simd"], "backends": backends}))
"""
_ALONE: Final = {
    f"HOROVOD_{name}": value
    for what in ("", "LOCAL_", "CROSS_")
    for name, value in ((f"{what}RANK", "0"), (f"{what}SIZE", "1"))
}
_PATIENCE_S: Final = 60.0


class Framework(NamedTuple):
    """One framework; `why_not` is empty when it can be used, `version` when its metadata tell none."""

    name: str
    version: str
    why_not: str


class Core(NamedTuple):
    """The core library: where it is, its version of the C interface, the kernels that this machine runs, and the
    backends with why each cannot be used.

    They are empty when `why_not` says why it cannot be used.
    """

    path: str
    abi: int
    kernels: str
    why_not: str
    backends: Sequence[tuple[str, str]] = ()


def frameworks() -> list[Framework]:
    """All that Horovod knows."""
    return [Framework(name, _version(package), _why_not(package)) for package, name in FRAMEWORKS.items()]


def package_of(framework: str) -> str:
    """The package of one of `frameworks`, by its name there."""
    return next(package for package, name in FRAMEWORKS.items() if name == framework)


def core() -> Core:
    """The core library, tried with one rank in a process of its own."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", _CORE_PROBE],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env=_alone(os.environ),
        )
    except subprocess.TimeoutExpired:
        return Core("", 0, "", f"it did not start within {_PATIENCE_S:.0f} s")
    if child.returncode == 0:
        return Core(**json.loads(child.stdout.splitlines()[-1]), why_not="")
    lines = child.stderr.strip().splitlines()
    return Core("", 0, "", lines[-1] if lines else f"loading the core ended with code {child.returncode}")


def mpi_why_not(environ: Mapping[str, str]) -> str:
    """Why ranks could neither meet through MPI nor have it move tensors; empty if they could. Opens no library."""
    named = environ.get(SETTING) or None
    if is_installed(environ, named):
        return ""
    return f"{named}: no such file" if named else f"no MPI library was found; {SETTING} names one"


def launchers() -> list[tuple[str, str, str]]:
    """What can start ranks besides horovodrun alone: program, what for, and why not; empty if it is in PATH, or beside
    this Python, whose environment need not be activated."""
    path = os.pathsep.join((os.environ.get("PATH") or os.defpath, os.path.dirname(sys.executable)))
    return [
        (name, what, "" if shutil.which(name, path=path) else f"no {name} in PATH; {remedy}")
        for name, what, remedy in _LAUNCHERS
    ]


def shared_memory_why_not() -> str:
    """Why ranks of this host cannot share memory; empty if they can."""
    try:
        os.close(os.memfd_create("horovod-probe"))
    except (AttributeError, OSError) as error:
        return f"memfd_create: {error}"
    return ""


def _alone(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is the only rank, whatever job this one is part of."""
    kept = {name: value for name, value in environ.items() if not name.lstrip("_").startswith("HOROVOD_")}
    library = {name: value for name, value in environ.items() if name == "HOROVOD_LIBRARY"}
    return {**kept, **library, **_ALONE}


def _version(package: str) -> str:
    for name in _DISTRIBUTIONS.get(package, (package,)):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _why_not(package: str) -> str:
    try:
        found = importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        return f"{package} is not installed"
    if f"horovod.{package}" in MISSING:
        return f"horovod.{package} is {LATER}"
    return ""
