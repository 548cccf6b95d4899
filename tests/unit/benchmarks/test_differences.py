"""The difference of things that took turns."""

from __future__ import annotations

import pytest
from harness.differences import difference


def test_few_great_ones_do_not_decide() -> None:
    base = [10.0 + number % 3 for number in range(100)]
    values = [one + 1 + 0.01 * (number % 5) for number, one in enumerate(base)]
    values[3] += 1e6
    values[50] -= 1e6
    middle, low, high = difference(values, base)
    assert 1 <= low <= middle <= high <= 1.05


def test_the_interval_is_the_book_s() -> None:
    # Of 20 values the 6th and the 15th bound the median with at least 95 %.
    assert difference([float(number) for number in range(20)], [0.0] * 20) == (9.5, 5, 14)


def test_too_few_rounds() -> None:
    with pytest.raises(ValueError, match="6 rounds"):
        difference([1.0] * 5, [1.0] * 5)
