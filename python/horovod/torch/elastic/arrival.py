"""Before a commit copies tensors on a GPU: have the collectives that made them ended well?

There an operation is done when it is on its way (docs/design/0022). One that is aborted later, because a rank has died,
leaves anything in its tensors, and what the stream does next works on that, a commit's copies too. Used by `state`.
"""

from __future__ import annotations

import json
from typing import Callable

import torch

from horovod._core.errors import HorovodInternalError
from horovod._core.life import session

__all__ = ["await_collectives"]


def await_collectives() -> None:
    """Waits until the GPU is through with everything that it was given; nothing where the core works on none.

    Raises:
        HorovodInternalError: the engine has failed meanwhile, so that an operation may have been aborted.
    """
    current, cuda = session.current, torch.cuda
    is_initialized: Callable[[], bool] = cuda.is_initialized  # has no types in some versions
    if current is None or not is_initialized():
        return
    from horovod._core.life import gpu_plane  # not for programs without GPUs

    device = gpu_plane.device_in_use(current)
    if device is None:
        return
    cuda.synchronize(device)
    # The engine fails before it aborts anything. So what has ended by now, while it had not failed, has ended well.
    if json.loads(current.engine.describe())["failed"]:
        raise HorovodInternalError(
            "The state was not saved: the engine has failed, and what the GPU was still doing for its collectives was "
            "aborted. What was saved before is kept."
        )
