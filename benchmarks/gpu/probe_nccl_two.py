"""NCCL with two members on one GPU: whether and how it refuses, and by which setting tests can have them all the same.

Run by `run_all`. The kernels of two processes share a GPU in turns, so times say nothing about a reduction between
GPUs; results, aborts and losses do.
"""

from __future__ import annotations

from typing import Any, Callable

import libraries
import nccl
from peer import Peer, both
from table import Table, quartiles, size_label, spread

_SIZES = (4, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
# What each of the two members is told. NCCL compares hosts and GPUs: members that say to be on different hosts may
# have the same GPU, and talk through sockets.
_SETTINGS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "as it is": ({}, {}),
    "NCCL_MULTI_RANK_GPU_ENABLE=1": ({"NCCL_MULTI_RANK_GPU_ENABLE": "1"}, {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
    "a NCCL_HOSTID each": ({"NCCL_HOSTID": "first"}, {"NCCL_HOSTID": "second"}),
}
_LOUD = {"NCCL_DEBUG": "WARN"}


def parts() -> list[Callable[[], Table]]:
    """The tables."""
    nccl.opened()  # raises Missing before anything is started
    return [_refusal, _allowed, _abort, _lost]


def _pair(environments: tuple[dict[str, str], dict[str, str]]) -> tuple[Peer, Peer]:
    first, second = (Peer("nccl_rank", {**_LOUD, **environment}) for environment in environments)
    return first, second


def _joined(pair: tuple[Peer, Peer], blocking: bool) -> list[dict[str, Any]]:
    identity = pair[0].ask("identity")
    for rank, peer in enumerate(pair):
        peer.start("join", identity, rank, blocking, 20.0)
    return [peer.result(40) for peer in pair]


def _refusal() -> Table:
    made = Table(
        "NCCL: two processes on one GPU", ("setting", "rank", "code", "NCCL's words", "ready after ms", "it printed")
    )
    for name, environments in _SETTINGS.items():
        for blocking in (True, False):
            pair = _pair(environments)
            with pair[0], pair[1]:
                answers = _joined(pair, blocking)
                said = [peer.said() for peer in pair]
            for rank, answer in enumerate(answers):
                words = f"{answer['text']}; last error: '{answer['last_error']}'"
                setting = f"{name}, {'blocking' if blocking else 'non-blocking'}"
                ready = f"{answer['ready_s'] * 1e3:.0f}"
                made.rows.append((setting, str(rank), str(answer["code"]), words, ready, said[rank][:600]))
                made.figures[f"{setting}, rank {rank}"] = {**answer, "said": said[rank]}
    return made


def _willing() -> tuple[tuple[Peer, Peer], str]:
    """Two members that NCCL accepts, and the setting that made it do so."""
    texts = []
    for name, environments in _SETTINGS.items():
        pair = _pair(environments)
        answers = _joined(pair, True)
        if not any(answer["code"] for answer in answers):
            return pair, name
        texts += [answer["last_error"] for answer in answers]
        for peer in pair:
            peer.__exit__(None, None, None)
    raise libraries.Missing(f"two members on one GPU, which NCCL refuses here: {texts}")


def _allowed() -> Table:
    made = Table(
        "NCCL: allreduce of two processes on one GPU, in place",
        ("size", "us: median (quartiles)", "sum", "PreMulSum of 0.5"),
    )
    pair, setting = _willing()
    with pair[0], pair[1]:
        for size in _SIZES:
            sums = []
            for factor in (None, 0.5):
                for rank, peer in enumerate(pair):
                    peer.ask("prepare", size // 4, 1.5 + rank)
                both(pair, "reduce", 1, factor)
                expected = 4.0 if factor is None else 2.0
                values = both(pair, "values")
                sums.append("right" if values == [[expected] * 3 + [1.0]] * 2 else f"WRONG: {values}")
            both(pair, "prepare", size // 4, 0.0)
            taken = both(pair, "reduce", 30)[0][5:]
            made.rows.append((size_label(size), spread(taken, 1e6), *sums))
            made.figures[size_label(size)] = quartiles(taken)
        left = both(pair, "leave")
        made.figures["destroy_s"] = left
        made.note = f"{setting}. ncclCommDestroy took {max(left) * 1e3:.0f} ms."
    return made


def _abort() -> Table:
    made = Table("NCCL: abort of an allreduce to which the other member does not come", ("what", "value"))
    pair, setting = _willing()
    with pair[0], pair[1]:
        both(pair, "prepare", 1 << 20, 1.0)
        both(pair, "reduce", 3)
        report = pair[0].ask("reduce_and_abort", 0.5, timeout_s=30)
    made.rows = [(name, f"{value:.4g}") for name, value in report.items()]
    made.figures = report
    made.note = (
        f"{setting}. The abort comes from another thread 0.5 s after the call; stream_s counts from the call; error_s "
        "is when ncclCommGetAsyncError first told something."
    )
    return made


def _lost() -> Table:
    made = Table("NCCL: the same after the other process was killed", ("what", "value"))
    pair, setting = _willing()
    with pair[0]:
        with pair[1]:
            both(pair, "prepare", 1 << 20, 1.0)
            both(pair, "reduce", 3)
        report = pair[0].ask("reduce_and_abort", 0.5, timeout_s=30)
        made.note = f"{setting}. It printed: {pair[0].said()[-400:]}"
    made.rows = [(name, f"{value:.4g}") for name, value in report.items()]
    made.figures = report
    return made
