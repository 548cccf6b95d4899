"""What a process takes before it holds a tensor: GPU memory, host memory and time of the steps to a communicator.

Run by `run_all`. GPU memory is NVML's, of the whole GPU: it is right only if nobody else uses it.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any, Callable

import driver
import kernels
import libraries
import nccl
import nvml
from peer import Peer
from table import Table

_MB = 1e6


def parts() -> list[Callable[[], Table]]:
    """Each table in processes of its own: a process has only one first time."""
    nvml.used_bytes()
    made = [lambda: _steps("ours, without a framework", "bare"), lambda: _steps("with torch", "with_torch")]
    return [*made, _settings]


def _steps(title: str, method: str) -> Table:
    made = Table(f"Memory and time of the steps, {title}", ("step", "GPU memory, + MB", "host memory, + MB", "ms"))
    with Peer("probe_memory", {}) as peer:
        steps = peer.ask(method, timeout_s=90)
    for name, gpu, host, seconds in steps:
        made.rows.append((name, f"{gpu / _MB:.1f}", f"{host / _MB:.1f}", f"{seconds * 1e3:.1f}"))
    made.figures["steps"] = steps
    return made


# What may make a communicator smaller or its end quicker; the last is the 2.18 configuration's maxCTAs.
_SETTINGS: dict[str, dict[str, str]] = {
    "as it is": {},
    "NCCL_CUMEM_ENABLE=0": {"NCCL_CUMEM_ENABLE": "0"},
    "NCCL_NVLS_ENABLE=0": {"NCCL_NVLS_ENABLE": "0"},
    "NCCL_RAS_ENABLE=0": {"NCCL_RAS_ENABLE": "0"},
    "NCCL_BUFFSIZE=1048576": {"NCCL_BUFFSIZE": "1048576"},
    "NCCL_MAX_CTAS=4": {"NCCL_MAX_CTAS": "4"},
    "NCCL_WIN_ENABLE=0": {"NCCL_WIN_ENABLE": "0"},
    "maxCTAs=4 in the configuration": {"PROBE_MAX_CTAS": "4"},
}


def _settings() -> Table:
    steps = ("first", "second", "part, shared", "abort of the second", "destroy of the part", "destroy of the first")
    made = Table("A communicator with one member: GPU memory MB, and ms", ("setting", *steps))
    for name, variables in _SETTINGS.items():
        with Peer("probe_memory", {**variables, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "ALLOC"}) as peer:
            taken = peer.ask("life", timeout_s=60)
            said = peer.said()
        made.rows.append((name, *[f"{gpu / _MB:+.1f}, {seconds * 1e3:.1f}" for _, gpu, _, seconds in taken]))
        made.figures[name] = {"steps": taken, "said": said if name == "as it is" else ""}
    made.note = "The part is of ncclCommSplit with splitShare."
    return made


class Rank:
    """The process that takes the steps."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def bare(self) -> list[tuple[str, int, int, float]]:
        """Driver, context, module, communicators."""
        keep = self._kept.append
        return self._taken(
            {
                "cuInit and the primary context": driver.attach,
                "loading the packing kernel from PTX": lambda: keep(driver.load(kernels.packing(kernels.Shape("f32")))),
                "a stream and an event": lambda: keep((driver.stream(), driver.event())),
                "opening NCCL": nccl.opened,
                "the first communicator, one member": lambda: keep(nccl.join(1, nccl.unique_id(), 0)),
                "its first allreduce with a factor": lambda: _reduce(self._kept[-1]),
                "the second communicator": lambda: keep(nccl.join(1, nccl.unique_id(), 0)),
                "destroying both": lambda: [nccl.call("ncclCommDestroy", self._kept.pop()) for _ in range(2)],
            }
        )

    def life(self) -> list[tuple[str, int, int, float]]:
        """Communicators from begin to end, the first's share of the library taken out by a third before them."""
        driver.attach()
        nccl.call("ncclCommDestroy", nccl.join(1, nccl.unique_id(), 0))
        limit = os.environ.get("PROBE_MAX_CTAS")
        words = {"max_ctas": int(limit)} if limit else {}
        keep = self._kept

        def join() -> None:
            made, settings = ctypes.c_void_p(), nccl.config(True, **words)
            nccl.call("ncclCommInitRankConfig", ctypes.byref(made), 1, nccl.unique_id(), 0, ctypes.byref(settings))
            keep.append(made)

        def part() -> None:
            made, settings = ctypes.c_void_p(), nccl.config(True, share=1, **words)
            nccl.call("ncclCommSplit", keep[0], 0, 0, ctypes.byref(made), ctypes.byref(settings))
            keep.append(made)

        return self._taken(
            {
                "first": join,
                "second": join,
                "part": part,
                "abort": lambda: nccl.call("ncclCommAbort", keep.pop(1)),
                "destroy part": lambda: nccl.call("ncclCommDestroy", keep.pop()),
                "destroy first": lambda: nccl.call("ncclCommDestroy", keep.pop()),
            }
        )

    def with_torch(self) -> list[tuple[str, int, int, float]]:
        """torch first, then ours on the same context."""

        def tensor() -> None:
            import torch

            self._kept.append(torch.zeros(1, device="cuda"))

        def imported() -> None:
            __import__("torch")

        return self._taken(
            {
                "import torch": imported,
                "the first tensor": tensor,
                "our primary context": driver.attach,
                "a communicator, one member": lambda: self._kept.append(nccl.join(1, nccl.unique_id(), 0)),
            }
        )

    def _taken(self, steps: dict[str, Callable[[], Any]]) -> list[tuple[str, int, int, float]]:
        taken = []
        nvml.used_bytes()
        for name, step in steps.items():
            gpu, host, begin = nvml.used_bytes(), _resident_bytes(), time.perf_counter()
            step()
            seconds = time.perf_counter() - begin
            taken.append((name, nvml.used_bytes() - gpu, _resident_bytes() - host, seconds))
        return taken


def _reduce(communicator: ctypes.c_void_p) -> None:
    stream, memory = driver.stream(), driver.allocate(1 << 20)
    scaled = nccl.scaled_sum(ctypes.c_float(0.5), communicator)
    count = ctypes.c_size_t(1 << 18)
    nccl.call("ncclAllReduce", memory, memory, count, nccl.FLOAT32, scaled, communicator, stream)
    driver.call("cuStreamSynchronize", stream)


def _resident_bytes() -> int:
    with open("/proc/self/status") as file:
        line = next((line for line in file if line.startswith("VmRSS")), None)
    if line is None:
        raise libraries.Missing("VmRSS in /proc/self/status")
    return int(line.split()[1]) * 1024
