"""Before a commit copies values that lie on a GPU: have the collectives that made them ended well?

There an operation is done when it is on its way (docs/design/0022). One that is aborted later, because a rank has died,
leaves anything in its tensors, and what the framework does next works on that, a commit's copies too. Used by the
states of all frameworks whose tensors the core reaches on GPUs.
"""

from __future__ import annotations

import json
from typing import Callable

from horovod._core.errors import HorovodInternalError
from horovod._core.life import session

__all__ = ["await_collectives"]


def await_collectives(wait: Callable[[int], object]) -> None:
    """Waits until the values that are to be copied are there; does nothing where the core works on no GPU.

    Args:
        wait: called with the device, as CUDA counts; returns when the framework's work is done that makes these values.

    Raises:
        HorovodInternalError: the engine has failed meanwhile, so that an operation may have been aborted.
    """
    current = session.current
    if current is None:
        return
    from horovod._core.life.planes import gpu_plane  # few programs save states

    device = gpu_plane.device_in_use(current)
    if device is None:
        return
    wait(device)
    # The engine fails before it aborts anything. So what has ended by now, while it had not failed, has ended well.
    if json.loads(current.engine.describe())["failed"]:
        raise HorovodInternalError(
            "The state was not saved: the engine has failed, and what the GPU was still doing for its collectives was "
            "aborted. What was saved before is kept."
        )
