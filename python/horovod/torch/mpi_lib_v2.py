"""Not in this version; says so, and what to do instead."""

from __future__ import annotations

# Without the module's name in it: `from horovod.torch import mpi_lib_v2` would swallow an error that has it.
raise ModuleNotFoundError(
    "horovod.torch.mpi_lib_v2 is not in this version: one library serves all frameworks, and it has no PyTorch part. "
    "Remedy: use the functions of horovod.torch, or those of horovod.torch.mpi_ops."
)
