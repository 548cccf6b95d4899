"""Which cases of a matrix a run tries: a twentieth that a seed chooses, or all of them.

HVD_TEST_MATRIX=full wants all (`make matrices`); HVD_TEST_MATRIX_SEED chooses others, and makes up others.
"""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

FULL: Final = os.environ.get("HVD_TEST_MATRIX", "") == "full"
SEED: Final = os.environ.get("HVD_TEST_MATRIX_SEED", "1")
_SHARE: Final = 20


def chosen(name: str, total: int) -> list[str]:
    """The seeds of the cases to be tried, from which each is made up: the same in every process of a run.

    Args:
        name: of the matrix.
        total: cases that it has.
    """
    numbers = list(range(total))
    if not FULL:
        numbers = sorted(random.Random(f"{name}/{SEED}").sample(numbers, max(1, total // _SHARE)))
    return [f"{name}-{SEED}-{number}" for number in numbers]


def cases(name: str, total: int) -> pytest.MarkDecorator:
    """Parametrizes a test by `seed`."""
    return pytest.mark.parametrize("seed", chosen(name, total))
