"""Waits for what collectives have made on a GPU, before it is copied. Used by states that hold PyTorch's tensors."""

from __future__ import annotations

from typing import Callable

import torch

from horovod._core.training.elastic import arrival

__all__ = ["await_collectives"]


def await_collectives() -> None:
    """See `horovod._core.training.elastic.arrival`: waits until the GPU is through with everything that it was given.

    Raises:
        HorovodInternalError: the engine has failed meanwhile, so that an operation may have been aborted.
    """
    arrival.await_collectives(_synchronize)


def _synchronize(device: int) -> None:
    is_initialized: Callable[[], bool] = torch.cuda.is_initialized  # has no types in some versions
    if is_initialized():  # or another framework has the device in use
        torch.cuda.synchronize(device)
