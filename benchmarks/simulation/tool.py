"""The simulator as a function: one question, one answer. Used by the tables; builds nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Of what a link carries, TCP over Ethernet frames of 1,500 bytes leaves so much to the program.
GOODPUT = 0.941


@dataclass(frozen=True)
class Machines:
    """Hosts, and the links between them.

    Attributes:
        hosts: how many.
        locals: ranks of each.
        gbit: of a host's link in each direction, shared by its ranks.
        costs: further costs by their names in costs.h; the rest as there.
    """

    hosts: int
    locals: int
    gbit: float
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.hosts * self.locals

    @property
    def bytes_per_s(self) -> float:
        """What a program gets through a link, in each direction."""
        return float(self.costs.get("bytes_per_s", self.gbit / 8 * 1e9 * GOODPUT))

    def __str__(self) -> str:
        return f"{self.hosts} x {self.locals}, {self.gbit:g} Gbit/s"


class Simulator:
    """Asks the program.

    Args:
        program: `simulate`, as CMake builds it with -DHVD_BENCHMARKS=ON.
    """

    def __init__(self, program: Path) -> None:
        self._program = program

    def ask(self, machines: Machines, *question: object, text: str = "") -> dict[str, Any]:
        """The answer to a question (see main.cc).

        Args:
            machines: that are simulated.
            question: its words.
            text: for its standard input.

        Raises:
            subprocess.CalledProcessError: it refused; what it said is on standard error.
        """
        costs = {**machines.costs, "bytes_per_s": machines.bytes_per_s}
        words = [f"{machines.hosts}x{machines.locals}", *(f"{name}={value!r}" for name, value in costs.items())]
        done = subprocess.run(
            [str(self._program), *words, *map(str, question)], input=text, stdout=subprocess.PIPE, text=True, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
