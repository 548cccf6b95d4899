"""Probe of the GPUs: which there are, whether their driver works, and what would move their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from horovod._core.gpu import devices, libraries, platforms
from horovod.runner.doctor import gpu_libraries
from horovod.runner.doctor.examination import child
from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding

LIMIT_S: Final = 4 * gpu_libraries.PATIENCE_S
_NVIDIA_SMI: Final = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
_CHOOSE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_STAGED: Final = "Without it, GPU tensors go through host memory, at the speed of the bus."


def look(environ: Mapping[str, str], root: str = "/") -> list[Finding]:
    """Whether there are any, by whom they were found, and what a job would use."""
    nodes, driver = devices.nvidia(root), gpu_libraries.cuda(environ)
    hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    found = [
        Finding("NVIDIA devices in /dev", FACT if nodes else ABSENT, ", ".join(nodes) or "none"),
        _by_smi(bool(nodes), environ),
        _by_driver(driver, bool(nodes) and not hidden),
        _nccl(platforms.CUDA, bool(driver.devices), environ),
        *_amd(environ, root),
    ]
    if all(finding.state == ABSENT for finding in found):
        return [Finding("GPUs", ABSENT, f"none: no NVIDIA or AMD device in /dev; {driver.why_not}")]
    found += [Finding(name, FACT, environ[name] or "empty: none is used") for name in _CHOOSE if name in environ]
    return found


def _by_smi(expected: bool, environ: Mapping[str, str]) -> Finding:
    name, state = "nvidia-smi", FAULT if expected else ABSENT
    remedy = "Install the driver's tools, or check whether the driver runs (dmesg)."
    try:
        answer = child(_NVIDIA_SMI, gpu_libraries.PATIENCE_S, environ)
    except OSError as error:
        return Finding(name, state, error.strerror or str(error), remedy)
    if answer.code is None:
        return Finding(name, FAULT, f"no answer within {gpu_libraries.PATIENCE_S:g} s", remedy)
    if answer.code:
        return Finding(name, state, answer.out.strip().replace("\n", " ") or answer.last_word, remedy)
    return Finding(name, WORKS, "; ".join(answer.out.strip().splitlines()))


def _by_driver(driver: gpu_libraries.Driver, expected: bool) -> Finding:
    name = f"CUDA driver ({libraries.DRIVER})"
    if driver.why_not:
        remedy = "Install the driver where the loader looks (LD_LIBRARY_PATH), or check whether it runs (dmesg)."
        return Finding(name, FAULT if expected or driver.hangs else ABSENT, driver.why_not, remedy)
    return Finding(name, WORKS, f"CUDA {driver.version}; {_listed(driver)}")


def _by_hip(driver: gpu_libraries.Driver, expected: bool) -> Finding:
    if driver.why_not:
        remedy = "Install ROCm where the loader looks (LD_LIBRARY_PATH), or check whether its driver runs (dmesg)."
        return Finding("HIP", FAULT if expected or driver.hangs else ABSENT, driver.why_not, remedy)
    return Finding("HIP", WORKS, f"HIP {driver.version}; {_listed(driver)}")


def _listed(driver: gpu_libraries.Driver) -> str:
    return "; ".join(f"cuda:{number} {device}" for number, device in enumerate(driver.devices)) or "no device"


def _nccl(platform: platforms.Platform, expected: bool, environ: Mapping[str, str]) -> Finding:
    name, nccl = f"{platform.nccl_name} ({platform.nccl.names[0]})", gpu_libraries.nccl(environ, platform)
    if nccl.why_not:
        return Finding(name, ABSENT if nccl.absent and not expected else FAULT, nccl.why_not, _STAGED)
    return Finding(name, WORKS if expected else FACT, f"{nccl.version}, {nccl.path}: {nccl.how}")


def _amd(environ: Mapping[str, str], root: str) -> list[Finding]:
    """AMD's devices, and the libraries that a job would use for them."""
    there = bool(devices.amd(root))
    found = [Finding("AMD devices (/dev/kfd)", FACT if there else ABSENT, "there" if there else "none")]
    if there:
        driver = gpu_libraries.hip(environ)
        hidden = any(environ.get(name) in ("", "-1") for name in _CHOOSE)
        found += [_by_hip(driver, not hidden), _nccl(platforms.ROCM, bool(driver.devices), environ)]
    return found
