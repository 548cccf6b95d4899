"""Two ranks on one GPU: the bus between the device and host memory that both map and register.

Run by `run_all`. Rates are per process; "two at once" is the slower of two that run at the same time. What registering,
each other's device memory, events and words of the other process take stands in docs/gpu-measured-sharing.md.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Callable

import libraries
import staging_rank
from table import Table, middle, number, quartiles, size_label, spread

_SHARED = 256 << 20
_PIECE = 64 << 20
_ROUNDS, _SECONDS = 5, 0.15
_GB = 1e-9


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    libraries.open_library("driver")
    pair = _Pair()
    return [pair.rates, pair.pieces, pair.latencies]


class _Rank:
    """A process with a `staging_rank.Rank`; `run_all` ends it with the probe."""

    def __init__(self, shared: str) -> None:
        context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self._process = ProcessPoolExecutor(1, context, staging_rank.begin, (shared,))

    def start(self, name: str, *words: Any) -> Future[Any]:
        """Calls a method of the rank."""
        return self._process.submit(staging_rank.call, name, *words)

    def ask(self, name: str, *words: Any) -> Any:
        """What it returns."""
        return self.start(name, *words).result(60)


class _Pair:
    def __init__(self) -> None:
        shared = os.memfd_create("staging")
        os.ftruncate(shared, _SHARED)
        self._ranks = [_Rank(f"/proc/{os.getpid()}/fd/{shared}") for _ in range(2)]

    def _both(self, name: str, *words: Any) -> list[Any]:
        """Asks both at the same time."""
        return [each.result(60) for each in [rank.start(name, *words) for rank in self._ranks]]

    def rates(self) -> Table:
        columns = ("direction", "memory", "alone, GB/s", "two at once, each, GB/s", "share of the own pinned memory's")
        made = Table(f"Copies between device and host, pieces of {size_label(_PIECE)}", columns)
        cases = [(way, memory) for way in ("down", "up", "both") for memory in ("pinned", "shared", "plain")]
        samples: dict[tuple[str, str, int], list[float]] = {}
        for _ in range(_ROUNDS):
            for way, memory in cases:
                words = (way, memory, _PIECE, _SECONDS)
                samples.setdefault((way, memory, 1), []).append(self._ranks[0].ask("rate", *words))
                samples.setdefault((way, memory, 2), []).append(min(self._both("rate", *words)))
        names = {"pinned": "own, cuMemHostAlloc", "shared": "shared, registered", "plain": "own, not pinned"}
        words_of = {"down": "to the host", "up": "to the device", "both": "both, sum"}
        for way, memory in cases:
            alone, two = samples[way, memory, 1], samples[way, memory, 2]
            share = number(middle(alone) / middle(samples[way, "pinned", 1]))
            made.rows.append((words_of[way], names[memory], spread(alone, _GB), spread(two, _GB), share))
            made.figures[f"{way}, {memory}"] = {"alone": quartiles(alone), "two": quartiles(two)}
        return made

    def pieces(self) -> Table:
        made = Table(
            "Copies between device and shared registered memory, by size of the piece, one process",
            ("piece", "to the host, GB/s", "to the device, GB/s"),
        )
        for piece in (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
            samples: dict[str, list[float]] = {"down": [], "up": []}
            for _ in range(_ROUNDS):
                for way, values in samples.items():
                    values.append(self._ranks[0].ask("rate", way, "shared", piece, 0.05))
            made.rows.append((size_label(piece), *[spread(values, _GB) for values in samples.values()]))
            made.figures[size_label(piece)] = {way: quartiles(values) for way, values in samples.items()}
        made.note = "Four pieces are handed over, then waited for."
        return made

    def latencies(self) -> Table:
        """The floor of a small staged tensor, and what it is when the other process wants the GPU too."""
        made = Table("The time of one small copy, from the call to its end", ("size", "alone, us", "two at once, us"))
        for size in (4, 64 << 10):
            alone = self._ranks[0].ask("copy_times", 300, size)[20:]
            two = [sample for samples in self._both("copy_times", 300, size) for sample in samples[20:]]
            made.rows.append((size_label(size), spread(alone, 1e6), spread(two, 1e6)))
            made.figures[size_label(size)] = {"alone": quartiles(alone), "two": quartiles(two), "longest": max(two)}
        return made
