"""What a user could change, where a figure supports it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Optional

from horovod.runner.live.straggler import Straggler
from horovod.runner.live.table import Row

_LEAST_SECONDS: Final = 1.0  # of a period that says anything
_LITTLE: Final = 0.05  # of the time
_MUCH: Final = 0.2
_SMALL_BYTES: Final = 64 << 10  # of a tensor
_LARGE_BYTES: Final = 1 << 20  # of a batch
_FEW: Final = 1.5  # tensors in a batch
_LEAST_BATCHES: Final = 100
_LINES: Final = 3


def advice(rows: Sequence[Row], found: Optional[Straggler]) -> list[str]:
    """Sentences, the most useful first; at most three.

    Args:
        rows: of all ranks.
        found: the slowest rank, if there is one.
    """
    if len(rows) < 2 or max(row.seconds for row in rows) < _LEAST_SECONDS or not any(row.tensors for row in rows):
        return []
    lines = []
    if found is not None and found.is_idle:
        lines.append(f"Look at how rank {found.rank} gets its input: more loader workers, or a faster disk.")
    waiting = max(row.pending if found is not None and found.by_pending else row.waiting for row in rows)
    transferring = _mean([row.transferring for row in rows])
    tensors, batches = sum(row.tensors for row in rows), sum(row.batches for row in rows)
    nbytes = sum(row.nbytes for row in rows)
    if tensors and batches >= _LEAST_BATCHES and transferring >= _LITTLE:
        size, together = nbytes / tensors, tensors / batches
        if size < _SMALL_BYTES and together < _FEW:
            lines.append(
                f"Tensors are small ({_size(size)} on average) and travel alone ({together:.1f} in a batch): submit "
                "them asynchronously or as a group (hvd.grouped_allreduce, num_groups) so that they are fused."
            )
    if transferring >= _MUCH and batches and nbytes / batches >= _LARGE_BYTES:
        lines.append(
            f"{100 * transferring:.0f} % of the time is transfer, in batches of {_size(nbytes / batches)}: "
            "compression=hvd.Compression.fp16 or bf16 halves float32 gradients."
        )
    if not lines and waiting < _LITTLE and transferring < _LITTLE:
        share = waiting + transferring
        lines.append(f"Communication takes {100 * share:.1f} % of the time: there is nothing to gain here.")
    return lines[:_LINES]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _size(nbytes: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes:.0f} bytes"
