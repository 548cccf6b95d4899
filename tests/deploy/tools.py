"""What the tests of `deploy/` share: where it is, and what checks it, from a venv of `tools/launcher_envs.py`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import ROOT

DEPLOY = ROOT / "deploy"
_VENV = ROOT / "build" / "launchers" / "deploy"
_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 100.0


def checker(program: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program of that venv, or a script of this folder with its Python; skips the test where there is none."""
    if not (_VENV / "ready").is_file():
        reason = _VENV.with_suffix(".reason")
        why = reason.read_text() if reason.is_file() else "`make launchers` installs it"
        pytest.skip(f"What checks deploy/ is not installed: {why}.")
    name = (
        [str(_VENV / "bin" / "python"), str(_HERE / program)]
        if program.endswith(".py")
        else [str(_VENV / "bin" / program)]
    )
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([*name, *words], input=text, capture_output=True, text=True, env=environ, timeout=_PATIENCE_S)


def complaints(manifest: str) -> list[str]:
    """What is wrong with an MPIJob, by Kubernetes' and the operator's schemas."""
    done = checker("ask_kubernetes.py", text=manifest)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def replica(manifest: dict[str, Any], role: str) -> dict[str, Any]:
    """The launcher's or the workers' part of an MPIJob, with its only container."""
    found: dict[str, Any] = manifest["spec"]["mpiReplicaSpecs"][role]
    (container,) = found["template"]["spec"]["containers"]
    return {**found, "container": container}


def line(manifest: dict[str, Any]) -> list[str]:
    """The launcher's command line."""
    container = replica(manifest, "Launcher")["container"]
    return [*container["command"], *container["args"]]


def manifest_of(name: str) -> dict[str, Any]:
    """A file of deploy/kubernetes."""
    made: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())
    return made
