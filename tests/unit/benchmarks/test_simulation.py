"""The tables of the simulator: what they ask, and what they make of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from rows import between_hosts
from simulation import tables
from simulation.tool import GOODPUT, Machines, Simulator

TWO = Machines(2, 1, 1.0)


class Answers(Simulator):
    """A simulator that says the same of every question of a kind, and keeps what it was asked."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[Any, ...]] = []

    def ask(self, machines: Machines, *question: object, text: str = "") -> dict[str, Any]:
        self.asked.append((*question, text))
        return self.answers[str(question[0])]


def test_a_link_carries_less_than_its_rate() -> None:
    assert Machines(2, 4, 10.0).bytes_per_s == pytest.approx(1.25e9 * GOODPUT)
    assert Machines(2, 4, 10.0, {"bytes_per_s": 5.0}).bytes_per_s == 5.0


def test_a_share_is_the_bound_by_the_time() -> None:
    needed_s = between_hosts.least_bytes("allreduce", 1 << 20, 2, 1) / TWO.bytes_per_s
    answer = {"seconds": 4 * needed_s, "messages": 7, "link_bytes": 1 << 20, "connections": 1}
    simulator = Answers(**dict.fromkeys(between_hosts.OPERATIONS, answer))
    rows = [line for line in tables.collectives(simulator, TWO, [1 << 20]) if line.startswith("| allreduce")]
    assert len(rows) == 1 and "| 0.250 | 7 | 1.000 | 1 |" in rows[0]


def test_gradients_come_in_the_order_of_the_backward_pass() -> None:
    simulator = Answers(step={"seconds": 0.5, "batches": 3})
    speeds = dict.fromkeys(tables.PICTURES_PER_S, tables.BATCH / 0.25)
    lines = list(tables.scaling(simulator, [TWO], speeds))
    assert sum("| 0.500 |" in line for line in lines) == 4
    for question in simulator.asked:
        times, sizes = zip(*(map(float, line.split()) for line in question[-1].splitlines()))
        assert list(times) == sorted(times) and times[0] >= 0.25 / 3 and times[-1] == pytest.approx(0.25)
        assert question[:2] == ("step", 0.25) and sizes[0] == 4 * 1000  # the bias of the last layer


def test_steps_have_columns_for_each_link_and_what_was_published() -> None:
    simulator = Answers(step={"seconds": 1.0, "batches": 3})
    links = [Machines(128, 4, gbit) for gbit in (10.0, 25.0)]
    head, _, *rows = tables.scaling(simulator, links, tables.PICTURES_PER_S)
    assert "step at 10 Gbit/s" in head and "step at 25 Gbit/s" in head and head.endswith("| published, 25 Gbit/s |")
    last = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[-1].removesuffix(" |") for row in rows}
    assert last == {"ResNet-50": "-", "ResNet-101": "0.90", "Inception V3": "0.90", "VGG-16": "0.68"}
    assert all(row.count("|") == head.count("|") for row in rows)
    assert len(simulator.asked) == 2 * len(rows)
