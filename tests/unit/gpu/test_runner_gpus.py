"""What the launcher says of GPUs and NCCL: `--check-build` and the section of the doctor, over stubs of libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stub_libraries import needs_compiler, put, put_driver, put_hip, put_nccl

from horovod._core.gpu import libraries, platforms
from horovod.runner.doctor import gpu_libraries
from horovod.runner.doctor import gpus as section
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding

HANGS = "#include <unistd.h>\nint cuInit(unsigned flags) { pause(); return STATUS; }"
DIES = "#include <stdlib.h>\nint ncclGetVersion(int* version) { abort(); return STATUS; }"
NO_NCCL = (
    "libnccl.so.2 not found (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for a driver of CUDA 13, or set "
    "HOROVOD_NCCL_PATH)"
)


def around(folder: Path, **more: str) -> dict[str, str]:
    """An environment whose loader looks into this folder."""
    return {"PATH": str(folder), "LD_LIBRARY_PATH": str(folder), **more}


def tree(folder: Path, *nodes: str) -> str:
    """A file system with these devices."""
    (folder / "dev").mkdir()
    for node in nodes:
        (folder / "dev" / node).touch()
    return str(folder)


def named(found: list[Finding], name: str) -> Finding:
    (one,) = [finding for finding in found if finding.name.startswith(name)]
    return one


@pytest.fixture(autouse=True)
def no_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NCCL is found in the LD_LIBRARY_PATH of a test, or not at all."""
    find = libraries.find
    machine = libraries.Machine(str(tmp_path), [])
    monkeypatch.setattr(libraries, "find", lambda kind, named, environ, *_: find(kind, named, environ, machine))


@needs_compiler
def test_the_driver_and_nccl_are_asked_elsewhere(tmp_path: Path) -> None:
    put_driver(tmp_path, devices=2)
    path = put_nccl(tmp_path / "libnccl.so.2")
    environ = around(tmp_path)
    assert gpu_libraries.cuda(environ) == gpu_libraries.Driver("13.0", ("A", "B"))
    assert gpu_libraries.nccl(environ) == gpu_libraries.Nccl("2.28.9", str(path), "LD_LIBRARY_PATH leads to it")
    assert gpu_libraries.nccl_why_not(environ) == ""
    maps = Path("/proc/self/maps").read_text()
    assert str(tmp_path) not in maps


@needs_compiler
def test_why_nccl_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = around(tmp_path)
    assert gpu_libraries.nccl_why_not(environ) == "libcuda.so.1 not found: no NVIDIA driver is installed"
    put_driver(tmp_path, status=100)
    assert gpu_libraries.nccl_why_not(environ) == "cuInit failed with 100, no CUDA-capable device is detected"
    put_driver(tmp_path, devices=0)
    assert gpu_libraries.nccl_why_not(environ) == "the NVIDIA driver shows no GPU"
    put_driver(tmp_path)
    assert gpu_libraries.nccl_why_not(environ) == NO_NCCL
    nowhere = {**environ, "HOROVOD_NCCL_PATH": "/none"}
    assert gpu_libraries.nccl_why_not(nowhere).startswith("HOROVOD_NCCL_PATH=/none: no such")
    put(tmp_path / "libnccl.so.2", DIES)
    assert gpu_libraries.nccl_why_not(environ) == "it was killed by SIGABRT"
    put(tmp_path / "libcuda.so.1", HANGS)
    monkeypatch.setattr(gpu_libraries, "PATIENCE_S", 0.5)
    found = gpu_libraries.cuda(environ)
    assert found.hangs and found.why_not.startswith("libcuda.so.1 gives no answer within")


def test_versions_for_people() -> None:
    assert [gpu_libraries.version_text(number) for number in (22809, 21805, 2708, 23000)] == [
        "2.28.9", "2.18.5", "2.7.8", "2.30.0"
    ]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("driver", [True, False])
def test_check_build_ticks_nccl_by_what_is_there(tmp_path: Path, driver: bool) -> None:
    path = put_nccl(tmp_path / "libnccl.so.2")
    if driver:
        put_driver(tmp_path)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "HOROVOD_NCCL_PATH": str(path)}
    words = [sys.executable, "-m", "horovod.runner", "--check-build"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=60)
    lines = [line.strip() for line in done.stdout.splitlines() if "nccl" in line.lower()]
    assert lines == (
        ["[X] NCCL", "[X] nccl (tensors on NVIDIA GPUs)"]
        if driver
        else [
            "[ ] NCCL",
            "[ ] nccl (tensors on NVIDIA GPUs): libcuda.so.1 not found: no NVIDIA driver is installed",
        ]
    )


def test_a_machine_without_any_says_so_in_one_line(tmp_path: Path) -> None:
    (found,) = section.look(around(tmp_path), tree(tmp_path))
    assert found.state == ABSENT and found.fact == (
        "none: no NVIDIA or AMD device in /dev; libcuda.so.1 not found: no NVIDIA driver is installed"
    )


@needs_compiler
def test_a_machine_that_has_all_tells_versions_and_names(tmp_path: Path) -> None:
    put_driver(tmp_path, devices=2)
    put_nccl(tmp_path / "libnccl.so.2")
    found = section.look(around(tmp_path), tree(tmp_path, "nvidia0", "nvidia1"))
    assert named(found, "CUDA driver") == Finding("CUDA driver (libcuda.so.1)", WORKS, "CUDA 13.0; cuda:0 A; cuda:1 B")
    assert named(found, "NCCL").state == WORKS and named(found, "NCCL").fact.startswith("2.28.9, ")
    assert named(found, "AMD").state == ABSENT


@needs_compiler
def test_fault_in_gpus_no_nccl_and_a_wrong_one(tmp_path: Path) -> None:
    put_driver(tmp_path)
    root = tree(tmp_path, "nvidia0")
    lost = named(section.look(around(tmp_path), root), "NCCL")
    assert (lost.state, lost.fact) == (FAULT, NO_NCCL) and "through host memory" in lost.remedy
    wrong = named(section.look(around(tmp_path, HOROVOD_NCCL_PATH="/none"), root), "NCCL")
    assert wrong.state == FAULT and "/none: no such file" in wrong.fact


def test_fault_in_gpus_a_device_without_its_driver(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: no driver'; exit 9\n")
    smi.chmod(0o755)
    root = tree(tmp_path, "nvidia0")
    found = section.look(around(tmp_path), root)
    assert named(found, "NVIDIA devices").fact == "nvidia0"
    assert named(found, "nvidia-smi")[1:3] == (FAULT, "NVIDIA-SMI has failed: no driver")
    assert named(found, "CUDA driver").state == FAULT and named(found, "NCCL").state == ABSENT
    hidden = section.look(around(tmp_path, CUDA_VISIBLE_DEVICES=""), root)
    assert named(hidden, "CUDA driver").state == ABSENT
    assert named(hidden, "CUDA_VISIBLE_DEVICES").fact == "empty: none is used"


@needs_compiler
def test_amds_gpus_with_hip_and_rccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_hip(tmp_path, devices=2)
    path = put_nccl(tmp_path / "librccl.so.1", version=22203)
    environ = around(tmp_path, HIP_VISIBLE_DEVICES="0,1")
    found = section.look(environ, tree(tmp_path, "kfd"))
    assert named(found, "AMD").state == FACT
    assert Finding("HIP", WORKS, "HIP 6.2; cuda:0 A; cuda:1 B") in found
    assert named(found, "RCCL").state == WORKS and named(found, "RCCL").fact.startswith(f"2.22.3, {path}: ")
    assert named(found, "HIP_VISIBLE_DEVICES").fact == "0,1"
    monkeypatch.setattr(platforms, "of_devices", lambda: platforms.ROCM)
    assert gpu_libraries.nccl_why_not(environ) == ""
    path.unlink()
    assert gpu_libraries.nccl_why_not(environ).startswith("librccl.so.1 not found (install ROCm's rccl, or set")
    put_hip(tmp_path, devices=0)
    assert gpu_libraries.nccl_why_not(environ) == "HIP shows no GPU"
    put_hip(tmp_path, status=100)
    assert gpu_libraries.nccl_why_not(environ) == "hipInit failed with 100, no ROCm-capable device is detected"


def test_fault_in_gpus_amds_without_rocm(tmp_path: Path) -> None:
    found = section.look(around(tmp_path), tree(tmp_path, "kfd"))
    assert named(found, "HIP").state == FAULT and "libamdhip64.so.7 not found" in named(found, "HIP").fact
    assert named(found, "RCCL").state == ABSENT
    json.dumps(found)
