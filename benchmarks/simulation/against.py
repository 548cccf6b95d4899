"""Simulated times beside those that `over_hosts.py` has measured. Reads its second table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from contenders import on_hosts

from simulation.tool import Machines, Simulator

_LINE = re.compile(r"\| (\w+) (\d+) (B|KB|MB) \| (?P<who>[^|]+) \| (?P<us>[\d,.]+) \|")
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20}
_WAYS = {on_hosts.OURS: "", on_hosts.FLAT: "flat"}


def compare(simulator: Simulator, machines: Machines, measured: Iterable[str]) -> Iterator[str]:
    """A line for each row of ours, and how many of them are near.

    Args:
        simulator: the program.
        machines: what was measured on.
        measured: lines of that report.
    """
    yield "| | measured | simulated | simulated / measured |\n|---|---|---|---|"
    near = rows = 0
    for line in measured:
        found = _LINE.match(line)
        if found is None or found["who"] not in _WAYS:
            continue
        size, seconds = int(found[2]) * _UNITS[found[3]], float(found["us"].replace(",", "")) / 1e6
        simulated = float(simulator.ask(machines, found[1], size, *_WAYS[found["who"]].split())["seconds"])
        ratio = simulated / seconds
        rows += 1
        near += 0.8 <= ratio <= 1.2
        row = f"{found[1]} {found[2]} {found[3]}, {found['who']}"
        yield f"| {row} | {seconds * 1e6:,.0f} us | {simulated * 1e6:,.0f} us | {ratio:.2f} |"
    yield f"\n{near} of {rows} rows are within 20 %."
