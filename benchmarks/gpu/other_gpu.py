"""A driver's library for the core alone: it counts how often the core waits for the device, and on request gives the
GPUs numbers and places of this rank's own.

Used by `engine_rank` and `probe_training`. The profiler does not see what is called by the driver's interface. And two
ranks on one GPU may be NCCL members where NCCL_HOSTID differs, but the core compares the GPUs' numbers and places
(PCI), and would go through the host. The library is compiled here and stands before the real one: needs a C compiler.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from typing import Optional

from libraries import Missing

_SOURCE = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static _Atomic int waits;
int waits_of_the_core(void) { return waits; }
#define WAIT(name)                                                                                 \\
  int name(void* of) {                                                                             \\
    static int (*_Atomic real)(void*);                                                             \\
    if (!real) real = (int (*)(void*))dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), #name); \\
    ++waits;                                                                                       \\
    return real(of);                                                                               \\
  }
WAIT(cuStreamSynchronize)
WAIT(cuEventSynchronize)
WAIT(cuCtxSynchronize)
#ifdef RANK
int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  memset(uuid, 0, 16);
  uuid[0] = RANK + 1;
  uuid[1] = (unsigned char)device;
  return 0;
}
int cuDeviceGetPCIBusId(char* place, int bytes, int device) {
  (void)device;
  return snprintf(place, bytes, "00000000:%02X:00.0", RANK + 1) < bytes ? 0 : 1;
}
#endif
"""


def use_for_the_core(rank: Optional[int] = None) -> ctypes.CDLL:
    """Has the core take its driver from here. Before its first tensor on a GPU.

    Args:
        rank: in the GPUs' numbers; None: they keep their own.

    Returns:
        the library; its waits_of_the_core() counts.

    Raises:
        Missing: there is no C compiler.
    """
    from horovod._core.gpu import libraries

    made = _compiled([] if rank is None else [f"-DRANK={rank}"])
    libraries.DRIVER = made  # type: ignore[misc]
    return ctypes.CDLL(made)


def compiler() -> str:
    """The C compiler's path.

    Raises:
        Missing: there is none.
    """
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None:
        raise Missing("a C compiler (cc), for the library between the core and the driver")
    return found


def _compiled(words: list[str]) -> str:
    folder = tempfile.mkdtemp(prefix="horovod-other-gpu-")
    # The linker needs a library of the driver's name, and no more of it.
    name, empty, source = (os.path.join(folder, name) for name in ("libcuda.so.1", "empty.c", "other_gpu.c"))
    for path, text in ((empty, ""), (source, _SOURCE)):
        with open(path, "w") as file:
            file.write(text)
    made = os.path.join(folder, "libother_gpu.so")
    shared = [compiler(), "-shared", "-fPIC"]
    subprocess.run([*shared, "-Wl,-soname,libcuda.so.1", empty, "-o", name], check=True, timeout=60)
    subprocess.run([*shared, *words, source, "-Wl,--no-as-needed", name, "-ldl", "-o", made], check=True, timeout=60)
    os.unlink(name)
    return made
