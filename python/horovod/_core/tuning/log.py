"""The rows of the CSV file of --autotune-log-file, in upstream's columns. Pure."""

from __future__ import annotations

from typing import Final, Optional

from horovod._core.tuning.parameters import Parameters

HEADER: Final = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score"
)


def row(point: Parameters, score: float, cache: bool, ways: bool) -> str:
    """One sample, or the result.

    Args:
        point: the parameters.
        score: bytes per second.
        cache: names are remembered.
        ways: what the topology decides of the ways: on where hosts have several ranks each.
    """

    def truth(value: Optional[bool], decided: bool = ways) -> str:
        return str(int(decided if value is None else value))

    return ",".join(
        (
            truth(point.hierarchical_allreduce),
            truth(point.hierarchical_allgather),
            truth(point.torus_allreduce, False),
            truth(cache),
            f"{point.cycle_time_ms:g}",
            str(point.fusion_threshold_bytes),
            f"{score / 1e6:.6g}",
        )
    )


def variables(point: Parameters, of: tuple[str, ...]) -> str:
    """What starts the next job with these parameters, as the environment has it.

    Args:
        point: the parameters.
        of: the names of those that were tuned.
    """
    names = {
        "fusion_threshold_bytes": "HOROVOD_FUSION_THRESHOLD",
        "cycle_time_ms": "HOROVOD_CYCLE_TIME",
        "hierarchical_allreduce": "HOROVOD_HIERARCHICAL_ALLREDUCE",
        "hierarchical_allgather": "HOROVOD_HIERARCHICAL_ALLGATHER",
    }
    return " ".join(f"{names[name]}={_text(getattr(point, name))}" for name in of)


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)
