"""The matrices: tests of which CI runs a twentieth, drawn from a seed, and `make matrices` all (marker `matrix`).

HVD_TEST_MATRIX=full runs the whole. HVD_TEST_SEED is the seed, and repeats what a run has drawn; without it each day
has its own, so that CI sees other cases every day and the second try of a failed test the same ones. The run prints it
at its end.
"""

from __future__ import annotations

import datetime
import os
import random

import pytest

_SHARE = 20
_WHOLE, _SEED = "HVD_TEST_MATRIX", "HVD_TEST_SEED"


def whole() -> bool:
    """Everything is to run."""
    value = os.environ.get(_WHOLE, "")
    if value not in ("", "full"):
        raise ValueError(f"{_WHOLE} is {value!r}; it may be 'full' or unset.")
    return value == "full"


def seed() -> int:
    """Of this run."""
    value = os.environ.get(_SEED) or str(datetime.date.today().toordinal())
    if not value.isdecimal():
        raise ValueError(f"{_SEED} is {value!r}; it must be a number.")
    return int(value)


def repeated() -> str:
    """The variables that repeat this run, as a shell takes them."""
    return f"{_SEED}={seed()}" + (f" {_WHOLE}=full" if whole() else "")


def cases(name: str, total: int) -> pytest.MarkDecorator:
    """Parametrizes a test by `case`: texts, equal in every process of a run, from each of which a case is made up.

    Args:
        name: of the matrix.
        total: cases that it has.
    """
    numbers = list(range(total))
    if not whole():
        numbers = sorted(random.Random(f"{name}/{seed()}").sample(numbers, max(1, total // _SHARE)))
    return pytest.mark.parametrize("case", [f"{name}-{seed()}-{number}" for number in numbers])
