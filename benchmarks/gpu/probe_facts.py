"""What the machine is: GPU, driver, libraries and where they were found, frameworks, tools.

Run by `run_all`. Everything absent is said to be absent.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import os
import platform
import resource
import shutil
import subprocess
import sys
from ctypes import byref, c_int
from pathlib import Path
from typing import Any, Callable

import driver
import libraries
import nccl
from table import Table

# Of CUdevice_attribute: what the design of the GPU backend asks.
_ATTRIBUTES = {
    "multiprocessors": 16,
    "L2 bytes": 38,
    "copy engines": 40,
    "compute mode": 20,
    "host memory can be registered": 99,
    "host pointers usable for registered memory": 91,
    "stream memory operations, 64 bit": 93,
    "pageable memory reachable": 88,
    "event IPC": 125,
    "memory as file descriptors": 103,
    "memory pools": 115,
    "multicast": 132,
}
_TOOLS = ("nvidia-smi", "nvcc", "g++", "cmake", "ninja", "make", "nsys", "ncu", "nvidia-cuda-mps-control")
_PACKAGES = ("torch", "numpy", "jax", "tensorflow", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cuda-nvrtc")


def parts() -> list[Callable[[], Table]]:
    """Two tables."""
    return [_machine, _libraries]


def _machine() -> Table:
    made = Table("The machine", ("what", "value"))
    for what, ask in {"GPU": _gpu, "host": _host, "tools": _tools, "packages": _packages, "torch": _torch}.items():
        try:
            found = ask()
        except Exception as error:  # one fact that cannot be had must not hide the others
            found = {what: f"not to be had: {type(error).__name__}: {error}"}
        made.rows += [(name, str(value)) for name, value in found.items()]
        made.figures.update({name: str(value) for name, value in found.items()})
    return made


def _gpu() -> dict[str, Any]:
    driver.attach()
    name, version = ctypes.create_string_buffer(100), c_int()
    driver.call("cuDeviceGetName", name, 100, 0)
    driver.call("cuDriverGetVersion", byref(version))
    major, minor = driver.attribute(75), driver.attribute(76)
    found: dict[str, Any] = {"GPU": f"{name.value.decode()}, compute capability {major}.{minor}"}
    found["CUDA of the driver"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    found.update({what: driver.attribute(number) for what, number in _ATTRIBUTES.items()})
    asked = "driver_version,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,memory.total,compute_mode"
    command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
    found[f"nvidia-smi: {asked}"] = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    return found


def _host() -> dict[str, Any]:
    shm = os.statvfs("/dev/shm")
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    with open("/proc/cpuinfo") as file:
        model = [line for line in file if line.startswith("model name")]
    return {
        "kernel, glibc": f"{platform.release()}, {' '.join(platform.libc_ver())}",
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "processor": f"{len(os.sched_getaffinity(0))} cores usable, {model[0].split(':')[1].strip() if model else '?'}",
        "Python": platform.python_version(),
        "/dev/shm": f"{shm.f_blocks * shm.f_frsize / 1e9:.1f} GB",
        "memory that may be locked": "unlimited" if locked == resource.RLIM_INFINITY else locked,
    }


def _tools() -> dict[str, Any]:
    found = {name: shutil.which(name) or "absent" for name in _TOOLS}
    if found["g++"] != "absent":
        found["g++"] = subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    return found


def _packages() -> dict[str, Any]:
    found = {}
    for name in _PACKAGES:
        try:
            found[f"package {name}"] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[f"package {name}"] = "absent"
    return found


def _torch() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    table = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    return {
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda}, NCCL {torch.cuda.nccl.version()}",
        "torch.Tensor.__dlpack_c_exchange_api__": "absent" if table is None else f"{type(table).__name__}: {table!r}",
        "torch.distributed has NCCL": torch.distributed.is_nccl_available(),
        "allocator": torch.cuda.get_allocator_backend(),
    }


def _libraries() -> Table:
    made = Table("The libraries", ("library", "opened as", "version", "also found"))
    for what in libraries.NAMES:
        try:
            library, path = libraries.open_library(what)
        except libraries.Missing as missing:
            made.rows.append((what, f"absent: {missing}", "", ""))
            continue
        others = [name for name in libraries.candidates(what) if name != path and os.path.exists(name)]
        made.rows.append((what, path, _version(what, library, path), ", ".join(others)))
    made.note = f"libnccl.so.2 by its plain name, without a path: {_by_plain_name()}."
    return made


def _version(what: str, library: ctypes.CDLL, path: str) -> str:
    if what == "nccl":
        switch = "NCCL_MULTI_RANK_GPU_ENABLE"
        known = os.path.exists(path) and switch.removeprefix("NCCL_").encode() in Path(path).read_bytes()
        return f"{nccl.version()}{f', knows {switch}' if known else ''}"
    first, second = c_int(), c_int()
    if what == "runtime":
        library.cudaRuntimeGetVersion(byref(first))
        return str(first.value)
    if what == "nvrtc":
        library.nvrtcVersion(byref(first), byref(second))
        return f"{first.value}.{second.value}"
    return ""


def _by_plain_name() -> str:
    # In another process: here it is loaded already, and would be found by its name wherever it lies.
    command = [sys.executable, "-c", "import ctypes; ctypes.CDLL('libnccl.so.2')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return "found" if not done.returncode else f"not found ({done.stderr.strip().splitlines()[-1]})"
