"""Packing many tensors into one buffer, with a factor, in one launch of a kernel of ours; and unpacking.

Run by `run_all`. The limit is the driver's copy of as many bytes in one piece; the peers are a copy for each tensor,
the driver's batched copy, and torch's own ways. Two sets of tensors take turns, so that the device's cache holds less.
"""

from __future__ import annotations

import ctypes
import functools
import time
from ctypes import byref, c_float, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Callable

import driver
import gradients
import kernels
import libraries
from gradients import Gradients
from table import Table, middle, number, quartiles, spread
from timing import Gate, alternated

_DTYPES = ("f32", "f16", "bf16")
_US = 1e6
_BITS_OF_NVRTC = 'extern "C" __global__ void f(float* a, float s, int n) { int i = threadIdx.x; if (i < n) a[i] *= s; }'


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    driver.attach()
    gate = Gate()
    made: list[Callable[[], Table]] = [lambda: _checks(gate)]
    for dtype in _DTYPES:
        made.append(functools.partial(_times, gate, dtype, gradients.all_sizes(), "all 161 gradients"))
    made.append(lambda: _times(gate, "f32", gradients.small_sizes(), "the 115 gradients of up to 64 KB"))
    return [*made, lambda: _unrolls(gate), lambda: _over_the_bus(gate), _compilers]


def _kernel(shape: kernels.Shape) -> c_void_p:
    return driver.function(driver.load(kernels.packing(shape)), "pack")


class _Packer:
    """The kernel bound to moves; `table`: memory (there already), parameters, copied (before each launch) or host
    (read over the bus by the kernel)."""

    def __init__(self, shape: kernels.Shape, moves: list[tuple[int, int, int]], table: str, stream: c_void_p) -> None:
        if shape.flat:
            moves = kernels.split(moves, shape.chunk_bytes)
        text, blocks = kernels.entries(moves, shape.chunk_bytes)
        self.scale = c_float(1.0)
        self._text, self._stream = text, stream
        self._here, there = driver.allocate_host(len(text))
        ctypes.memmove(self._here, text, len(text))
        self._memory = driver.allocate(len(text))
        driver.call("cuMemcpyHtoD_v2", self._memory, self._here, len(text))
        first: Any = c_uint64(there if table == "host" else self._memory)
        if shape.in_parameters:
            room = shape.in_parameters * kernels.ENTRY_BYTES
            first = (ctypes.c_ubyte * room).from_buffer_copy(text.ljust(room, b"\0"))
        words = [first, c_uint32(len(moves)), self.scale]
        self._launch = driver.Launch(_kernel(shape), (blocks, kernels.THREADS), words, stream)
        self._copies = table == "copied"

    def __call__(self) -> None:
        if self._copies:
            driver.call("cuMemcpyHtoDAsync_v2", self._memory, self._here, len(self._text), self._stream)
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
            for where, shape in {
                "memory": kernels.Shape(dtype),
                "memory, flat": kernels.Shape(dtype, flat=True),
                "parameters": kernels.Shape(dtype, in_parameters=kernels.MANY_IN_PARAMETERS),
                "4 KB of parameters": kernels.Shape(dtype, in_parameters=kernels.FEW_IN_PARAMETERS),
            }.items():
                for factor in factors:
                    values = data.fill(len(made.rows))
                    data.poison()
                    pack = _Packer(shape, data.packing(), "memory", gate.stream)
                    pack.scale.value = factor
                    gate.measure(pack)
                    packed = data.wrong_in_buffer(values, factor)
                    gate.measure(_Packer(shape, data.unpacking(), "memory", gate.stream))
                    back = data.wrong_in_sources([gradients.scaled(bits, factor, dtype) for bits in values])
                    made.rows.append((dtype, f"{name}, table in {where}", f"{factor:.3g}", str(packed), str(back)))
            data.free()
    wrong = sum(row[3:] != ("0", "0") for row in made.rows)
    made.figures = {"cases": len(made.rows), "wrong": wrong}
    if not wrong:
        made.note = (
            f"{len(made.rows)} cases, no byte wrong: {', '.join(_DTYPES)}; {', '.join(c[0] for c in cases)}; table in "
            "memory, flat or not, and in parameters; factors 1, 1/2, 1/3 (all 161: 1/3); gaps between tensors stay "
            "untouched."
        )
        made.rows = []
    return made


def _turns(first: Callable[[], Any], second: Callable[[], Any]) -> Callable[[], Any]:
    works = [first, second]

    def run() -> None:
        works.reverse()
        works[0]()

    return run


def _works(data: Gradients, other_buffer: int, stream: c_void_p, left_out: set[str]) -> dict[str, Callable[[], Any]]:
    """Every way for one set of tensors; `left_out` takes up what is absent."""
    copy, moves = driver.bare("cuMemcpyDtoDAsync_v2"), data.packing()
    works: dict[str, Callable[[], Any]] = {
        "one copy of as many bytes": lambda: _good(copy(data.buffer, other_buffer, data.total_bytes, stream)),
        "a copy for each": lambda: [_good(copy(target, source, size, stream)) for source, target, size in moves],
    }
    plain, flat = kernels.Shape(data.dtype), kernels.Shape(data.dtype, flat=True)
    few = kernels.Shape(data.dtype, in_parameters=kernels.FEW_IN_PARAMETERS)
    many = kernels.Shape(data.dtype, in_parameters=kernels.MANY_IN_PARAMETERS)
    for name, shape, table in (
        ("kernel, table in memory", plain, "memory"),
        ("kernel, flat table in memory", flat, "memory"),
        ("kernel, table in 4 KB of parameters", few, "parameters"),
        ("kernel, table in 24 KB of parameters", many, "parameters"),
        ("kernel, table copied before", plain, "copied"),
        ("kernel, table in host memory", plain, "host"),
    ):
        works[name] = _Packer(shape, moves, table, stream)
    works["unpacking, table in memory"] = _Packer(plain, data.unpacking(), "memory", stream)
    for add in (_batched_copy, _torch_ways):
        try:
            works.update(add(data, stream))
        except (libraries.Missing, driver.CudaError) as error:
            left_out.add(str(error))
    return works


def _batched_copy(data: Gradients, stream: c_void_p) -> dict[str, Callable[[], Any]]:
    count = len(data.sizes)
    targets = (c_uint64 * count)(*[target for _, target, _ in data.packing()])
    sources, sizes = (c_uint64 * count)(*data.sources), (c_size_t * count)(*data.sizes_bytes)
    attributes, first, failed = driver.CopyAttributes(order=1), (c_size_t * 1)(0), c_size_t()
    call = driver.bare("cuMemcpyBatchAsync")

    def run() -> None:
        _good(call(targets, sources, sizes, count, byref(attributes), first, 1, byref(failed), stream))

    run()
    driver.call("cuStreamSynchronize", stream)
    return {"cuMemcpyBatchAsync": run}


def _torch_ways(data: Gradients, stream: c_void_p) -> dict[str, Callable[[], Any]]:
    try:
        import torch
    except ImportError as error:
        raise libraries.Missing(f"torch: {error}") from error
    if not torch.cuda.is_available():
        raise libraries.Missing("torch with CUDA")
    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[data.dtype]
    tensors = [torch.ones(size, dtype=dtype, device="cuda") for size in data.sizes]
    flat = torch.empty(sum(data.sizes), dtype=dtype, device="cuda")
    views = list(flat.split(data.sizes))
    torch.cuda.synchronize()
    current = torch.cuda.ExternalStream(stream.value)

    def cat() -> None:
        with torch.cuda.stream(current):
            torch.cat(tensors, out=flat)

    def foreach() -> None:
        with torch.cuda.stream(current):
            torch._foreach_copy_(views, tensors)

    return {"torch.cat(out=)": cat, "torch._foreach_copy_": foreach}


def _good(code: int) -> None:
    if code:
        raise driver.CudaError("a copy", code)


def _times(gate: Gate, dtype: str, sizes: list[int], what: str) -> Table:
    sets = [Gradients(sizes, dtype), Gradients(sizes, dtype)]
    for number_of_set, data in enumerate(sets):
        data.fill(number_of_set)
    left_out: set[str] = set()
    both = [_works(data, other.buffer, gate.stream, left_out) for data, other in zip(sets, reversed(sets))]
    contenders = {name: _turns(both[0][name], both[1][name]) for name in both[0]}
    samples = alternated(contenders, gate.measure, 31, 4)
    moved = 2 * sets[0].total_bytes
    limit_s = middle([s[1] for s in samples["one copy of as many bytes"]])
    made = Table(
        f"Packing {what}, {dtype}, {sets[0].total_bytes / 1e6:.2f} MB",
        ("how", "stream us", "GB/s read and written", "share of the copy rate", "host us"),
        note=f"Absent: {'; '.join(left_out)}." if left_out else "",
    )
    for name, values in samples.items():
        stream_s = [s[1] for s in values]
        share = number(limit_s / middle(stream_s))
        rate = number(moved / middle(stream_s) / 1e9)
        made.rows.append((name, spread(stream_s, _US), rate, share, spread([s[0] for s in values], _US)))
        made.figures[name] = {"stream_s": quartiles(stream_s), "host_s": quartiles([s[0] for s in values])}
    for data in sets:
        data.free()
    return made


def _unrolls(gate: Gate) -> Table:
    made = Table(
        "Packing all 161 gradients, f32: bytes in flight", ("16-byte pieces per thread", "blocks", "stream us")
    )
    sets = [Gradients(gradients.all_sizes(), "f32") for _ in range(2)]
    contenders, blocks = {}, {}
    for unroll in (1, 2, 4, 8):
        shape = kernels.Shape("f32", unroll)
        packers = [_Packer(shape, data.packing(), "memory", gate.stream) for data in sets]
        contenders[str(unroll)] = _turns(*packers)
        blocks[str(unroll)] = kernels.entries(sets[0].packing(), shape.chunk_bytes)[1]
    for name, values in alternated(contenders, gate.measure, 31, 4).items():
        made.rows.append((name, str(blocks[name]), spread([s[1] for s in values], _US)))
        made.figures[name] = quartiles([s[1] for s in values])
    return made


def _over_the_bus(gate: Gate) -> Table:
    """The kernel stores into pinned host memory, or loads from it, so that staging needs no copy of its own."""
    made = Table(
        "Packing into pinned host memory and back, f32",
        ("tensors", "how", "stream us", "GB/s over the bus", "host us"),
        note="Beside it: packing on the device, then one copy over the bus; and the reverse.",
    )
    for what, sizes in (("the 115 up to 64 KB", gradients.small_sizes()), ("all 161", gradients.all_sizes())):
        data = Gradients(sizes, "f32")
        shape = kernels.Shape("f32")
        here, there = driver.allocate_host(data.buffer_bytes)
        out = data.packing_to(there)
        back = [(target, source, size) for source, target, size in out]
        pack, unpack = (_Packer(shape, moves, "memory", gate.stream) for moves in (data.packing(), data.unpacking()))
        down = functools.partial(driver.bare("cuMemcpyDtoHAsync_v2"), here, data.buffer, data.buffer_bytes, gate.stream)
        up = functools.partial(driver.bare("cuMemcpyHtoDAsync_v2"), data.buffer, here, data.buffer_bytes, gate.stream)
        contenders = {
            "the kernel stores into host memory": _Packer(shape, out, "memory", gate.stream),
            "packed, then copied": lambda pack=pack, down=down: (pack(), down()),
            "the kernel loads from host memory": _Packer(shape, back, "memory", gate.stream),
            "copied, then unpacked": lambda unpack=unpack, up=up: (up(), unpack()),
        }
        for name, values in alternated(contenders, gate.measure, 21).items():
            stream_s, host_s = [s[1] for s in values], [s[0] for s in values]
            rate = number(data.total_bytes / middle(stream_s) / 1e9)
            made.rows.append((what, name, spread(stream_s, _US), rate, spread(host_s, _US)))
            made.figures[f"{what}, {name}"] = quartiles(stream_s)
        data.free()
        driver.call("cuMemFreeHost", here)
    return made


def _compilers() -> Table:
    """How long it takes to have a kernel: PTX by the driver, and source by NVRTC."""
    made = Table("From text to kernel", ("way", "ms: median (quartiles)"))
    texts = [kernels.packing(kernels.Shape(dtype)) for dtype in _DTYPES]
    samples: dict[str, list[float]] = {}
    for turn in range(9):
        begin = time.perf_counter()
        # The comment makes the text new: the driver keeps what it has compiled, on disk too.
        driver.call("cuModuleUnload", driver.load(f"// {time.time_ns()} {turn}\n{texts[turn % 3]}"))
        samples.setdefault("PTX, new to the driver", []).append(time.perf_counter() - begin)
        begin = time.perf_counter()
        driver.call("cuModuleUnload", driver.load(texts[turn % 3]))
        samples.setdefault("PTX that the driver has compiled before", []).append(time.perf_counter() - begin)
        try:
            begin = time.perf_counter()
            _compile_source(f"// {time.time_ns()}\n{_BITS_OF_NVRTC}")
            samples.setdefault("a small kernel's source by NVRTC, to PTX", []).append(time.perf_counter() - begin)
        except libraries.Missing as missing:
            made.note = str(missing)
    made.rows = [(name, spread(values, 1e3)) for name, values in samples.items()]
    made.figures = {name: quartiles(values) for name, values in samples.items()}
    return made


def _compile_source(source: str) -> None:
    library, _ = libraries.open_library("nvrtc")
    program = c_void_p()
    codes = [library.nvrtcCreateProgram(byref(program), source.encode(), b"f.cu", 0, None, None)]
    codes.append(library.nvrtcCompileProgram(program, 0, None))
    codes.append(library.nvrtcDestroyProgram(byref(program)))
    if any(codes):
        raise libraries.Missing(f"NVRTC failed: {codes}")
