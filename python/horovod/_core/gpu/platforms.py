"""Whose GPUs this process works on: NVIDIA's by CUDA and NCCL, or AMD's by HIP and RCCL. Frameworks call both "cuda".

Looks at files and at /proc, and opens no library. The core finds out by itself which driver it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from horovod._core.gpu import devices, libraries


class Platform(NamedTuple):
    """One maker's libraries.

    Attributes:
        driver: what its driver is called.
        begin: the driver's first function.
        nccl_name: what its NCCL is called.
        nccl: where that is looked for.
    """

    driver: str
    begin: str
    nccl_name: str
    nccl: libraries.Kind


CUDA: Final = Platform("CUDA", "cuInit", "NCCL", libraries.NCCL)
ROCM: Final = Platform("HIP", "hipInit", "RCCL", libraries.RCCL)


def here() -> Platform:
    """AMD's, if this process has loaded HIP, as PyTorch for ROCm does, or there are AMD's GPUs only; else NVIDIA's.
    Where there are NVIDIA's only, somebody else has loaded HIP, such as an MPI that was built with ROCm."""
    if libraries.is_loaded(libraries.HIP) and not _are_all_nvidias():
        return ROCM
    return of_devices()


def of_devices(root: str = "/") -> Platform:
    """The same for a process that loads nothing, such as the launcher."""
    return ROCM if devices.amd(root) and not devices.nvidia(root) else CUDA


def _are_all_nvidias() -> bool:
    # Below WSL the one file is for GPUs of any maker.
    return not devices.amd() and any(name != "dxg" for name in devices.nvidia())


def has_devices(platform: Platform) -> bool:
    """Whether the kernel shows GPUs of this maker."""
    return bool(devices.amd() if platform is ROCM else devices.nvidia())


def driver(platform: Platform, environ: Mapping[str, str]) -> str:
    """The driver's library. CUDA's fits the driver of the machine, so its name is enough; HIP's lies where ROCm does,
    or in PyTorch's wheel, and must be the one that the process has loaded, if it has one."""
    if platform is CUDA:
        return libraries.DRIVER
    return libraries.find(libraries.HIP, libraries.Named(), environ).path or libraries.HIP.names[0]
