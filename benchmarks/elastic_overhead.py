"""What it costs to be elastic when nothing fails: the step time of the same training, elastic and not, in alternation.

`python benchmarks/elastic_overhead.py [--ranks 2] [--rounds 200] [--steps 10] [--steps-per-commit 10]`. Three jobs of
PyTorch are started side by side: a plain one, one with `hvd.elastic.run` and commits under a launcher that is not
elastic, and the same under `--min-np`. One trains at a time, for some steps, in an order drawn anew every round; the
others wait at a socket. Shown are the step times and the median difference within a round with its 95 % interval.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from harness.differences import difference

ROOT = Path(__file__).resolve().parent.parent
RANK = Path(__file__).parent / "ranks" / "overhead_rank.py"
# By name: options of the launcher, and whether there are commits.
JOBS = {"plain": ([], "0"), "commits": ([], "1"), "elastic": (["--min-np", "1"], "1")}
WARM = 2
PATIENCE_S = 120.0


class Ranks:
    """The three jobs, whose ranks have connected."""

    def __init__(self, size: int, steps_per_commit: int, folder: str) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(f"{folder}/socket")
        listener.listen(len(JOBS) * size)
        listener.settimeout(PATIENCE_S)
        environ = {
            **os.environ,
            "BENCH_SOCKET": f"{folder}/socket",
            "BENCH_STEPS_PER_COMMIT": str(steps_per_commit),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])),
        }
        self._launchers = []
        self._connections = []
        self._words: dict[str, list[TextIO]] = {name: [] for name in JOBS}
        for name, (options, commits) in JOBS.items():
            command = [sys.executable, "-m", "horovod.runner", "-np", str(size), *options, sys.executable, str(RANK)]
            told = {**environ, "BENCH_NAME": name, "BENCH_COMMITS": commits}
            self._launchers.append(subprocess.Popen(command, env=told))
        for _ in range(len(JOBS) * size):
            connection, _ = listener.accept()
            connection.settimeout(PATIENCE_S)
            self._connections.append(connection)
            words = connection.makefile("rw")
            self._words[words.readline().split()[0]].append(words)
        listener.close()

    def train(self, name: str, steps: int) -> float:
        """Lets a job make some steps; milliseconds of one, of the slowest rank."""
        for words in self._words[name]:
            print(steps, file=words, flush=True)
        return max(1000 * float(words.readline()) / steps for words in self._words[name])

    def end(self) -> None:
        """Ends the jobs."""
        for connection in self._connections:
            connection.shutdown(socket.SHUT_WR)
        for launcher in self._launchers:
            launcher.wait(PATIENCE_S)


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10, help="of a job at a time")
    parser.add_argument("--steps-per-commit", type=int, default=10)
    args = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in JOBS}
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(args.ranks, args.steps_per_commit, folder)
        for number in range(args.rounds + WARM):
            for name in random.sample(list(JOBS), len(JOBS)):
                step_ms = ranks.train(name, args.steps)
                if number >= WARM:
                    times[name].append(step_ms)
        ranks.end()
    print(
        f"{os.cpu_count()} cores, {args.ranks} ranks, a commit every {args.steps_per_commit} steps, {args.rounds} "
        f"rounds of {args.steps} steps"
    )
    for name, values in times.items():
        print(f"{name:>10}: {statistics.median(values):8.3f} ms a step, at best {min(values):8.3f}")
    for name, base in (("elastic", "commits"), ("elastic", "plain"), ("commits", "plain")):
        middle, low, high = difference(times[name], times[base])
        share = [100 * bound / statistics.median(times[base]) for bound in (middle, low, high)]
        print(f"{name} - {base}: {middle:.3f} ms [{low:.3f}, {high:.3f}]", end=", ")
        print(f"{share[0]:.2f} % of the step [{share[1]:.2f}, {share[2]:.2f}]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
