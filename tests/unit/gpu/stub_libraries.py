"""Small libraries with the names of NCCL, RCCL, HIP and CUDA's driver, for tests of who finds and asks them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="No C compiler is installed.")

NCCL = "int ncclGetVersion(int* version) { *version = VERSION; return STATUS; }"
DRIVER = """
int cuInit(unsigned flags) { return STATUS; }
int cuDriverGetVersion(int* version) { *version = 13000; return 0; }
int cuDeviceGetCount(int* count) { *count = DEVICES; return 0; }
int cuDeviceGet(int* device, int number) { *device = 100 + number; return 0; }
int cuDeviceGetName(char* name, int size, int device) { *name = 'A' + device - 100; name[1] = 0; return 0; }
int cuGetErrorString(int status, const char** text) {
  *text = status == 100 ? "no CUDA-capable device is detected" : 0;
  return status == 100 ? 0 : 1;
}
"""

HIP = """
int hipInit(unsigned flags) { return STATUS; }
int hipDriverGetVersion(int* version) { *version = 60240091; return 0; }
int hipGetDeviceCount(int* count) { *count = DEVICES; return 0; }
int hipDeviceGet(int* device, int number) { *device = number; return 0; }
int hipDeviceGetName(char* name, int size, int device) { *name = 'A' + device; name[1] = 0; return 0; }
int hipDrvGetErrorString(int status, const char** text) { *text = "no ROCm-capable device is detected"; return 0; }
"""


def put(path: Path, source: str, status: int = 0, **numbers: int) -> Path:
    """Compiles a library; words in capitals of its source are numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [f"-D{name}={value}" for name, value in {"STATUS": status, **numbers}.items()]
    command = [str(COMPILER), "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *words]
    subprocess.run(command, input=source, text=True, check=True)
    return path


def put_nccl(path: Path, version: int = 22809, status: int = 0) -> Path:
    """An NCCL that says this version."""
    return put(path, NCCL, status, VERSION=version)


def put_driver(folder: Path, devices: int = 1, status: int = 0) -> Path:
    """A libcuda.so.1 whose devices are called A, B, ..."""
    return put(folder / "libcuda.so.1", DRIVER, status, DEVICES=devices)


def put_hip(folder: Path, devices: int = 1, status: int = 0) -> Path:
    """A libamdhip64.so.6 whose devices are called A, B, ..."""
    return put(folder / "libamdhip64.so.6", HIP, status, DEVICES=devices)
