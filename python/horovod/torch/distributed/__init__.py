"""Horovod as a backend of torch.distributed: `import horovod.torch.distributed`, then
`torch.distributed.init_process_group("horovod")`.

DistributedDataParallel, FSDP2, DTensor, torch.distributed.checkpoint and all that is built on them then move their
tensors, which must be in main memory, by Horovod's operations, with its errors and reports. See
docs/torch-distributed.md.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as _dist

from horovod import _torch_backend
from horovod.torch.distributed import registration as _registration

__all__ = ["init_process_group"]

_torch_backend.register()


def init_process_group(backend: str = _torch_backend.NAME, **options: Any) -> None:
    """As torch.distributed.init_process_group, with this backend, for the ranks that `hvd.init()` knows. Collective.

    Calls `hvd.init()` unless the program has; however the ranks were started, no address and no number is needed on one
    host. On several hosts torch.distributed wants a store: MASTER_ADDR and MASTER_PORT, or `store`. Sets RANK,
    WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, and ACCELERATE_USE_CPU, for libraries that know ranks by these.

    Args:
        backend: "horovod".
        options: of torch.distributed.init_process_group. With init_method or store, rank and size are as it says.

    Raises:
        InvalidArgumentError: rank or size are not those of this process, or the store is missing.
    """
    if not {"init_method", "store"} & options.keys():
        options["init_method"] = _registration.INIT_METHOD
    _dist.init_process_group(backend, **options)
    if backend == _torch_backend.NAME:
        _registration.tell_libraries()
