"""This checkout against another one of the same project, in alternating slices of one run: what a change costs or wins.

    compare.py CHECKOUT [--ranks 2] [--rounds 9] [--slice 0.2] [--only TEXT]

The other checkout must be built (`make build` in it). Prints a Markdown table: the medians of both, and the median and
the quartiles of the ratio of neighbouring slices (above 1: this checkout is faster).
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import peers
from harness.contest import Contest, Effort, Entry, Part
from harness.row import size_label
from harness.shares import ratios
from ranks import resnet50

_THIS, _OTHER = "this checkout", "the other"
_SIZES = (4, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20)


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for; 1 if a result was wrong or missing."""
    asked = _parser().parse_args(words)
    contenders = [_of(_THIS, peers.ROOT), _of(_OTHER, asked.checkout.resolve())]
    print("| | this, us | the other, us | other / this | quartiles |\n|---|---|---|---|---|", flush=True)
    sound = True
    with Contest(contenders, asked.ranks, Effort(asked.rounds, asked.slice)) as contest:
        for name, order in _orders():
            if asked.only in name:
                parts = [Part(side, "ours", side, order) for side in (_THIS, _OTHER)]
                entries = contest.measure(parts)
                print(_line(name, *entries), flush=True)
                sound = sound and not any(entry.void for entry in entries)
    return 0 if sound else 1


def _of(name: str, root: Path) -> peers.Contender:
    package = next(place for place in (root / "python", root) if (place / "horovod").is_dir())
    ours = peers.ours()
    return dataclasses.replace(ours, name=name, environment={**ours.environment, "PYTHONPATH": str(package)})


def _orders() -> list[tuple[str, dict[str, Any]]]:
    orders: list[tuple[str, dict[str, Any]]] = []
    for operation in ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter"):
        for size in _SIZES if operation == "allreduce" else _SIZES[1:]:
            order = {"task": "collective", "operation": operation, "elems": size // 4, "variant": ""}
            orders.append((f"{operation} {size_label(size)}", order))
    for name, small in (("the 115 gradients of up to 64 KB", True), ("ResNet-50 gradients", False)):
        sizes = resnet50.gradient_sizes(small_only=small)
        orders.append((name, {"task": "gradients", "mode": "async", "sizes": sizes}))
    models = {"64": "perceptron of 10 x 64", "256": "perceptron of 10 x 256", "resnet50": "ResNet-50"}
    for model, called in models.items():
        for variant in ("plain", "wrapped"):
            orders.append((f"step of {called}, {variant}", {"task": "train", "variant": variant, "model": model}))
    return orders


def _line(name: str, this: Entry, other: Entry) -> str:
    for entry in (this, other):
        if entry.void:
            return f"| {name} | {entry.label}: {entry.void} | | | |"
    found = ratios(this.slices, other.slices)
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    return f"| {name} | {this.median * 1e6:.2f} | {other.median * 1e6:.2f} | {middle:.2f} | {low:.2f} to {high:.2f} |"


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("checkout", type=Path, help="folder of the other checkout, built")
    made.add_argument("--ranks", type=int, default=2)
    made.add_argument("--rounds", type=int, default=9, help="recorded slices per checkout and row")
    made.add_argument("--slice", type=float, default=0.2, help="seconds of a slice")
    made.add_argument("--only", default="", metavar="TEXT", help="only rows whose name holds this")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
