"""Probes of what is installed: the core and its backends, frameworks, MPI libraries. Everything foreign is loaded or
imported in a child, which is killed at a deadline."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from horovod._net.clusters.launchers import HANGING_OPEN_MPI, HANGING_REMARK
from horovod.runner.doctor import availability
from horovod.runner.doctor.examination import Answer, child
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding

FRAMEWORK_S: Final = 60.0
_MPI_S: Final = 10.0
# The first word of sys.path is the working directory, whose files may have the names of modules.
_IMPORT: Final = """
import importlib, json, sys
sys.path = [place for place in sys.path if place]
package, adapter = sys.argv[1:]
module = importlib.import_module(package)
importlib.import_module(adapter)
gpus = module.cuda.device_count() if package == "torch" else None
print(json.dumps({"version": getattr(module, "__version__", ""), "gpus": gpus}))
"""
_MPI_LIBRARIES: Final = (
    ("libmpi.so.40", "Open MPI 4 and 5"),
    ("libmpi.so.12", "MPICH, Intel MPI, MVAPICH"),
    ("libmpi_abi.so.1", "the MPI 5 standard ABI"),
)
# May be called before MPI_Init (MPI 4.1, section 9.1.1).
_MPI_VERSION: Final = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
library.MPI_Get_library_version(text, ctypes.byref(length))
print(text.value.decode(errors="replace").strip().splitlines()[0])
"""
_MPI_STARTERS: Final = ("mpirun", "mpiexec", "srun", "jsrun")
_OF_CLUSTERS: Final = ("srun", "jsrun")  # often installed where there is no cluster
_HANGING_MPI: Final = re.compile(rf"Open MPI\)? v?{re.escape(HANGING_OPEN_MPI)}\b")


def core() -> list[Finding]:
    """The native core, started with one rank, and the backends that can execute a batch."""
    found = availability.core()
    if found.why_not:
        return [Finding("libhorovod.so", FAULT, found.why_not, "Without it nothing works here.")]
    facts = f"C interface {found.abi}, {found.kernels} kernels, {found.path}"
    findings = [Finding("libhorovod.so", WORKS, facts)]
    for name, why_not in found.backends:
        # Doctor's one rank submits nothing.
        fact = "starts with a rank's first tensor on a GPU" if "no tensor on a GPU" in why_not else why_not
        findings.append(Finding(f"backend {name}", ABSENT if why_not else WORKS, fact))
    return findings


def frameworks(environ: Mapping[str, str]) -> list[Finding]:
    """Every framework, imported with its part of Horovod; each in a process of its own, side by side."""
    known = availability.frameworks()
    with ThreadPoolExecutor(len(known)) as pool:
        return list(pool.map(lambda one: _framework(one, environ), known))


def _framework(one: availability.Framework, environ: Mapping[str, str]) -> Finding:
    name = f"{one.name} {one.version}".rstrip()
    if one.why_not:
        return Finding(name, ABSENT, one.why_not)
    package = availability.package_of(one.name)
    answer = child([sys.executable, "-c", _IMPORT, package, f"horovod.{package}"], FRAMEWORK_S, environ)
    if answer.code == 0:
        facts = json.loads(answer.out.strip().splitlines()[-1])
        name = f"{one.name} {facts['version'] or one.version}".rstrip()
        return Finding(name, WORKS, "" if facts["gpus"] is None else f"sees {facts['gpus']} CUDA devices")
    fact = f"its import took more than {FRAMEWORK_S:g} s" if answer.code is None else answer.last_word
    return Finding(name, FAULT, fact, f'Try: {sys.executable} -c "import {package}, horovod.{package}"')


def mpi(environ: Mapping[str, str], environment: str = sys.prefix) -> list[Finding]:
    """MPI's programs and libraries: where the system looks for them, and in this Python's environment.

    Args:
        environ: of this process.
        environment: the prefix into which packages put libraries.
    """
    found = [_starter(name, environ) for name in _MPI_STARTERS]
    found += [_library(name, of, environ, environment) for name, of in _MPI_LIBRARIES]
    return [finding for finding in found if finding.fact] or [Finding("MPI", ABSENT, _absent())]


def _absent() -> str:
    names = ", ".join((*_MPI_STARTERS, *(name for name, _ in _MPI_LIBRARIES)))
    return f"none of {names} is found"


def _starter(name: str, environ: Mapping[str, str]) -> Finding:
    path = _first_file(os.path.join(place, name) for place in environ.get("PATH", "").split(os.pathsep) if place)
    if not path:
        return Finding(name, ABSENT)
    answer = child([path, "--version"], _MPI_S, environ)
    lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
    if answer.code or answer.code is None or not lines:
        state = ABSENT if name in _OF_CLUSTERS else FAULT
        return Finding(name, state, f"{path} --version: {_why(answer)}", "Check which installation it belongs to.")
    return _judged(name, f"{lines[0]}, {path}")


def _library(name: str, of: str, environ: Mapping[str, str], environment: str) -> Finding:
    candidates = [_first_file([os.path.join(environment, "lib", name)]), name]
    answers = []
    for path in filter(None, candidates):
        answer = child([sys.executable, "-c", _MPI_VERSION, path], _MPI_S, environ)
        if answer.code == 0:
            return _judged(name, f"{answer.out.strip()}, {path}")
        answers.append((path, answer))
    path, answer = answers[0]
    if "cannot open shared object file" in answer.err and f"{name}: cannot" in answer.err:
        return Finding(name, ABSENT)
    return Finding(name, FAULT, f"{path} ({of}) cannot be used: {_why(answer)}", "Install what it needs, or remove it.")


def _judged(name: str, fact: str) -> Finding:
    hangs = _HANGING_MPI.search(fact) is not None
    return Finding(name, FAULT if hangs else FACT, fact, HANGING_REMARK if hangs else "")


def _why(answer: Answer) -> str:
    return f"no answer within {_MPI_S:g} s" if answer.code is None else answer.last_word


def _first_file(paths: Iterable[str]) -> str:
    return next((path for path in paths if Path(path).is_file()), "")
