"""Two ranks on one GPU without NCCL: through host memory that both map and register, or through each other's device
memory.

Run by `run_all`. Rates are per process; "two at once" is the slower of two that run at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Callable

import libraries
from peer import Peer, both
from table import Table, middle, number, quartiles, size_label, spread

_SHARED = 256 << 20
_PIECE = 64 << 20
_ROUNDS, _SECONDS = 5, 0.15
_MS, _GB = 1e3, 1e-9


def parts() -> list[Callable[[], Table]]:
    """The tables; the two processes live as long as the function that makes them is referenced."""
    libraries.open_library("driver")
    pair = _Pair()
    return [pair.registration, pair.rates, pair.pieces, pair.latencies, pair.device_memory, pair.events, pair.words]


class _Pair:
    def __init__(self) -> None:
        self._descriptor = os.memfd_create("staging")
        os.ftruncate(self._descriptor, _SHARED)
        self._peers = [Peer("staging_rank", {}, [self._descriptor]) for _ in range(2)]
        both(self._peers, "map", self._descriptor, _SHARED)
        self._registered = False

    def registration(self) -> Table:
        made = Table(
            "cuMemHostRegister of shared memory (a memfd, mapped by two processes), per 100 MB",
            ("what", "ms per 100 MB"),
        )
        hundred = 100 * 1000 * 1000 // 4096 * 4096
        alone = self._peers[0].ask("register", hundred, 7)
        twice = both(self._peers, "register", hundred, 7)
        small = self._peers[0].ask("register", 1 << 20, 15)
        fresh = [self._peers[0].ask("register_fresh", hundred) for _ in range(5)]
        rows = {
            "register, touched pages": [taken[0] for taken in alone],
            "unregister": [taken[1] for taken in alone],
            "register, two processes at once (the slower)": [max(a[0], b[0]) for a, b in zip(*twice)],
            "register private memory that nobody has touched": fresh,
            "register 1 MB (ms in all)": [taken[0] for taken in small],
        }
        made.rows = [(name, spread(values, _MS)) for name, values in rows.items()]
        made.figures = {name: quartiles(values) for name, values in rows.items()}
        return made

    def _registered_pair(self) -> Sequence[Peer]:
        if not self._registered:
            both(self._peers, "keep_registered")
            self._registered = True
        return self._peers

    def rates(self) -> Table:
        columns = ("direction", "memory", "alone, GB/s", "two at once, each, GB/s", "share of the own pinned memory's")
        made = Table(f"Copies between device and host, pieces of {size_label(_PIECE)}", columns)
        peers = self._registered_pair()
        cases = [(way, memory) for way in ("down", "up", "both") for memory in ("pinned", "shared", "plain")]
        samples: dict[tuple[str, str, int], list[float]] = {}
        for _ in range(_ROUNDS):
            for way, memory in cases:
                words = (way, memory, _PIECE, _SECONDS)
                samples.setdefault((way, memory, 1), []).append(peers[0].ask("rate", *words))
                samples.setdefault((way, memory, 2), []).append(min(both(peers, "rate", *words)))
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
        peer = self._registered_pair()[0]
        for piece in (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20):
            samples: dict[str, list[float]] = {"down": [], "up": []}
            for _ in range(_ROUNDS):
                for way, values in samples.items():
                    values.append(peer.ask("rate", way, "shared", piece, 0.05))
            made.rows.append((size_label(piece), *[spread(values, _GB) for values in samples.values()]))
            made.figures[size_label(piece)] = {way: quartiles(values) for way, values in samples.items()}
        made.note = "Four pieces are handed over, then waited for."
        return made

    def device_memory(self) -> Table:
        made = Table("The other's device memory (cuIpcGetMemHandle)", ("what", "value"))
        peers = self._peers
        handle, taken = peers[0].ask("export_memory")
        opened = peers[1].ask("open_memory", handle, 5)
        right = peers[1].ask("foreign_bytes_right")
        back, _ = peers[1].ask("export_memory")
        peers[0].ask("open_memory", back, 1)
        made.rows = [
            ("making a handle", f"{number(taken * 1e6)} us"),
            ("opening it", f"{spread(opened, 1e3)} ms"),
            ("the bytes are those of the other", "yes" if right else "NO"),
        ]
        made.figures = {"open_s": opened, "right": right}
        for name, (method, *words) in {
            "copies within the own device memory": ("device_rate", "own"),
            "copies from the other's": ("device_rate", "other's"),
            "the processor's copies from shared memory, one thread": ("host_rate",),
        }.items():
            samples: list[tuple[float, float]] = []
            for _ in range(_ROUNDS):
                alone = peers[0].ask(method, *words, _PIECE, _SECONDS)
                samples.append((alone, min(both(peers, method, *words, _PIECE, _SECONDS))))
            texts = [spread([sample[k] for sample in samples], _GB) for k in (0, 1)]
            made.rows.append((f"{name}, alone", f"{texts[0]} GB/s copied"))
            made.rows.append((f"{name}, two at once, each", f"{texts[1]} GB/s copied"))
            made.figures[name] = samples
        return made

    def latencies(self) -> Table:
        """The floor of a small staged tensor, and what it is when the other process wants the GPU too."""
        made = Table("The time of one small step, from the call to its end", ("step", "alone, us", "two at once, us"))
        peers = self._registered_pair()
        for name, method, *words in (
            ("a stream writes a word, the processor sees it", "ring_times", 300),
            ("4 B copied to shared memory", "copy_times", 300, 4),
            ("64 KB copied to shared memory", "copy_times", 300, 64 << 10),
        ):
            alone = peers[0].ask(method, *words)[20:]
            two = [sample for samples in both(peers, method, *words) for sample in samples[20:]]
            made.rows.append((name, spread(alone, 1e6), spread(two, 1e6)))
            made.figures[name] = {"alone": quartiles(alone), "two": quartiles(two), "longest": max(two)}
        return made

    def words(self) -> Table:
        """Whether a word in shared memory goes between a stream here and a processor, or a stream, there."""
        made = Table("A word in shared registered memory", ("from", "to", "result"))
        first, second = self._registered_pair()
        first.ask("set_word", 0)
        first.ask("write_word", 1, 200)
        seen = second.ask("see_word", 1)
        made.rows.append(
            ("a stream's cuStreamWriteValue32", "the other's processor", f"seen after {seen * 1e3:.3g} ms")
        )
        for name, method in (("the processor", "set_word"), ("a stream's cuStreamWriteValue32", "write_word")):
            first.ask("set_word", 0)
            before = second.ask("wait_word", 2)
            first.ask(method, 2, *([1] if method == "write_word" else []))
            second.ask("finish")
            state = "waits before, goes on after" if before == 600 else f"did not wait: {before}"
            made.rows.append((name, "the other's stream, cuStreamWaitValue32", state))
        return made

    def events(self) -> Table:
        """Whether one process's stream can wait for the other's event."""
        made = Table("An event of the other process (cuIpcGetEventHandle)", ("what", "value"))
        peers = self._peers
        peers[1].ask("open_event", peers[0].ask("export_event"))
        answers: list[Any] = []
        for copies in (1, 200, 1000):
            peers[0].ask("copy_and_record", copies)
            before, waited = peers[1].ask("wait_for_other")
            answers.append((copies, before, waited))
            state = {0: "had happened", 600: "had not happened"}.get(before, str(before))
            made.rows.append(
                (f"after {copies} copies of 128 MB", f"{state}; our stream was done {waited * 1e3:.3g} ms later")
            )
        made.figures["waits"] = answers
        return made
