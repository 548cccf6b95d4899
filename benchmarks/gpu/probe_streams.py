"""torch's streams: how to learn which one is current, what ordering two streams costs, and whether a collective can be
captured into a CUDA graph.

Run by `run_all`. Needs torch with CUDA.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_int, c_size_t, c_void_p
from typing import Any, Callable

import driver
import libraries
import nccl
from table import Table, quartiles, spread
from timing import alternated, per_call_s

_CUDA = 2  # DLPack's number of the kind of device
_CAPSULE = b"dlpack_exchange_api"


class _ExchangeTable(ctypes.Structure):
    """DLPackExchangeAPI, version 1: what a tensor type offers to C code."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", c_void_p),
        ("allocate", c_void_p),
        ("from_object", c_void_p),
        ("to_object", c_void_p),
        ("view_of_object", c_void_p),
        ("current_work_stream", c_void_p),
    ]


class _View(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int),
        ("device", c_int),
        ("dimensions", c_int),
        ("dtype", ctypes.c_uint32),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("offset", ctypes.c_uint64),
    ]


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    try:
        import torch
    except ImportError as error:
        raise libraries.Missing(f"torch: {error}") from error
    if not torch.cuda.is_available():
        raise libraries.Missing("torch with CUDA")
    torch.zeros(1, device="cuda")
    driver.attach()
    return [lambda: _questions(torch), lambda: _ordering(torch), lambda: _capture(torch)]


def _exchange_table(torch: Any) -> _ExchangeTable:
    capsule = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        raise libraries.Missing("torch.Tensor.__dlpack_c_exchange_api__")
    if isinstance(capsule, int):
        return _ExchangeTable.from_address(capsule)
    ask = ctypes.pythonapi.PyCapsule_GetPointer
    ask.restype, ask.argtypes = c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _ExchangeTable.from_address(ask(capsule, _CAPSULE))


def _questions(torch: Any) -> Table:
    made = Table("Which stream is current: what the question costs", ("way", "us per call"))
    tensor, side = torch.zeros(1024, device="cuda"), torch.cuda.Stream()
    contenders: dict[str, Callable[[], Any]] = {
        "torch.cuda.current_stream().cuda_stream": lambda: torch.cuda.current_stream().cuda_stream,
        "torch._C._cuda_getCurrentRawStream(0)": lambda: torch._C._cuda_getCurrentRawStream(0),
        "tensor.data_ptr()": tensor.data_ptr,
        "tensor.get_device()": tensor.get_device,
        "tensor.is_cuda": lambda: tensor.is_cuda,
    }
    answers = {}
    try:
        table = _exchange_table(torch)
        made.note = f"The exchange table is of DLPack {table.major}.{table.minor}. "
        ask = ctypes.PYFUNCTYPE(c_int, c_int, ctypes.c_int32, ctypes.POINTER(c_void_p))(table.current_work_stream)
        found = c_void_p()
        contenders["the exchange table's current_work_stream"] = lambda: ask(_CUDA, 0, byref(found))
        view, look = _View(), ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(_View))(table.view_of_object)
        contenders["the exchange table's view of a tensor"] = lambda: look(tensor, byref(view))
        with torch.cuda.stream(side):
            answers["exchange table"] = (ask(_CUDA, 0, byref(found)), found.value == side.cuda_stream)
        answers["view"] = (look(tensor, byref(view)), view.data == tensor.data_ptr() and view.device_type == _CUDA)
    except libraries.Missing as missing:
        made.note = f"Absent: {missing}. "
    samples = alternated(contenders, functools.partial(per_call_s, calls=2000), 15)
    made.rows = [(name, spread(values, 1e6)) for name, values in samples.items()]
    made.figures = {name: quartiles(values) for name, values in samples.items()}
    with torch.cuda.stream(side):
        answers["raw stream"] = torch._C._cuda_getCurrentRawStream(0) == side.cuda_stream
    made.note += f"Right inside `with torch.cuda.stream(...)`: {answers}."
    return made


def _ordering(torch: Any) -> Table:
    """What it costs the host to make a stream wait for another one, twice per collective."""
    made = Table("Ordering torch's stream and ours: the host's time", ("what", "us"))
    ours, theirs = driver.stream(), c_void_p(torch.cuda.current_stream().cuda_stream)
    event = driver.event(driver.EVENT_DISABLE_TIMING)
    record, wait = driver.bare("cuEventRecord"), driver.bare("cuStreamWaitEvent")
    torch_event, side, tensor = torch.cuda.Event(), torch.cuda.Stream(), torch.zeros(1024, device="cuda")

    def there_and_back() -> None:
        record(event, theirs)
        wait(ours, event, 0)
        record(event, ours)
        wait(theirs, event, 0)

    contenders: dict[str, Callable[[], Any]] = {
        "cuEventRecord and cuStreamWaitEvent, there and back": there_and_back,
        "torch.cuda.Event.record": torch_event.record,
        "torch.cuda.Stream.wait_event": lambda: side.wait_event(torch_event),
        "torch.cuda.Stream.wait_stream": lambda: side.wait_stream(torch.cuda.current_stream()),
        "tensor.record_stream": lambda: tensor.record_stream(side),
        "torch.empty(25 MB, device=cuda), from the allocator's cache": lambda: torch.empty(6553600, device="cuda"),
    }
    samples = alternated(contenders, functools.partial(per_call_s, calls=200), 31)
    torch.cuda.synchronize()
    made.rows = [(name, spread(values, 1e6)) for name, values in samples.items()]
    made.figures = {name: quartiles(values) for name, values in samples.items()}
    return made


def _capture(torch: Any) -> Table:
    made = Table("Capture into a CUDA graph (torch.cuda.graph)", ("what is captured", "result"))
    communicator = nccl.join(1, nccl.unique_id(), 0)
    scaled = nccl.scaled_sum(ctypes.c_float(0.5), communicator)
    source, target = torch.full((1 << 20,), 3.0, device="cuda"), torch.zeros(1 << 20, device="cuda")

    def reduce(stream: c_void_p) -> None:
        words = (source.data_ptr(), target.data_ptr(), c_size_t(1 << 20), nccl.FLOAT32, scaled, communicator, stream)
        nccl.call("ncclAllReduce", *words)

    def on_side_stream(stream: c_void_p) -> None:
        ours, event = driver.stream(), driver.event(driver.EVENT_DISABLE_TIMING)
        driver.call("cuEventRecord", event, stream)
        driver.call("cuStreamWaitEvent", ours, event, 0)
        reduce(ours)
        driver.call("cuEventRecord", event, ours)
        driver.call("cuStreamWaitEvent", stream, event, 0)

    libc = ctypes.CDLL(None)
    semaphore = ctypes.create_string_buffer(64)
    libc.sem_init(semaphore, 0, 0)
    ring = ctypes.cast(libc.sem_post, c_void_p)

    def with_host_function(stream: c_void_p) -> None:
        reduce(stream)
        driver.call("cuLaunchHostFunc", stream, ring, ctypes.addressof(semaphore))

    def query_in_capture(stream: c_void_p) -> None:
        event = driver.event(driver.EVENT_DISABLE_TIMING)
        driver.call("cuEventRecord", event, stream)
        driver.call("cuEventQuery", event)

    def group_of_two(stream: c_void_p) -> None:
        nccl.call("ncclGroupStart")
        reduce(stream)
        reduce(stream)
        nccl.call("ncclGroupEnd")

    for name, work in {
        "ncclAllReduce on the captured stream": reduce,
        "ncclAllReduce on our stream, ordered by events": on_side_stream,
        "a group of two": group_of_two,
        "ncclAllReduce, then cuLaunchHostFunc": with_host_function,
        "cuEventQuery of a captured event": query_in_capture,
    }.items():
        target.zero_()
        torch.cuda.synchronize()
        made.rows.append((name, _captured(torch, work, target)))
    rings = ctypes.c_uint32.from_buffer(semaphore).value
    made.note = f"The host function was rung {rings} times; each graph was replayed three times. {_mark(torch)}"
    return made


def _captured(torch: Any, work: Callable[[c_void_p], None], target: Any) -> str:
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            work(c_void_p(torch.cuda.current_stream().cuda_stream))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        return f"replayed; the result is {'right' if bool((target == 1.5).all()) else f'{target[:2].tolist()}'}"
    except Exception as error:  # any refusal is the answer that is asked for
        return f"{type(error).__name__}: {str(error)[:300]}"


def _mark(torch: Any) -> str:
    """Whether cuStreamIsCapturing tells."""
    state = c_int()
    before = driver.bare("cuStreamIsCapturing")(c_void_p(torch.cuda.current_stream().cuda_stream), byref(state))
    return f"Outside a capture cuStreamIsCapturing returns {before} and says {state.value}."
