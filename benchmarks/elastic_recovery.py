"""How long a failure holds an elastic job up: kill -9 of one of 2, 4, 8, 16 ranks on this machine.

`python benchmarks/elastic_recovery.py [--ranks 2,4,8,16] [--kills 5] [--megabytes 0]`. Measured from the kill until the
last survivor has noticed, and until its first collective is finished, on the kernel's monotonic clock. The state is
restored in between, which with a large state is most of that, so its time is also reported apart, as is that of `sync`:
both grow with the state, and `sync` is given as bytes per second too. The ranks are NumPy's, which train nothing: what
is measured is this library's own time. More ranks than cores take turns, so their figures are of that, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RANK = Path(__file__).parent / "ranks" / "elastic_rank.py"
PARTS = ("noticed", "collective")


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", default="2,4,8,16", help="numbers of ranks")
    parser.add_argument("--kills", type=int, default=5, help="jobs with one kill each, per number of ranks")
    parser.add_argument("--megabytes", type=float, default=0.0, help="size of the state")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores; medians of {args.kills}; milliseconds since the kill, slowest survivor")
    heads = ("ranks", *PARTS, "worst", "restore", "sync", "MB/s")
    print(" ".join(f"{head:>11}" for head in heads))
    for size in map(int, args.ranks.split(",")):
        runs = [recovery(size, args.megabytes) for _ in range(args.kills)]
        middle = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        worst = max(run["collective"] for run in runs)
        speed = 1000 * args.megabytes / middle["sync"]
        figures = [*(middle[part] for part in PARTS), worst, middle["restore"], middle["sync"], speed]
        print(" ".join([f"{size:11}", *(f"{figure:11.3g}" for figure in figures)]), flush=True)
    return 0


def recovery(size: int, megabytes: float) -> dict[str, float]:
    """Milliseconds of one kill: the parts of the slowest survivor."""
    told = run_job(size, megabytes)
    (killed,) = [line["at"] for line in told if line["what"] == "kill"]
    at: dict[str, dict[str, float]] = defaultdict(dict)  # what was told first after the kill, by process
    for line in told:
        if line["at"] > killed:
            at[line["what"]].setdefault(line["who"], line["at"])
    survivors = set(at["noticed"])
    found = {part: 1000 * (max(at[part][who] for who in survivors) - killed) for part in PARTS}
    found["restore"] = 1000 * max(at["restored"][who] - at["noticed"][who] for who in survivors)
    found["sync"] = 1000 * max(at["synced"][who] - at["collective"][who] for who in survivors)
    return found


def run_job(size: int, megabytes: float) -> list[dict[str, Any]]:
    """Runs the ranks, one of which is killed; what they have told."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "BENCH_KILL": "1", "BENCH_MEGABYTES": str(megabytes), "BENCH_FOLDER": folder}
        environ["OMP_NUM_THREADS"] = "1"
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "horovod.runner", "-np", str(size), "--min-np", "1", sys.executable, str(RANK)]
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        if ended.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr}")
        files = Path(folder).glob("rank.*")
        return [{**json.loads(line), "who": file.name} for file in files for line in file.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
