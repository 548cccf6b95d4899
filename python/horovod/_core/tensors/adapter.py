"""What the core needs to know about a framework's tensors: the questions an adapter answers.

One adapter per framework (`horovod.torch`, `horovod.numpy`, ...), and the reference, NumPy's. Everything that
does not depend on who owns the tensor is written once, in `collectives`, `reducer`, `compression` and `objects`, in
terms of this protocol. An adapter holds no state of an operation and never calls the engine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional, Protocol

from horovod._core.tensors import dtypes


class Lent:
    """Memory that is given back when this dies.

    Args:
        owner: what `free` is called with.
    """

    __slots__ = ("_free", "_owner")

    def __init__(self, owner: int, free: Callable[[int], None]) -> None:
        self._owner = owner
        self._free = free

    def __del__(self) -> None:
        self._free(self._owner)


class ResultBlock:
    """Memory that the core allocated for a result; given back when the last object that refers to it dies.

    Args:
        keep: gives the memory back when it dies.

    Attributes:
        address: where the elements are; 0 when there are none.
        nbytes: size of the data.
        dtype: number of the element type (`horovod._core.tensors.dtypes`).
        shape: extents, row-major.
    """

    __slots__ = ("_keep", "address", "dtype", "nbytes", "shape")

    def __init__(self, address: int, nbytes: int, dtype: int, shape: tuple[int, ...], keep: object) -> None:
        self.address = address
        self.nbytes = nbytes
        self.dtype = dtype
        self.shape = shape
        self._keep = keep

    def buffer(self) -> ctypes.Array[ctypes.c_ubyte]:
        """The bytes as an object with the buffer protocol, which keeps this block alive (no copy)."""
        view = (ctypes.c_ubyte * self.nbytes).from_address(self.address) if self.nbytes else (ctypes.c_ubyte * 0)()
        view._block = self  # type: ignore[attr-defined]
        return view


class LaneTerms(NamedTuple):
    """What the lane (`horovod._native.lane`) must know of a framework's tensors to read them by itself.

    Attributes:
        types: tensors of exactly these types have DLPack's exchange table, or the buffer protocol.
        hides: of a contiguous tensor on the CPU: True if its memory holds other values than it has. None: never.
        empty_like: makes a new tensor of the same form; any C function is faster than a method of an adapter.
        prototype: (shape, tensor) -> something to call `empty_like` with, for tensors of that shape and the tensor's
            dtype. It has no memory to speak of, and must not be read or written.
    """

    types: tuple[type, ...]
    hides: Optional[Callable[[Any], bool]]
    empty_like: Callable[[Any], Any]
    prototype: Callable[[tuple[int, ...], Any], Any]


class GpuTensors(Protocol):
    """What an adapter knows of tensors on CUDA devices. Methods are local and thread-safe, and wait for nothing."""

    def device(self, tensor: Any) -> int:
        """The device, as CUDA counts in this process; -1: it lies elsewhere."""
        ...

    def address(self, tensor: Any) -> int:
        """On the device, of the first element of a contiguous tensor; 0 if it has no elements."""
        ...

    def stream(self, device: int) -> int:
        """The framework's current stream of the calling thread, as a CUstream."""
        ...

    def empty(self, shape: tuple[int, ...], like: Any) -> Any:
        """A new contiguous tensor of that shape, and the dtype and device of `like`; contents undefined."""
        ...

    def used_here(self, tensor: Any) -> None:
        """The calling thread's current stream uses a tensor that was made on another one: when it dies, its memory is
        used again after that."""
        ...


class Terms(Protocol):
    """What an adapter says of itself."""

    @property
    def framework(self) -> str:
        """Name for messages, e.g. "torch"."""
        ...

    @property
    def maker(self) -> str:
        """What makes a tensor of another value, for messages: "torch.tensor"."""
        ...

    @property
    def lane_terms(self) -> Optional[LaneTerms]:
        """None: the lane cannot read its tensors."""
        ...

    @property
    def gpu(self) -> Optional[GpuTensors]:
        """None: its tensors never lie where the core could reach them on a GPU."""
        ...


class Adapter(Terms, Protocol):
    """Answers questions about the tensors of one framework. All methods are local, thread-safe and do not block on
    other ranks."""

    def owns(self, value: Any) -> bool:
        """True if `value` is a tensor of this framework (a list of numbers is not)."""
        ...

    def dtype(self, tensor: Any) -> int:
        """Number of the element type (`horovod._core.tensors.dtypes`), or -1 for one that the core cannot reduce or
        move."""
        ...

    def dtype_name(self, tensor: Any) -> str:
        """The framework's own name of the element type, for messages."""
        ...

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Extents; () for a scalar."""
        ...

    def device(self, tensor: Any) -> str:
        """ "cpu", or e.g. "cuda:0": then the operation is staged through `to_host` and `from_host`, unless `gpu` says
        that the core can reach it."""
        ...

    def unfit(self, tensor: Any) -> str:
        """Why no collective takes this tensor, whose memory does not hold its values, and the remedy, as the rest of a
        sentence: "needs a dense tensor. Received ...". Empty for all others."""
        ...

    def is_contiguous(self, tensor: Any) -> bool:
        """True if the elements lie in memory row-major without gaps."""
        ...

    def is_writable(self, tensor: Any) -> bool:
        """False for a read-only tensor, which no operation may have as its output."""
        ...

    def address(self, tensor: Any) -> int:
        """Address of the first element of a contiguous CPU tensor; 0 if it has no elements."""
        ...

    def empty_like(self, tensor: Any) -> Any:
        """A new contiguous tensor of the same dtype, shape and device; contents undefined."""
        ...

    def contiguous(self, tensor: Any) -> Any:
        """The tensor itself if contiguous or unfit, else a contiguous copy on the same device."""
        ...

    def to_host(self, tensor: Any) -> Any:
        """A contiguous CPU copy of a tensor that lives on a device (waits for pending work on it)."""
        ...

    def from_host(self, host: Any, like: Any) -> Any:
        """A copy of the CPU tensor `host` on the device of `like`; `host` itself if that is the CPU."""
        ...

    def copy_into(self, target: Any, source: Any) -> None:
        """target[...] = source, of equal shape, across devices, dtypes and strides."""
        ...

    def wrap(self, block: ResultBlock, like: Any) -> Any:
        """A CPU tensor over the block's memory without a copy, keeping the block alive. `like` is the input tensor (for
        a subclass or other attributes that results share with it)."""
        ...

    def from_values(self, values: Sequence[int], like: Any) -> Any:
        """A one-dimensional int32 tensor of these values on the device of `like` (received splits)."""
        ...

    def values_of(self, tensor: Any) -> list[int]:
        """The elements of a one-dimensional integer tensor of this framework as Python integers (splits). ValueError if
        it is not one."""
        ...

    def cast(self, tensor: Any, dtype: int) -> Any:
        """A copy with another element type (`horovod._core.tensors.dtypes`), same shape and device; the tensor itself
        if it has it already."""
        ...

    def slot_key(self, tensor: Any) -> int:
        """An identity of the tensor's memory that is equal for equal storage (to notice one tensor given twice in a
        group)."""
        ...


def describe(adapter: Adapter, tensor: Any) -> str:
    """ "float32 [512, 64]", as in the engine's own messages."""
    number = adapter.dtype(tensor)
    name = dtypes.NAMES[number] if number >= 0 else adapter.dtype_name(tensor)
    return f"{name} {list(adapter.shape(tensor))}"
