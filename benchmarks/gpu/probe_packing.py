"""Packing many tensors into one buffer, with a factor, in one launch of a kernel of ours; and unpacking.

Run by `run_all`. The limit is the driver's copy of as many bytes in one piece, the peer a copy for each tensor. Two
sets of tensors take turns, so that the device's cache holds less. What other tables, other compilers, torch's own ways
and a destination in host memory take stands in docs/gpu-measured.md.
"""

from __future__ import annotations

import functools
from ctypes import c_float, c_uint32, c_uint64, c_void_p
from typing import Any, Callable

import driver
import gradients
import kernels
from gradients import Gradients
from table import Table, middle, number, quartiles, spread
from timing import Gate, alternated

_DTYPES = ("f32", "f16", "bf16")
_LIMIT = "one copy of as many bytes"
_US = 1e6


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    driver.attach()
    gate = Gate()
    return [lambda: _checks(gate), *(functools.partial(_times, gate, dtype) for dtype in _DTYPES)]


class _Packer:
    """The kernel bound to moves; the table is in device memory."""

    def __init__(self, dtype: str, moves: list[tuple[int, int, int]], stream: c_void_p) -> None:
        text, blocks = kernels.entries(moves)
        self.scale = c_float(1.0)
        memory = driver.allocate(len(text))
        driver.call("cuMemcpyHtoD_v2", memory, text, len(text))
        kernel = driver.function(driver.load(kernels.packing(dtype)), "pack")
        words = [c_uint64(memory), c_uint32(len(moves)), self.scale]
        self._launch = driver.Launch(kernel, (blocks, kernels.THREADS), words, stream)

    def __call__(self) -> None:
        self._launch()


def _checks(gate: Gate) -> Table:
    made = Table(
        "Packing: results against NumPy, bit for bit (wrong bytes)",
        ("dtype", "tensors", "factor", "packed", "unpacked"),
    )
    odd = [1, 3, 7, 8, 9, 4095, 4096, 4097, 65537, 100003]
    several = (1.0, 0.5, 1 / 3)
    cases = [
        ("all 161", gradients.all_sizes(), 0, (1 / 3,)),
        ("odd sizes", odd, 0, several),
        ("odd sizes, not aligned", odd, 1, several),
    ]
    for dtype in _DTYPES:
        for name, sizes, skew, factors in cases:
            data = Gradients(sizes, dtype, skew)
            for factor in factors:
                values = data.fill(len(made.rows))
                data.poison()
                pack = _Packer(dtype, data.packing(), gate.stream)
                pack.scale.value = factor
                gate.measure(pack)
                packed = data.wrong_in_buffer(values, factor)
                gate.measure(_Packer(dtype, data.unpacking(), gate.stream))
                back = data.wrong_in_sources([gradients.scaled(bits, factor, dtype) for bits in values])
                made.rows.append((dtype, name, f"{factor:.3g}", str(packed), str(back)))
            data.free()
    made.figures = {"cases": len(made.rows), "wrong": sum(row[3:] != ("0", "0") for row in made.rows)}
    return made


def _turns(first: Callable[[], Any], second: Callable[[], Any]) -> Callable[[], Any]:
    works = [first, second]

    def run() -> None:
        works.reverse()
        works[0]()

    return run


def _works(data: Gradients, other_buffer: int, stream: c_void_p) -> dict[str, Callable[[], Any]]:
    """Every way for one set of tensors."""
    copy, moves = driver.bare("cuMemcpyDtoDAsync_v2"), data.packing()
    return {
        _LIMIT: lambda: _good(copy(data.buffer, other_buffer, data.total_bytes, stream)),
        "a copy for each": lambda: [_good(copy(target, source, size, stream)) for source, target, size in moves],
        "packing": _Packer(data.dtype, moves, stream),
        "unpacking": _Packer(data.dtype, data.unpacking(), stream),
    }


def _good(code: int) -> None:
    if code:
        raise driver.CudaError("a copy", code)


def _times(gate: Gate, dtype: str) -> Table:
    sets = [Gradients(gradients.all_sizes(), dtype) for _ in range(2)]
    for seed, data in enumerate(sets):
        data.fill(seed)
    both = [_works(data, other.buffer, gate.stream) for data, other in zip(sets, reversed(sets))]
    samples = alternated({name: _turns(both[0][name], both[1][name]) for name in both[0]}, gate.measure, 31, 4)
    limit_s = middle([s[1] for s in samples[_LIMIT]])
    made = Table(
        f"Packing all 161 gradients, {dtype}, {sets[0].total_bytes / 1e6:.2f} MB",
        ("how", "stream us", "GB/s read and written", "share of the copy rate", "host us"),
    )
    for name, values in samples.items():
        host_s, stream_s = [s[0] for s in values], [s[1] for s in values]
        rate = number(2 * sets[0].total_bytes / middle(stream_s) / 1e9)
        share = number(limit_s / middle(stream_s))
        made.rows.append((name, spread(stream_s, _US), rate, share, spread(host_s, _US)))
        made.figures[name] = {"stream_s": quartiles(stream_s), "host_s": quartiles(host_s)}
    for data in sets:
        data.free()
    return made
