"""The calls of the C interface about tensors on devices. Used through `engine.Engine.gpu`."""

from __future__ import annotations

import ctypes
import os
from typing import Callable

from horovod._native import abi


class Gpu:
    """hvd_use_gpu, hvd_order, hvd_describe_result and hvd_copy_result as methods. Any thread may call them.

    Args:
        library: from `horovod._native.library.load`.
        check: raises for a status that is a failure.
    """

    def __init__(self, library: ctypes.CDLL, check: Callable[[int], None]) -> None:
        self._library = library
        self._check = check

    def use(self, device: int, cuda: str, nccl: str, why_not_nccl: str, max_ctas: int, streams: int) -> None:
        """From now on tensors on this device can be submitted.

        Args:
            device: as CUDA counts in this process, from 0.
            cuda: the driver's library, CUDA's or HIP's, its path or name.
            nccl: the path of NCCL's, or RCCL's for HIP; empty: there is none.
            why_not_nccl: why NCCL is not used; empty: it is.
            max_ctas: of an NCCL communicator; 0: NCCL chooses.
            streams: of NCCL, at most.
        """
        size = ctypes.sizeof(abi.HvdGpu)
        path, why_not = os.fsencode(nccl) or None, why_not_nccl.encode(errors="replace") or None
        filled = abi.HvdGpu(size, device, os.fsencode(cuda), path, why_not, max_ctas, streams)
        self._check(self._library.hvd_use_gpu(ctypes.byref(filled)))

    def order(self, handle: int, stream: int) -> None:
        """What is put on the stream from now on begins after the operations of this done handle. The host does not
        wait.
        """
        self._check(self._library.hvd_order(handle, stream))

    def describe_result(self, handle: int, index: int) -> tuple[int, tuple[int, ...]]:
        """Bytes and shape of a result of a done operation, which is taken later."""
        filled = abi.HvdResult()
        self._check(self._library.hvd_describe_result(handle, index, ctypes.byref(filled)))
        return filled.bytes, tuple(filled.shape[: filled.ndim])

    def copy_result(self, handle: int, index: int, address: int, nbytes: int, stream: int) -> None:
        """Copies a result that the core has allocated on the device to exactly `nbytes` at `address`, on the stream,
        and gives it back. The host does not wait.
        """
        self._check(self._library.hvd_copy_result(handle, index, address, nbytes, stream))
