"""What a host discovery script prints over time, made up from a seed: nothing, rubbish, other hosts, too late. Pure.

The first run names three slots, because a job does not begin before; then come spans of trouble; the last span stays.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, Optional

RANKS = 3


class Run(NamedTuple):
    """One run of the script.

    Attributes:
        text: what it prints; None: it fails instead, with this `code`.
        noise: what it writes to stderr.
        takes_s: before it prints.
    """

    text: Optional[str]
    code: int = 0
    noise: str = ""
    takes_s: float = 0.0


class Outputs(NamedTuple):
    """The runs, of which the last one stays. `ends_well`: it names slots enough."""

    runs: tuple[Run, ...]
    ends_well: bool

    def run(self, number: int) -> Run:
        """The run of this number, from 0."""
        return self.runs[min(number, len(self.runs) - 1)]


def made_up(rng: random.Random, good: Sequence[str], others: Sequence[str]) -> Outputs:
    """The runs of a job.

    Args:
        rng: chance.
        good: outputs with slots enough.
        others: outputs that are right, and name too few, or what else there may be.
    """
    runs = [Run(good[0])]
    for _ in range(rng.randrange(1, 5)):
        runs += [Run(good[0])] * rng.choice((0, 0, 1, 2, 4))
        runs += _trouble(rng, good, others)
    ends_well = rng.random() < 0.75
    runs.append(Run(rng.choice(good if ends_well else ("", *others))))
    return Outputs(tuple(runs), ends_well)


def _trouble(rng: random.Random, good: Sequence[str], others: Sequence[str]) -> list[Run]:
    length = rng.choice((1, 1, 1, 2, 3, 5))
    kind = rng.choice(("empty", "empty", "other", "other", "rubbish", "code", "flapping", "late", "noise"))
    if kind == "empty":
        return [Run(rng.choice(("", "\n", "# nobody\n", "localhost:0\n")))] * length
    if kind == "other":
        return [Run(rng.choice((*others, *good))) for _ in range(length)]
    if kind == "rubbish":
        return [Run(_rubbish(rng)) for _ in range(length)]
    if kind == "code":
        return [Run(None, rng.choice((1, 3, 127)), "no answer\n")] * length
    if kind == "flapping":
        return [Run(""), Run(good[0])] * length
    if kind == "late":
        return [Run(rng.choice((*good, *others, "")), takes_s=rng.uniform(0.5, 3.0))]
    return [Run(good[0], noise=rng.choice(("Warning: b:7 is deprecated\n", "localhost:1\n", "+ echo\n")))] * length


def _rubbish(rng: random.Random) -> str:
    return rng.choice(
        (
            "Traceback (most recent call last):\n",
            "localhost\n",
            "localhost:3:3\n",
            "localhost:-1\n",
            "localhost:many\n",
            "-oProxyCommand=x:1\n",
            "".join(chr(rng.randrange(32, 0x2FFF)) for _ in range(40)) + "\n",
            "\x1b[31mlocalhost:3\x1b[0m\n",
        )
    )
