"""`python -m horovod`, and what it shares with `horovodrun --check-build`."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import horovod
from horovod.runner.doctor import availability


def _run(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "horovod"]
    return subprocess.run(
        command, env={**os.environ, **environ}, capture_output=True, text=True, check=False, timeout=60
    )


def _best_kernels() -> str:
    """What the core must choose here, as the system describes the processor; whichever compiler built the core."""
    if platform.machine() == "aarch64":
        return "neon"
    flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi2"} <= flags:
        return "avx512"
    return "avx2" if {"avx2", "f16c"} <= flags else "scalar"


def test_the_report_tells_version_machine_and_what_is_usable() -> None:
    done = _run({})
    assert done.returncode == 0, done.stderr
    version, machine, *rest = done.stdout.splitlines()
    assert version == f"Horovod {horovod.__version__}"
    assert platform.python_version() in machine and platform.machine() in machine
    assert f"    [X] NumPy {importlib.metadata.version('numpy')}" in rest
    assert "    [X] TCP" in rest and "    [X] shared memory" in rest
    (core,) = (line for line in rest if line.startswith("    [X] libhorovod.so: C interface "))
    assert f" {_best_kernels()} kernels" in core


def test_a_core_that_cannot_be_loaded_is_reported_with_its_reason() -> None:
    done = _run({"HOROVOD_LIBRARY": "/nowhere.so"})
    assert done.returncode == 1
    assert "    [ ] libhorovod.so: ImportError: " in done.stdout and "/nowhere.so: no such file" in done.stdout
    assert "    [ ] TCP: the core cannot be used" in done.stdout


def test_the_probe_is_alone_inside_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As one of two ranks it would wait for the other; and a probe writes no timeline.
    for name, value in {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "HOROVOD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOROVOD_TIMELINE", str(tmp_path / "timeline.json"))
    assert availability.core().why_not == ""
    assert list(tmp_path.iterdir()) == []


def test_no_framework_is_imported() -> None:
    code = (
        "import sys; from horovod.__main__ import report; from horovod.runner.doctor import availability;"
        "report(availability.core()); print([m for m in ('numpy', 'torch', 'tensorflow', 'keras') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_words_for_another_program_are_not_swallowed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "horovod", "-np", "2", "true"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Received: -np. Jobs are started by horovodrun" in done.stderr


def test_tensorflow_has_a_version_under_any_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "tensorflow-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.99"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert {f.name: f.version for f in availability.frameworks()}["TensorFlow"] == "2.99"


def test_check_build_names_a_missing_core() -> None:
    environ = {**os.environ, "HOROVOD_LIBRARY": "/nowhere.so"}
    words = [sys.executable, "-m", "horovod.runner", "--check-build"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith(f"Horovod v{horovod.__version__}:\n\nAvailable Frameworks:\n    [")
    assert done.stdout.count("    [ ] Gloo\n") == 2
    (host,) = [line for line in done.stdout.splitlines() if line.startswith("    [ ] host")]
    assert "/nowhere.so: no such file" in host


def test_check_build_names_launchers_and_mpi_as_they_are_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ssh", "mpirun"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {name: why_not for name, _, why_not in availability.launchers()}
    assert (found["ssh"], found["mpirun"]) == ("", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))  # not activated
    assert {name: why_not for name, _, why_not in availability.launchers()}["torchrun"].startswith(
        "no torchrun in PATH"
    )
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "torchrun").write_text("#!/bin/sh\n")
    (tmp_path / "venv" / "torchrun").chmod(0o755)
    assert {name: why_not for name, _, why_not in availability.launchers()}["torchrun"] == ""
    assert found["jsrun"] == "no jsrun in PATH; it comes with LSF's Job Step Manager"
    library = tmp_path / "libmpi.so.40"
    library.touch()
    monkeypatch.setenv("HOROVOD_MPI_LIBRARY", str(library))
    assert availability.mpi_why_not(os.environ) == ""
