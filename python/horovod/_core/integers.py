"""What counts as an integer where users give one."""

from __future__ import annotations

import operator
from typing import Any, Optional

__all__ = ["as_integer"]


def as_integer(value: Any) -> Optional[int]:
    """The value as an int, if it is an integer; those of NumPy and other libraries are. None for anything else, and for
    a bool."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
