"""How long a failure holds an elastic job up: kill -9 of one of 2, 4, 8, 16 ranks on this machine.

`python benchmarks/elastic_recovery.py [--ranks 2,4,8,16] [--kills 5] [--megabytes 0] [--steps]`. Measured from the kill
to the first finished collective of the slowest survivor, on the kernel's monotonic clock, in parts, each until the last
survivor has come there: it has noticed; it has its place in the next epoch; it is connected with all others; all
engines run; the first collective. The state is restored between the first and the second, which with a large state is
most of that, so its time is also reported apart, as is that of `sync`: both grow with the state, and are given as bytes
per second. The ranks are NumPy's, which train nothing: what is measured is this library's own time. More ranks than
cores take turns, so their figures are of that, too. With `--steps`: the same job's steps per second without a fault
beside the same without being elastic.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RANK = Path(__file__).parent / "ranks" / "elastic_rank.py"


PARTS = ("noticed", "placed", "connected", "running", "collective")


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", default="2,4,8,16", help="numbers of ranks")
    parser.add_argument("--kills", type=int, default=5, help="jobs with one kill each, per number of ranks")
    parser.add_argument("--megabytes", type=float, default=0.0, help="size of the state")
    parser.add_argument("--steps", action="store_true", help="steps per second, too")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores; medians of {args.kills}; milliseconds since the kill, slowest survivor")
    heads = ("ranks", *PARTS, "worst", "restore", "sync", "MB/s", *(["steps beside fixed"] if args.steps else []))
    print(" ".join(f"{head:>11}" for head in heads))
    for size in map(int, args.ranks.split(",")):
        runs = [recovery(size, args.megabytes) for _ in range(args.kills)]
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        worst = max(run["collective"] for run in runs)
        speed = 1000 * args.megabytes / middle["sync"]
        figures = [*(middle[part] for part in PARTS), worst, middle["restore"], middle["sync"], speed]
        if args.steps:
            ratios = [steps_per_s(size, elastic=True) / steps_per_s(size, elastic=False) for _ in range(args.kills)]
            figures.append(statistics.median(ratios))
        print(" ".join([f"{size:11}", *(f"{figure:11.3g}" for figure in figures)]), flush=True)
    return 0


def recovery(size: int, megabytes: float) -> dict[str, float]:
    """Milliseconds of one kill: the parts of the slowest survivor."""
    told = run_job(size, ["--min-np", "1"], {"BENCH_KILL": "1", "BENCH_MEGABYTES": str(megabytes)})
    (killed,) = [line["at"] for line in told if line["what"] == "kill"]
    at: dict[str, dict[str, float]] = defaultdict(dict)  # what was told first after the kill, by process
    for line in told:
        if line["at"] > killed:
            at[line["what"]].setdefault(line["pid"], line["at"])
    survivors = set(at["noticed"])
    at = {what: {pid: when for pid, when in times.items() if pid in survivors} for what, times in at.items()}
    found = {part: 1000 * (max(at[part].values()) - killed) for part in PARTS if at.get(part)}
    if size == 2:  # who is left alone connects with nobody, before a replacement has come
        found.update(connected=found["placed"], running=found["placed"])
    found["restore"] = 1000 * max(at["restored"][pid] - at["noticed"][pid] for pid in survivors)
    found["sync"] = 1000 * (max(at["synced"].values()) - max(at["collective"].values()))
    return found


def steps_per_s(size: int, elastic: bool) -> float:
    """Of a job without faults that commits at every step."""
    told = run_job(size, ["--min-np", "1"] if elastic else [], {"BENCH_KILL": "0", "BENCH_MEGABYTES": "0"})
    return min(line["steps_per_s"] for line in told if line["what"] == "end")


def run_job(size: int, options: list[str], variables: dict[str, str]) -> list[dict[str, Any]]:
    """Runs the ranks; what they have told."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, **variables, "BENCH_FOLDER": folder, "OMP_NUM_THREADS": "1"}
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "horovod.runner", "-np", str(size), *options, sys.executable, str(RANK)]
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
        time.sleep(0.1)
        files = Path(folder).iterdir()
        return [{**json.loads(line), "pid": file.name} for file in files for line in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
