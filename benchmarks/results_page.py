"""`make bench-page`: draws the page of results from what `make bench` or `make bench-full` has written. It measures
nothing.

    results_page.py [--report build/bench/report.json] [--faults build/bench/faults.json] [--output docs/results]

`--faults` is what `benchmarks/faults.py --json` writes; without that file the page has no picture of faults. The output
folder gets README.md and the SVG pictures. Needs Matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from contenders.peers import ROOT
from results import figures
from results.figures import Bars, Curves, Shares
from results.text import Picture, page

_KEYS = {"date", "revision", "machine", "setting", "shares", "runs"}


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    try:
        report = _read(asked.report)
        cells = _read(asked.faults) if asked.faults else None
        if not isinstance(report, dict) or not report.keys() >= _KEYS:
            raise ValueError(f"{asked.report} is no report of benchmarks/run_all.py; measure again (make bench).")
    except (OSError, ValueError) as error:
        print(f"results_page.py: {error}", file=sys.stderr)
        return 1
    pictures = pictures_of(report, cells)
    if not pictures:
        print(f"results_page.py: {asked.report} holds nothing to draw.", file=sys.stderr)
        return 1
    _draw(pictures, asked.output)
    (asked.output / "README.md").write_text(page(report, pictures, _way_to_docs(asked.output)))
    print(f"{asked.output / 'README.md'}: {len(pictures)} pictures")
    return 0


def _way_to_docs(output: Path) -> str:
    return os.path.relpath(ROOT / "docs", output) if output.resolve().is_relative_to(ROOT / "docs") else ".."


def pictures_of(report: dict[str, Any], cells: Optional[list[dict[str, Any]]]) -> list[Picture]:
    """All pictures that the figures suffice for."""
    shares = figures.shares(report)
    made = [Picture("shares.svg", shares)] if shares else []
    made += [Picture(f"{_file_name(curves.title)}.svg", curves) for curves in figures.curves(report)]
    for name, bars in (
        ("resnet50-step", figures.step(report)),
        ("training", figures.scaling(report)),
        ("faults", figures.faults(cells or [])),
    ):
        if bars:
            made.append(Picture(f"{name}.svg", bars))
    return made


def _draw(pictures: Sequence[Picture], folder: Path) -> None:
    from results import plots  # Matplotlib takes a second to load

    folder.mkdir(parents=True, exist_ok=True)
    draws: dict[type, Callable[..., None]] = {
        Shares: plots.draw_shares,
        Curves: plots.draw_curves,
        Bars: plots.draw_bars,
    }
    for picture in pictures:
        draws[type(picture.figure)](picture.figure, folder / picture.name)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error


def _file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = ROOT / "build" / "bench"
    default_faults = build / "faults.json" if (build / "faults.json").exists() else None
    made.add_argument("--report", type=Path, default=build / "report.json", help="JSON of benchmarks/run_all.py")
    made.add_argument("--faults", type=Path, default=default_faults, help="JSON of benchmarks/faults.py")
    made.add_argument("--output", type=Path, default=ROOT / "docs" / "results", help="folder of the page")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
