"""`GradientNames`: the names of a reducer's gradients, and the calls of the lane that hold these names."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from horovod._core.operations.lane_calls import LaneCall

__all__ = ["GradientNames"]


class GradientNames:
    """See the module.

    Attributes:
        by_key: the names.
        lane_calls: for dense gradients that travel alone and as they are, by key.
    """

    def __init__(self, by_key: dict[Hashable, str]) -> None:
        self.by_key: Final = by_key
        self.lane_calls: Final[dict[Hashable, LaneCall]] = {}
        self._kept: dict[str, LaneCall] = {}  # those of names that no gradient has now

    def rename(self, names: Mapping[Any, str]) -> None:
        """Gives gradients other names, from the next step on. The calls are kept, as names come back."""
        for key, name in names.items():
            before = self.by_key[key]
            if name == before:
                continue
            self.by_key[key] = name
            if key in self.lane_calls:
                self._kept[before] = self.lane_calls.pop(key)
            if name in self._kept:
                self.lane_calls[key] = self._kept.pop(name)
