"""Arrays on a GPU for the contract suite, without a framework that has one: memory of the CUDA driver, or of HIP where
HVD_TEST_PLATFORM=hip, reached by ctypes, and an adapter for it. Over the fake driver, or a real one.

An array is made on a stream as frameworks make theirs: its values are copied there some time after the call, so that
whoever does not wait for the stream finds poison.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint, c_uint64, c_void_p
from typing import Any, Final, Optional

import numpy as np
from jobs import exchange_table

from horovod._core.tensors.adapter import LaneTerms
from horovod.numpy.adapter import NumpyAdapter
from horovod.numpy.adapter import adapter as of_numpy

Array = np.ndarray[Any, Any]


# HIP's names for what is called below by CUDA's.
_HIP: Final = {
    "cuInit": "hipInit",
    "cuDeviceGet": "hipDeviceGet",
    "cuStreamCreate": "hipStreamCreateWithFlags",
    "cuStreamSynchronize": "hipStreamSynchronize",
    "cuMemAlloc_v2": "hipMalloc",
    "cuMemFree_v2": "hipFree",
    "cuMemcpyHtoDAsync_v2": "hipMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync_v2": "hipMemcpyDtoHAsync",
}


class Driver:
    """The functions of the driver that an array needs. `call` raises for whatever fails."""

    def __init__(self, path: str) -> None:
        # The fake devices of two hosts are not the same ones.
        os.environ.setdefault("FAKE_CUDA_UUID", os.environ.get("HOROVOD_CROSS_RANK", "0"))
        self._library = ctypes.CDLL(path)
        self._is_hip = os.environ.get("HVD_TEST_PLATFORM") == "hip"
        self.call("cuInit", c_uint(0))
        device = c_int()
        # One for each rank of a host, as torch.cuda.set_device(hvd.local_rank()) has it.
        self.device = int(os.environ.get("HVD_TEST_GPU") or os.environ.get("HOROVOD_LOCAL_RANK", "0"))
        self.call("cuDeviceGet", byref(device), self.device)
        self._context = c_void_p()
        if not self._is_hip:
            self.call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._enter()
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(1))
        self.stream = stream.value or 0
        self._process = os.getpid()

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, _HIP.get(name, name) if self._is_hip else name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def _enter(self) -> None:
        """The device becomes this thread's."""
        if self._is_hip:
            self.call("hipSetDevice", c_int(self.device))
        else:
            self.call("cuCtxSetCurrent", self._context)

    def allocate(self, nbytes: int) -> int:
        address = c_uint64()
        self._enter()
        self.call("cuMemAlloc_v2", byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return address.value

    def free(self, address: int) -> None:
        if os.getpid() != self._process:
            return  # a forked child, where CUDA does not work: the memory is its parent's
        # What still uses it on the stream comes first, as with a framework's allocator.
        self.call("cuStreamSynchronize", c_void_p(self.stream))
        self._enter()
        self.call("cuMemFree_v2", c_uint64(address))

    def upload(self, address: int, values: Array) -> None:
        """Asynchronous: the caller keeps the values."""
        self.call(
            "cuMemcpyHtoDAsync_v2",
            c_uint64(address),
            c_void_p(values.ctypes.data),
            ctypes.c_size_t(values.nbytes),
            c_void_p(self.stream),
        )

    def download(self, values: Array, address: int) -> None:
        self.call(
            "cuMemcpyDtoHAsync_v2",
            c_void_p(values.ctypes.data),
            c_uint64(address),
            ctypes.c_size_t(values.nbytes),
            c_void_p(self.stream),
        )
        self.call("cuStreamSynchronize", c_void_p(self.stream))

    def faults(self) -> str:
        """What the fake driver or the fake NCCL has seen that is wrong; empty also over real ones."""
        words = []
        for library in ("cuda", "nccl"):
            try:
                opened = ctypes.CDLL(os.environ[f"HVD_TEST_{library.upper()}_LIBRARY"])
                count, say = getattr(opened, f"fake_{library}_faults"), getattr(opened, f"fake_{library}_say")
            except AttributeError:
                continue
            if count():
                text = ctypes.create_string_buffer(500)
                say(text, 500)
                words.append(text.value.decode())
        return "; ".join(words)


_driver: Optional[Driver] = None


def driver() -> Driver:
    """The one of this process."""
    global _driver
    if _driver is None:
        _driver = Driver(os.environ["HVD_TEST_CUDA_LIBRARY"])
    return _driver


class _Block:
    """Memory on the GPU, until the last array that lies in it dies."""

    def __init__(self, nbytes: int) -> None:
        self.address = driver().allocate(nbytes)

    def __del__(self) -> None:
        driver().free(self.address)


class GpuArray:
    """An array on the GPU, in `block` if there is one; `form` is one of its shape and dtype, whose values mean
    nothing."""

    def __init__(self, form: Array, values: Optional[Array] = None, block: Optional[_Block] = None) -> None:
        self.form = form
        self.block = block or _Block(form.nbytes)
        self.address = self.block.address
        self.keep: Any = None  # what is still being copied to it
        self.extents: Any = None  # of the exchange table
        self._values = None if values is None else np.array(values, order="C")
        if self._values is not None and self._values.nbytes:
            driver().upload(self.address, self._values)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.form.shape
        return shape

    @property
    def dtype(self) -> Any:
        return self.form.dtype

    def numpy(self) -> Array:
        """Its values."""
        values = np.empty(self.form.shape, self.form.dtype)
        if values.nbytes:
            driver().download(values, self.address)
        return values

    def reshape(self, *shape: Any) -> GpuArray:
        """A view."""
        return GpuArray(self.form.reshape(*shape), block=self.block)


def _seen(array: GpuArray) -> exchange_table.Seen:
    kind = exchange_table.ROCM if os.environ.get("HVD_TEST_PLATFORM") == "hip" else exchange_table.CUDA
    # What is only said to be an array on the GPU, for the refusals, has no dtype that the lane knows.
    plain = type(array.form) is np.ndarray and array.form.flags.c_contiguous
    return exchange_table.Seen(array.address, kind, driver().device, array.dtype if plain else "V1", array.shape)


exchange_table.give(GpuArray, _seen)


def _empty_like(array: GpuArray) -> GpuArray:
    return GpuArray(np.empty(array.shape, array.dtype))


class HostCopy:
    """What a GPU's array becomes in the host's memory."""

    def __init__(self, values: Array) -> None:
        self.form = values
        self.address = values.ctypes.data
        self.shape, self.dtype = values.shape, values.dtype

    def numpy(self) -> Array:
        return self.form


class _Tensors:
    """See `horovod._core.tensors.adapter.GpuTensors`."""

    def device(self, tensor: GpuArray) -> int:
        return driver().device

    def address(self, tensor: GpuArray) -> int:
        return tensor.address if tensor.form.size else 0

    def stream(self, device: int) -> int:
        return driver().stream

    def empty(self, shape: tuple[int, ...], like: GpuArray) -> GpuArray:
        return GpuArray(np.empty(shape, like.dtype))

    def used_here(self, tensor: GpuArray) -> None:
        raise AssertionError("there is one stream only")


class GpuAdapter(NumpyAdapter):
    """Of `GpuArray`; what does not depend on where an array lies is NumPy's."""

    framework = "gpu"
    maker = "GpuArray"
    lane_terms: Any = LaneTerms((GpuArray,), None, _empty_like, lambda _, like: like)
    gpu: Any = _Tensors()

    def owns(self, value: Any) -> bool:
        return isinstance(value, GpuArray)

    def dtype(self, tensor: Any) -> int:
        return of_numpy.dtype(tensor.form)

    def dtype_name(self, tensor: Any) -> str:
        return of_numpy.dtype_name(tensor.form)

    def device(self, tensor: Any) -> str:
        return f"cuda:{driver().device}"

    def unfit(self, tensor: Any) -> str:
        return of_numpy.unfit(tensor.form)

    def is_contiguous(self, tensor: Any) -> bool:
        return bool(tensor.form.flags.c_contiguous)

    def is_writable(self, tensor: Any) -> bool:
        return True

    def address(self, tensor: Any) -> int:
        return self.gpu.address(tensor)  # type: ignore[no-any-return]

    def empty_like(self, tensor: Any) -> Any:
        return _empty_like(tensor)

    def contiguous(self, tensor: Any) -> Any:
        return tensor

    def to_host(self, tensor: Any) -> Any:
        if not sys._getframe(1).f_globals["__name__"].endswith(".point_to_point"):
            raise AssertionError("the core reaches every array on the one GPU of this process")
        return HostCopy(tensor.numpy())

    def copy_into(self, target: Any, source: Any) -> None:
        values = source.numpy() if isinstance(source, (GpuArray, HostCopy)) else source
        if values.nbytes:
            driver().upload(target.address, values)
        target.keep = values

    def from_values(self, values: Sequence[int], like: Any) -> Any:
        return GpuArray(np.empty(len(values), np.int32), np.array(values, np.int32))

    def values_of(self, tensor: Any) -> list[int]:
        return of_numpy.values_of(tensor.numpy())

    def cast(self, tensor: Any, dtype: int) -> Any:
        cast = of_numpy.cast(tensor.numpy(), dtype)
        return GpuArray(cast, cast)

    def slot_key(self, tensor: Any) -> int:
        return tensor.address  # type: ignore[no-any-return]


adapter: Final = GpuAdapter()
