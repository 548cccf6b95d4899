"""The gradients of ResNet-50 on the device, each in memory of its own, and one buffer into which they are packed.

Used by `probe_packing`. Also the reference for its checks: what packing with a factor must give, bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import driver
import kernels
import libraries

sys.path.append(str(Path(__file__).resolve().parent.parent))
from ranks import resnet50  # noqa: E402 - the folder of the other benchmarks

try:
    import numpy
except ImportError as error:
    raise libraries.Missing(f"numpy: {error}") from error

# Every tensor begins at a multiple of this in the buffer.
_ALIGNMENT = 256
_POISON = 0xAB
_BITS = {"f32": "uint32", "f16": "uint16", "bf16": "uint16"}


class Gradients:
    """Sources and a buffer.

    Args:
        sizes: elements of each.
        dtype: f32, f16 or bf16.
        skew_elems: by how many elements every source is moved away from its alignment.
    """

    def __init__(self, sizes: list[int], dtype: str, skew_elems: int = 0) -> None:
        width = kernels.WIDTHS[dtype]
        self.dtype, self.sizes = dtype, sizes
        self.sizes_bytes = [size * width for size in sizes]
        self.total_bytes = sum(self.sizes_bytes)
        self._memory = [driver.allocate(size + skew_elems * width) for size in self.sizes_bytes]
        self.sources = [address + skew_elems * width for address in self._memory]
        self.offsets, end = [], 0
        for size in self.sizes_bytes:
            self.offsets.append(end)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        self.buffer_bytes = end
        self.buffer = driver.allocate(end)

    def packing(self) -> list[tuple[int, int, int]]:
        """(source, destination, bytes) of each."""
        targets = [self.buffer + offset for offset in self.offsets]
        return list(zip(self.sources, targets, self.sizes_bytes))

    def unpacking(self) -> list[tuple[int, int, int]]:
        """The way back."""
        return [(target, source, size) for source, target, size in self.packing()]

    def fill(self, seed: int) -> list[Any]:
        """Random bit patterns without NaN and infinity; the values as NumPy arrays of bits."""
        random = numpy.random.default_rng(seed)
        exponent = {"f32": 0x7F800000, "f16": 0x7C00, "bf16": 0x7F80}[self.dtype]
        made = []
        for address, elems in zip(self.sources, self.sizes):
            bits = random.integers(0, 1 << (8 * kernels.WIDTHS[self.dtype]), elems, dtype=_BITS[self.dtype])
            bits[(bits & exponent) == exponent] = 1
            driver.call("cuMemcpyHtoD_v2", address, bits.ctypes.data, bits.nbytes)
            made.append(bits)
        return made

    def poison(self) -> None:
        """A known byte in every place of the buffer."""
        host = numpy.full(self.buffer_bytes, _POISON, numpy.uint8)
        driver.call("cuMemcpyHtoD_v2", self.buffer, host.ctypes.data, host.nbytes)

    def wrong_in_buffer(self, values: list[Any], factor: float) -> int:
        """Bytes of the buffer, gaps included, that are not what packing `values` with a factor must give."""
        expected = numpy.full(self.buffer_bytes, _POISON, numpy.uint8)
        for offset, bits in zip(self.offsets, values):
            expected[offset : offset + bits.nbytes] = scaled(bits, factor, self.dtype).view(numpy.uint8)
        found = numpy.empty(self.buffer_bytes, numpy.uint8)
        driver.call("cuMemcpyDtoH_v2", found.ctypes.data, self.buffer, found.nbytes)
        return int((found != expected).sum())

    def wrong_in_sources(self, values: list[Any]) -> int:
        """Bytes of the sources that are not these values."""
        wrong = 0
        for address, bits in zip(self.sources, values):
            found = numpy.empty_like(bits)
            driver.call("cuMemcpyDtoH_v2", found.ctypes.data, address, found.nbytes)
            wrong += int((found.view(numpy.uint8) != bits.view(numpy.uint8)).sum())
        return wrong

    def free(self) -> None:
        """Gives the memory back."""
        for address in (*self._memory, self.buffer):
            driver.call("cuMemFree_v2", address)


def scaled(bits: Any, factor: float, dtype: str) -> Any:
    """Values times a factor, in float32 and rounded to nearest even: as bits."""
    single = numpy.float32(factor)
    with numpy.errstate(over="ignore", under="ignore"):
        if dtype == "f32":
            return (bits.view(numpy.float32) * single).view(numpy.uint32)
        if dtype == "f16":
            wide = bits.view(numpy.float16).astype(numpy.float32) * single
            return wide.astype(numpy.float16).view(numpy.uint16)
        wide = ((bits.astype(numpy.uint32) << 16).view(numpy.float32) * single).view(numpy.uint32)
        return ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(numpy.uint16)


def all_sizes() -> list[int]:
    """Of all 161, in the order in which backward makes them."""
    return resnet50.gradient_sizes()
