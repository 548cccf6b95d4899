"""How long a failure holds an elastic job over hosts up: a rank, an agent, or a link.

    elastic_hosts.py [--hosts 2,3] [--ranks-per-host 2] [--faults kill,agent,cut] [--times 5]

Hosts are namespaces (root; `make hosts`); the launcher is on the first, the fault happens on the last. Measured from
the fault to the first finished collective of the slowest survivor, on the kernel's monotonic clock, and until the last
of them has noticed. After each fault the host comes back, for the next one; then nothing is left of the job anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.elastic_hosts import FAULTS, ElasticHosts  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_RANK = Path(__file__).parent / "ranks" / "elastic_rank.py"
_OPTIONS = ["--min-np", "1", "--blacklist-cooldown-range", "1", "1", "--gloo-timeout-seconds", "60"]
_PATIENCE_S = 60.0
_SETTLING_S = 0.5
_MISSING = 3


def main(words: Sequence[str]) -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description="how long failures hold an elastic job over hosts up")
    parser.add_argument("--hosts", default="2,3", help="numbers of hosts")
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--faults", default="kill,agent,cut", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--times", type=int, default=5, help="each fault")
    args = parser.parse_args(words)
    reason = why_absent()
    if reason is not None:
        print(f"elastic_hosts: no hosts can be made: {reason}", file=sys.stderr)
        return _MISSING
    print(f"{os.cpu_count()} cores for all hosts; medians of {args.times}; milliseconds since the fault\n")
    print("| hosts | ranks | fault | all have noticed | first collective | worst |\n|---|---|---|---|---|---|")
    for count in map(int, args.hosts.split(",")):
        with contextlib.closing(Network(count)) as hosts:
            for fault in args.faults.split(","):
                runs = _measured(hosts, args.ranks_per_host, fault, args.times)
                noticed, first = (statistics.median(run[part] for run in runs) for part in (0, 1))
                worst = max(run[1] for run in runs)
                size = count * args.ranks_per_host
                print(f"| {count} | {size} | {fault} | {noticed:.0f} | {first:.0f} | {worst:.0f} |", flush=True)
    return 0


def _measured(hosts: Network, local_size: int, fault: str, times: int) -> list[tuple[float, float]]:
    """One job with so many faults, one after the other; milliseconds."""
    count = len(hosts.hosts)
    job = ElasticHosts(hosts, local_size, _OPTIONS, str(_RANK))
    try:
        found = []
        for _ in range(times):
            _await_all(job, count * local_size)
            at_s = job.fail(fault, count)
            found.append(_recovery(job, at_s))
            job.mend()
        _await_all(job, count * local_size)
        (job.folder / "end").touch()
        if code := job.end(_PATIENCE_S):
            raise RuntimeError(f"the job ended with {code}:\n{job.output()}")
    finally:
        left = job.close()
    if left:
        raise RuntimeError(f"left behind: {', '.join(left)}")
    return found


def _await_all(job: ElasticHosts, size: int) -> None:
    """Until all ranks take part, and have done so for a while."""

    def whole(lines: list[dict[str, Any]]) -> bool:
        last = max((line["epoch"] for line in lines if "epoch" in line), default=-1)
        begun = [line for line in lines if line["what"] == "epoch" and line["epoch"] == last]
        return len(begun) == size == begun[0]["size"]

    job.until(whole, _PATIENCE_S, f"an epoch of all {size} ranks")
    time.sleep(_SETTLING_S)


def _recovery(job: ElasticHosts, at_s: float) -> tuple[float, float]:
    """Milliseconds from a fault until the last survivor has noticed, and until its first collective is finished."""

    def firsts(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        begun = [line for line in lines if line["what"] == "collective" and line["at"] > at_s]
        epoch = min((line["epoch"] for line in begun), default=-1)
        found = [line for line in begun if line["epoch"] == epoch]
        return found if found and len(found) == found[0]["size"] else []

    collectives = job.until(firsts, _PATIENCE_S, "the first collective after a fault")
    last_s = max(line["at"] for line in collectives)
    survivors = {line["who"] for line in collectives}
    noticed = [line for line in job.told() if line["what"] == "noticed" and at_s < line["at"] <= last_s]
    noticed_s = max(line["at"] for line in noticed if line["who"] in survivors)
    return 1000 * (noticed_s - at_s), 1000 * (last_s - at_s)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main(sys.argv[1:]))
