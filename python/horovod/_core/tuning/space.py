"""The grid of parameters that a tuner may try. Pure. Used by `search` and by the callers that start a tuner.

Each dimension is one parameter with its values in an order in which neighbours are alike; a coordinate is the place of
a value in it, from 0 to 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from horovod._core.settings import Settings
from horovod._core.tuning.parameters import Parameters

_THRESHOLDS: Final = (0, *(1 << bits for bits in (16, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28)))
_CYCLES_MS: Final = (0.0, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAYS: Final = ("hierarchical_allreduce", "hierarchical_allgather")
_SPREAD: Final = (0.2, 0.5, 0.8)


class Dimension(NamedTuple):
    """One parameter, and its values in order."""

    name: str
    values: tuple[Any, ...]


def free_dimensions(settings: Settings, layout: tuple[int, int, int]) -> list[Dimension]:
    """What a tuner may change: what nobody has set, and what has a meaning here.

    Args:
        settings: of the job.
        layout: ranks, ranks on this host, hosts.
    """
    size, local_size, hosts = layout
    if size < 2:
        return []
    found = [Dimension("fusion_threshold_bytes", _THRESHOLDS), Dimension("cycle_time_ms", _CYCLES_MS)]
    if hosts > 1 and local_size > 1 and size == local_size * hosts and not settings.deterministic:
        found += [Dimension(name, (False, True)) for name in _WAYS]
    pinned = {dimension.name for dimension in found if settings.source(dimension.name) != "default"}
    if settings.torus_allreduce:
        pinned.add("hierarchical_allreduce")
    return [dimension for dimension in found if dimension.name not in pinned]


class Space:
    """All combinations of the free parameters; the others stay.

    Args:
        start: the parameters in force; a way that the topology decides counts as on, which is what it decides.
        dimensions: from `free_dimensions`.
    """

    def __init__(self, start: Parameters, dimensions: Sequence[Dimension]) -> None:
        names = {dimension.name for dimension in dimensions}
        self.start = replace(start, **{name: True for name in _WAYS if name in names and getattr(start, name) is None})
        self._dimensions = [
            Dimension(name, tuple(sorted({*values, getattr(self.start, name)}))) for name, values in dimensions
        ]
        self.points = [
            replace(start, **dict(zip((name for name, _ in self._dimensions), values)))
            for values in itertools.product(*(dimension.values for dimension in self._dimensions))
        ]

    def coordinates(self, point: Parameters) -> tuple[float, ...]:
        """Where a point stands, from 0 to 1 in each dimension."""
        values = asdict(point)
        return tuple(
            dimension.values.index(values[dimension.name]) / max(1, len(dimension.values) - 1)
            for dimension in self._dimensions
        )

    def first_points(self) -> list[Parameters]:
        """The start, and three that are spread over the grid: what one dimension has low the next has high."""
        found = [self.start]
        for share in _SPREAD:
            values = {
                name: values[round((share if index % 2 == 0 else 1 - share) * (len(values) - 1))]
                for index, (name, values) in enumerate(self._dimensions)
            }
            found.append(replace(self.start, **values))
        return list(dict.fromkeys(found))

    def untried(self, tried: Collection[Parameters]) -> list[Parameters]:
        """The points that are not among these."""
        return [point for point in self.points if point not in tried]
