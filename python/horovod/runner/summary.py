"""What became of a job that ended well, in one line. Pure.

Used by `cli`.
"""

from __future__ import annotations

from collections.abc import Sequence

from horovod.runner.supervising.report import Exit


def summary(exits: Sequence[Exit]) -> str:
    """Ranks, hosts, time, and the peak memory of the rank that took most.

    Args:
        exits: of all ranks, at least one.
    """
    hosts = len({ended.hostname for ended in exits})
    took_s = max(ended.at_s - ended.started_s for ended in exits)
    text = f"{_count(len(exits), 'rank')} on {_count(hosts, 'host')} finished successfully after {took_s:.1f} s"
    largest = max(exits, key=lambda ended: ended.peak_bytes)
    if not largest.peak_bytes:
        return f"{text}."
    whose = f"; rank {largest.rank} took most memory, " if len(exits) > 1 else "; it took "
    return f"{text}{whose}{_size(largest.peak_bytes)} at its peak."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):.1f} GiB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.0f} MiB"
