"""How all ranks learn that all of them are connected, from the messages of the ranks they are connected with. Pure.

A rank informs its parent in a tree once its children have informed it; the root then knows, and sends the news
down. Used by `members`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Optional


class Consent:
    """Up to the root, and down again to every rank that a rank is connected with: one that is not a child speaks only
    when it knows of all.

    Args:
        parent: None: this rank is the root.
        children: of this rank.
        connected: with this rank, these included.
    """

    def __init__(self, parent: Optional[int], children: Iterable[int], connected: Iterable[int]) -> None:
        self._up = frozenset() if parent is None else frozenset({parent})
        self._children = frozenset(children)
        self._connected = frozenset(connected)

    def due(self, heard: Collection[int]) -> frozenset[int]:
        """The ranks to inform once these have informed this rank, those included that were informed before."""
        if self.complete(heard):
            return self._connected
        return self._up if self._children.issubset(heard) else frozenset()

    def complete(self, heard: Collection[int]) -> bool:
        """Whether the messages of these ranks mean that all ranks are connected."""
        if not self._up:
            return self._children.issubset(heard)
        return not self._children.issuperset(heard)
