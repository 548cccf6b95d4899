"""What the libraries of GPUs say of themselves. `horovod.runner.gpus` runs this file as a program, because a library
may take its process down, and because the launcher starts no CUDA.

    python probe.py cuda libcuda.so.1       {"version": 13000, "devices": ["NVIDIA H100 80GB HBM3"]}
    python probe.py nccl /path/libnccl.so.2 {"version": 22809}

It imports nothing of this package. What fails is said on stderr, with exit code 1.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from typing import Any

_NAME_BYTES = 256


def opened(path: str) -> ctypes.CDLL:
    """A library, with names of its own.

    Raises:
        OSError: it cannot be opened; the message says why.
    """
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        message = str(error)
        raise OSError(message if message.startswith(path) else f"{path}: {message}") from None


def nccl_version(path: str) -> int:
    """NCCL's version as its one integer, such as 22809. It needs no GPU, and starts nothing.

    Raises:
        OSError: the library cannot be opened, or is another.
    """
    number = ctypes.c_int()
    try:
        status = opened(path).ncclGetVersion(ctypes.byref(number))
    except AttributeError:
        raise OSError(f"{path} is no NCCL: it has no ncclGetVersion") from None
    if status != 0 or number.value <= 0:
        raise OSError(f"{path}: ncclGetVersion failed with {status}")
    return number.value


def cuda(path: str) -> dict[str, Any]:
    """Version of the driver's interface, such as 13000, and the names of its devices. Starts CUDA in this process.

    Raises:
        OSError: the library cannot be opened, or the driver does not work.
    """
    driver = opened(path)
    version, count = ctypes.c_int(), ctypes.c_int()
    try:
        _check(driver, driver.cuInit(0), "cuInit")
        _check(driver, driver.cuDriverGetVersion(ctypes.byref(version)), "cuDriverGetVersion")
        _check(driver, driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
        return {"version": version.value, "devices": [_device(driver, number) for number in range(count.value)]}
    except AttributeError as error:
        raise OSError(f"{path} is no CUDA driver: {error}") from None


def _device(driver: ctypes.CDLL, number: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    _check(driver, driver.cuDeviceGet(ctypes.byref(device), number), "cuDeviceGet")
    _check(driver, driver.cuDeviceGetName(name, _NAME_BYTES, device), "cuDeviceGetName")
    return name.value.decode(errors="replace")


def _check(driver: ctypes.CDLL, status: int, call: str) -> None:
    if status == 0:
        return
    text = ctypes.c_char_p()
    driver.cuGetErrorString(status, ctypes.byref(text))
    why = (text.value or b"unknown error").decode(errors="replace")
    raise OSError(f"{call} failed with {status}, {why}")


def main(words: Sequence[str]) -> int:
    """Asks one library.

    Args:
        words: "cuda" or "nccl", and the library.
    """
    what, path = words
    try:
        facts = cuda(path) if what == "cuda" else {"version": nccl_version(path)}
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
