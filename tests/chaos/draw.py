"""Makes up the faults of an epoch from a seed: the same on all of its ranks, and again with the same seed. Pure.

Most epochs lose one rank; some several, some one more while the others recover from the first. Never all: somebody
keeps the state.
"""

from __future__ import annotations

import random

from .faults import OF_STEPS, Fault

_LONGEST_STEPS = 12  # from the beginning of a round to its faults
ROUND_STEPS = 2 * _LONGEST_STEPS
COMMIT_EVERY = 3

# Weights of the phases of the first fault of an epoch, and of those that meet the recovery from another.
_FIRST = {"between": 4, "reduce": 4, "save": 3, "compare": 3, "sync": 2, "meet": 2, "start": 2, "reset": 1}
_FURTHER = {"between": 2, "reduce": 1, "meet": 2, "start": 2, "sync": 2, "restore": 4, "ask": 4, "reset": 1}
_WHAT = {"KILL": 60, "SEGV": 8, "ABRT": 8, "PAUSE": 10, "SLOW": 12, "STOP": 2}
_DIES_ON_ARRIVAL = 0.05


def faults_of_epoch(seed: str, epoch: int, size: int, rounds: int) -> list[Fault]:
    """Of the epoch with this number and size; `when` of a step counts from where the round begins.

    Args:
        rounds: of ROUND_STEPS that the epoch has gone through, because nothing has ended it.
    """
    rng = random.Random(f"{seed}/{epoch}/{size}/{rounds}")
    number = min(rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 3)), size)
    found = []
    for nth, rank in enumerate(rng.sample(range(size), number)):
        phase = _one_of(rng, _FURTHER if nth else _FIRST)
        if rounds and not nth and phase not in OF_STEPS:
            phase = "between"  # the others do not come again
        what = _one_of(rng, _WHAT)
        if nth == size - 1 or (what == "STOP" and phase not in ("between", "save")):
            what = "SLOW"  # the last one stays; and who is stopped elsewhere costs the others long time-outs
        when = epoch
        if phase in ("between", "reduce"):
            when = rng.randrange(_LONGEST_STEPS)
        elif phase in ("save", "compare"):
            when = COMMIT_EVERY * rng.randrange(1, 1 + _LONGEST_STEPS // COMMIT_EVERY)
        found.append(Fault(phase, when, str(rank), what))
    return found


def dies_on_arrival(seed: str, worker: int) -> bool:
    """A process that has just been started ends before it has come to `hvd.init()`."""
    return random.Random(f"{seed}/worker/{worker}").random() < _DIES_ON_ARRIVAL


def _one_of(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]
