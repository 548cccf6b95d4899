"""The learning rates of warm-up and schedules, as plain functions of the epoch. Used by the callbacks of the Keras
modules and by users."""

from __future__ import annotations

from typing import Callable, Optional, Union

from horovod._core.errors import InvalidArgumentError

__all__ = ["momentum_correction", "multiplier_function", "scheduled_rate", "warmup_multiplier"]


def multiplier_function(
    multiplier: Union[float, Callable[[float], float]], start_epoch: float = 0
) -> Callable[[float], float]:
    """The factor of a schedule, as a function of the epoch.

    Args:
        multiplier: a function of the (fractional) epoch; or a number, which is raised to the epochs since
            `start_epoch`.
        start_epoch: first epoch of the schedule.
    """
    if callable(multiplier):
        return multiplier
    base = float(multiplier)
    return lambda epoch: base ** (epoch - start_epoch)


def warmup_multiplier(warmup_epochs: float, size: int) -> Callable[[float], float]:
    """The multiplier of a warm-up from rate / size (what one rank alone would use) to the full rate, linear in the
    epoch.

    Args:
        warmup_epochs: length, in epochs.
        size: number of ranks.
    """
    if not warmup_epochs > 0:
        raise InvalidArgumentError(f"warmup_epochs must be > 0. Received: {warmup_epochs!r}.")
    return lambda epoch: 1.0 / size * (1.0 + min(epoch, warmup_epochs) * (size - 1) / warmup_epochs)


def scheduled_rate(
    initial_lr: float,
    multiplier: Callable[[float], float],
    epoch: float,
    bounds: tuple[float, Optional[float]] = (0, None),
    staircase: bool = True,
) -> Optional[float]:
    """The rate for an epoch, or None outside of the schedule.

    Args:
        initial_lr: the rate that the multiplier scales.
        multiplier: from `multiplier_function` or `warmup_multiplier`.
        epoch: number of epochs done, with the fraction of the current one.
        bounds: (first epoch, end epoch); the end is exclusive, None = open.
        staircase: change at the start of an epoch only: the fraction does not count.
    """
    start, end = bounds
    whole = int(epoch)
    if whole < start or (end is not None and whole >= end):
        return None
    return initial_lr * multiplier(float(whole) if staircase else epoch)


def momentum_correction(momentum: float, old_lr: float, new_lr: float) -> float:
    """The momentum for the one step at which the rate changes, so that the velocity gathered so far keeps its effect
    (Goyal et al. 2017)."""
    return momentum * new_lr / old_lr if old_lr else momentum
