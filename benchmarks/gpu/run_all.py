"""`python benchmarks/gpu/run_all.py`: probes of what a GPU machine offers to the GPU backend; no build, no CUDA header.

    run_all.py [--only NAMES] [--output DIR]

Each probe runs in a process of its own with a time limit, so that one that fails or hangs does not take the others with
it. What is absent is skipped by name. Prints Markdown and writes it with a JSON of the same into the output folder
(build/bench/gpu). Exit code 1 if a probe failed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import libraries
from table import Table

_ROOT = Path(__file__).resolve().parent.parent.parent
# Name and limit in seconds, in order of worth.
_PROBES = {
    "packing": 120,
    "staging": 90,
    "engine": 230,
    "today": 110,
    "training": 250,
}


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    if asked.inside:
        _inside(asked.inside, asked.results)
        return 0
    parts = [f"# GPU probes, {datetime.date.today().isoformat()}", ""]
    tables: list[dict[str, Any]] = []
    failed = False
    for name in asked.only or _PROBES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        begin = time.monotonic()
        found, ended = _run(name)
        seconds = time.monotonic() - begin
        failed = failed or bool(ended) or any("failed" in made for made in found)
        parts += [f"## {name} ({seconds:.1f} s{f', {ended}' if ended else ''})", ""]
        parts += [made["markdown"] for made in found]
        tables += [{"probe": name, **made} for made in found]
        _write(asked.output, parts, tables)
    print("\n".join(parts))
    return 1 if failed else 0


def _run(name: str) -> tuple[list[dict[str, Any]], str]:
    """Runs one probe: its tables, and how it ended if not well."""
    with tempfile.TemporaryDirectory() as folder:
        results = os.path.join(folder, "tables")
        command = [sys.executable, "-B", os.path.abspath(__file__), "--inside", name, "--results", results]
        process = subprocess.Popen(command, start_new_session=True)
        ended = ""
        try:
            code = process.wait(_PROBES[name])
            ended = f"ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"stopped after {_PROBES[name]} s"
        # Its session holds whatever it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        lines = Path(results).read_text().splitlines() if os.path.exists(results) else []
        return [json.loads(line) for line in lines], ended


def _inside(name: str, results: str) -> None:
    """The process of one probe: writes every table as soon as it is made."""

    def keep(made: Table, **more: str) -> None:
        with open(results, "a") as file:
            file.write(json.dumps({**dataclasses.asdict(made), "markdown": made.markdown(), **more}) + "\n")

    try:
        parts = importlib.import_module(f"probe_{name}").parts()
    except libraries.Missing as missing:
        keep(Table(f"{name}: skipped", (), note=f"Absent: {missing}"))
        return
    except Exception:  # written down, and the other probes go on
        keep(Table(f"{name}: failed", (), note=_indented(traceback.format_exc())), failed=name)
        return
    for part in parts:
        begin = time.monotonic()
        try:
            keep(part())
        except libraries.Missing as missing:
            keep(Table(f"{name}: a part is skipped", (), note=f"Absent: {missing}"))
        except Exception:  # likewise
            keep(Table(f"{name}: a part failed", (), note=_indented(traceback.format_exc())), failed=name)
        print(f"  {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _write(folder: Path, parts: Sequence[str], tables: Sequence[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gpu.md").write_text("\n".join(parts))
    (folder / "gpu.json").write_text(json.dumps(tables, indent=1))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--only", nargs="+", choices=list(_PROBES), help="these probes only")
    made.add_argument("--output", type=Path, default=_ROOT / "build" / "bench" / "gpu", help="folder of the report")
    made.add_argument("--inside", choices=list(_PROBES), help=argparse.SUPPRESS)
    made.add_argument("--results", help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
