"""The limit of whoever copies: every rank copies as many bytes between two private buffers, and nobody talks. Used
through `library`.
"""

from __future__ import annotations

import os

import numpy as np

from contenders.library import Library, Prepared, zeros


class Copy(Library):
    """Not a peer; the yardstick of the machine."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["BENCH_RANK"]), int(os.environ["BENCH_SIZE"])
        self.versions = f"numpy {np.__version__} copyto"

    def collective(self, operation: str, elems: int, variant: str) -> Prepared:
        """Any operation is a copy of the input."""
        source, target = zeros(elems), zeros(elems)
        return Prepared([source], lambda: np.copyto(target, source), lambda _: [target])


def make(flavour: str) -> Library:
    """Needs BENCH_RANK and BENCH_SIZE in the environment."""
    return Copy()
