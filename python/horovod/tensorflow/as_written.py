"""Keeps AutoGraph out of this package.

Whatever a `tf.function` calls AutoGraph rewrites, and all that this calls in turn: seconds of a first trace, for code
that decides nothing by a tensor's value. `tf.cond` and the like stand where something does.
"""

from __future__ import annotations

from typing import Any, Callable, TypeVar

import tensorflow as tf

__all__ = ["as_written"]

F = TypeVar("F", bound=Callable[..., Any])


def as_written(function: F) -> F:
    """Decorator of what scripts call inside a `tf.function`: it runs as it is written."""
    kept: F = tf.autograph.experimental.do_not_convert(function)
    return kept
