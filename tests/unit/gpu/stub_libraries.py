"""Small libraries with the names of NCCL and of CUDA's driver, for tests of who finds and asks them."""

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
