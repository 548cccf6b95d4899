"""What a fault is: a value that the runner writes down and the ranks carry out themselves, so that it happens where it
is meant to, on whatever host the rank runs.

Ranks are told of all faults of a case; who is meant strikes, once per job.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from jobs.report import VARIABLE

# Where in the life of a rank, and what `when` counts there.
OF_STEPS: Final = ("between", "reduce", "save", "compare")  # the step of the training
OF_ENTRY: Final = ("meet", "start", "sync", "reset")  # the epoch that begins
OF_LEAVING: Final = ("restore", "ask")  # the epoch that ends
OF_WORKERS: Final = ("come", "end")  # the worker's number: before hvd.init(), and instead of hvd.shutdown()
PHASES: Final = (*OF_STEPS, *OF_ENTRY, *OF_LEAVING, *OF_WORKERS)
# What happens to a rank. After the first ones it is dead, after the next it lives on.
DEADLY: Final = ("KILL", "SEGV", "ABRT", "STOP")
HARMLESS: Final = ("PAUSE", "SLOW")
OWN_MISTAKE: Final = ("RAISE", "EXIT", "MISMATCH")  # of the program: ends the job

CASE_VARIABLE: Final = "CHAOS_CASE"
_MARK: Final = "fault-"


class Fault(NamedTuple):
    """A fault.

    Attributes:
        phase: one of PHASES.
        when: which time, as PHASES says.
        who: "first", "middle" or "last", a number of a rank, several of them with "+", or "all".
        what: one of DEADLY, HARMLESS or OWN_MISTAKE.
    """

    phase: str
    when: int
    who: str
    what: str = "KILL"

    def claims(self, rank: int, size: int) -> list[str]:
        """The words by which this rank is meant: none, if it is not."""
        if self.who == "all":
            return [str(rank)]
        names = {"first": 0, "middle": size // 2, "last": size - 1}
        return [word for word in self.who.split("+") if names.get(word, word) in (rank, str(rank))]

    def __str__(self) -> str:
        return f"{self.what} of {self.who} in {self.phase} {self.when}"


class Orders(NamedTuple):
    """What the ranks of a case are told.

    Attributes:
        faults: all of the case.
        seed: makes up faults of every epoch; "": none.
        number: so many faults and acts must have happened before the training ends.
        size: so many ranks, too.
        steps: the least steps.
        binding: a framework; see `bindings`.
    """

    faults: tuple[Fault, ...] = ()
    seed: str = ""
    number: int = 0
    size: int = 1
    steps: int = 24
    binding: str = "numpy"

    def as_text(self) -> str:
        """For the variable CASE_VARIABLE."""
        return json.dumps(self._asdict())


def orders() -> Orders:
    """What this rank was told."""
    told = json.loads(os.environ[CASE_VARIABLE])
    return Orders(**{**told, "faults": tuple(Fault(*each) for each in told["faults"])})


def strike_once(key: str) -> bool:
    """True for the first process of the job that asks: this fault is its own."""
    try:
        Path(os.environ[VARIABLE], f"{_MARK}{key}").open("x").close()
    except FileExistsError:
        return False
    return True


def note_act(folder: Path, number: int) -> None:
    """Something has been done around the ranks of the job: it counts as what they do themselves."""
    (folder / f"{_MARK}act-{number}").touch()


def struck(folder: Path) -> int:
    """How many faults have happened so far, and acts."""
    return sum(name.startswith(_MARK) for name in os.listdir(folder))
