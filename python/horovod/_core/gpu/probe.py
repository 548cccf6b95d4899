"""What the libraries of GPUs say of themselves. `horovod.runner.doctor.gpu_libraries` runs this file as a program,
because a library may take its process down, and because the launcher starts no CUDA.

    python probe.py cuda libcuda.so.1       {"version": 13000, "devices": ["NVIDIA H100 80GB HBM3"]}
    python probe.py hip libamdhip64.so.6    {"version": 60240091, "devices": ["AMD Instinct MI300X"]}
    python probe.py nccl /path/libnccl.so.2 {"version": 22809}, of an RCCL too

It imports nothing of this package. What fails is said on stderr, with exit code 1.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

_NAME_BYTES = 256


class Driver(NamedTuple):
    """A driver's functions, by their names: they take the same in both.

    Attributes:
        title: what the library is, after "is no".
    """

    title: str
    begin: str
    get_version: str
    get_device_count: str
    get_device: str
    get_device_name: str
    get_error_string: str


CUDA = Driver(
    "CUDA driver",
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuGetErrorString",
)
HIP = Driver(
    "HIP",
    "hipInit",
    "hipDriverGetVersion",
    "hipGetDeviceCount",
    "hipDeviceGet",
    "hipDeviceGetName",
    "hipDrvGetErrorString",
)
_DRIVERS = {"cuda": CUDA, "hip": HIP}


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
        raise OSError(f"{path} is not NCCL: it has no ncclGetVersion") from None
    if status != 0 or number.value <= 0:
        raise OSError(f"{path}: ncclGetVersion failed with {status}")
    return number.value


def driver(of: Driver, path: str) -> dict[str, Any]:
    """Version of the driver's interface, such as 13000, and the names of its devices. Starts it in this process.

    Raises:
        OSError: the library cannot be opened, or the driver does not work.
    """
    library = opened(path)
    version, count = ctypes.c_int(), ctypes.c_int()
    try:
        _call(of, library, of.begin, 0)
        _call(of, library, of.get_version, ctypes.byref(version))
        _call(of, library, of.get_device_count, ctypes.byref(count))
        return {"version": version.value, "devices": [_device(of, library, number) for number in range(count.value)]}
    except AttributeError as error:
        raise OSError(f"{path} is no {of.title}: {error}") from None


def _device(of: Driver, library: ctypes.CDLL, number: int) -> str:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    _call(of, library, of.get_device, ctypes.byref(device), number)
    _call(of, library, of.get_device_name, name, _NAME_BYTES, device)
    return name.value.decode(errors="replace")


def _call(of: Driver, library: ctypes.CDLL, function: str, *arguments: Any) -> None:
    status = getattr(library, function)(*arguments)
    if status == 0:
        return
    text = ctypes.c_char_p()
    getattr(library, of.get_error_string)(status, ctypes.byref(text))
    why = (text.value or b"unknown error").decode(errors="replace")
    raise OSError(f"{function} failed with {status}, {why}")


def main(words: Sequence[str]) -> int:
    """Asks one library.

    Args:
        words: "cuda", "hip" or "nccl", and the library.
    """
    what, path = words
    try:
        facts = {"version": nccl_version(path)} if what == "nccl" else driver(_DRIVERS[what], path)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
