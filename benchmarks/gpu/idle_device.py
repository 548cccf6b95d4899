"""Libraries before the driver and NCCL whose calls that give the device work can be switched off, so that what is left
of an operation's time is the core's own.

Used by `own_time_rank`. Compiled here, each stands before the real library or the fake one: needs a C compiler.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Final

import other_gpu

_ROOT = Path(__file__).resolve().parent.parent.parent
# What puts work on a stream, asks whether it is done, or waits for it.
_WORK: Final = (
    *("cuStreamWaitEvent", "cuEventRecord", "cuEventQuery", "cuStreamSynchronize", "cuLaunchKernel"),
    *("cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemsetD32Async"),
    *("ncclGroupStart", "ncclGroupEnd", "ncclAllReduce"),
)
# Every argument of these functions is an integer or a pointer, so all are handed on as such, up to the driver's most.
_SOURCE = """
#include <dlfcn.h>
static _Atomic int idle;
static _Atomic long calls;
void set_idle(int on) { idle = on; calls = 0; }
long calls_of_the_core(void) { return calls; }
typedef long (*Real)(long, long, long, long, long, long, long, long, long, long, long, long);
#define BEFORE(name, is_work)                                                                              \\
  long name(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l) { \\
    static _Atomic(Real) real;                                                                             \\
    if (!real) real = (Real)dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), #name);                             \\
    ++calls;                                                                                               \\
    return is_work && idle ? 0 : real(a, b, c, d, e, f, g, h, i, j, k, l);                                 \\
  }
"""


def before(real: str, table: str, folder: Path) -> ctypes.CDLL:
    """A library before another one.

    Args:
        real: that one's path.
        table: the file of the core that has the functions' names, below src/backend.
        folder: for the library.

    Returns:
        It; set_idle(1) switches the work off, calls_of_the_core() counts calls from then on. _name is its path.

    Raises:
        Missing: there is no C compiler.
    """
    names = re.findall(r'"((?:cu|nccl)[A-Z]\w*)"', (_ROOT / "src" / "backend" / table).read_text())
    opened = ctypes.CDLL(real)
    lines = [f"BEFORE({name}, {int(name in _WORK)})" for name in dict.fromkeys(names) if hasattr(opened, name)]
    source, made = folder / "idle_device.c", folder / f"before_{Path(real).name}"
    source.write_text("\n".join([_SOURCE, *lines, ""]))
    words = [other_gpu.compiler(), "-O2", "-w", "-shared", "-fPIC", f'-DREAL="{real}"', source, "-ldl"]
    subprocess.run([*words, "-Wl,--no-as-needed", real, "-o", made], check=True, timeout=60)
    return ctypes.CDLL(str(made))
