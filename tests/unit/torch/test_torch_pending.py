"""Which uses of a gradient wait for its reduction."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

import numpy as np
import pytest
import torch

from horovod.torch.gradients.pending import PendingGradient, pending_gradient

WAIT: dict[str, Callable[[Any], Any]] = {
    "data_ptr": lambda gradient: gradient.data_ptr(),
    "storage": lambda gradient: gradient.untyped_storage(),
    "__dlpack__": lambda gradient: gradient.__dlpack__(),
    "from_dlpack": torch.from_dlpack,
    "numpy": lambda gradient: gradient.numpy(),
    "asarray": np.asarray,
    "data": lambda gradient: gradient.data,
    "item": lambda gradient: gradient[0].item(),
    "norm of a list": lambda gradient: torch._foreach_norm([gradient]),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "repr": repr,
}
DO_NOT_WAIT: dict[str, Callable[[Any], Any]] = {
    "shape": lambda gradient: gradient.shape,
    "dtype": lambda gradient: gradient.dtype,
    "numel": lambda gradient: gradient.numel(),
    "to_dlpack": torch.utils.dlpack.to_dlpack,  # an exception of design 0026
}


class Owner:
    waits = 0

    def submit(self, pending: PendingGradient) -> None:
        pass

    def wait_for(self, pending: PendingGradient) -> None:
        self.waits += 1


@pytest.mark.parametrize("use", [*WAIT, *DO_NOT_WAIT])
def test_uses(use: str) -> None:
    owner = Owner()
    {**WAIT, **DO_NOT_WAIT}[use](pending_gradient(torch.zeros(3), owner, 0))
    assert (owner.waits > 0) == (use in WAIT)
