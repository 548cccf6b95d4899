"""A training on elastic hosts under one fault after the other, beside the same one without faults.

    elastic_long.py [--minutes 30] [--every 29] [--fault-free-minutes 2] [--step-ms 100] [--batch 32]

8 ranks on 3 hosts of namespaces (root; `make hosts`) train a small network on digits (scikit-learn's, where it is
installed). In turn a rank is killed, one is stopped, and a link is cut for some seconds, each time on the next host;
the launcher's own link cannot be cut, since its job ends with it. Hosts come back a second after they were given up.
Figures: samples per second that were committed, as a share of those without faults in the same run; the accuracy of
both; whether all ranks hold the same in the end; what is left on any host. A step takes --step-ms at least, as if
a device computed: else more ranks than cores would hide that some are missing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.elastic_hosts import ElasticHosts, network  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_RANK = Path(__file__).parent / "ranks" / "elastic_long_rank.py"
_SLOTS = (3, 3, 2)
_TURNS = (("kill", 1), ("stop", 2), ("cut", 3), ("kill", 2), ("stop", 3), ("cut", 2), ("kill", 3), ("stop", 1))
_OPTIONS = (
    *("--min-np", "2", "--blacklist-cooldown-range", "1", "1"),
    *("--gloo-timeout-seconds", "3", "--start-timeout", "5"),
    *("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "3"),
)
_CUT_S = 8.0  # longer than it takes to be believed
_PATIENCE_S = 60.0
_MISSING = 3


class Run(NamedTuple):
    """What has become of a training.

    Attributes:
        rate: samples per second that were committed.
        accuracy: at the end.
        samples: in all.
        faults: that were done.
        steps_lost: which had been committed and are not there any more.
        hashes: of the ranks' weights at the end, without repetitions.
        ranks: that were there then.
        left: what was left behind.
        source: of the pictures.
    """

    rate: float
    accuracy: float
    samples: int
    faults: int
    steps_lost: int
    hashes: set[str]
    ranks: int
    left: list[str]
    source: str


def main(words: Sequence[str]) -> int:
    """Prints what both trainings came to; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description="a training on elastic hosts under faults")
    parser.add_argument("--minutes", type=float, default=30.0, help="with faults")
    parser.add_argument("--every", type=float, default=29.0, help="seconds between two faults")
    parser.add_argument("--fault-free-minutes", type=float, default=2.0)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step")
    args = parser.parse_args(words)
    reason = why_absent()
    if reason is not None:
        print(f"elastic_long: no hosts can be made: {reason}", file=sys.stderr)
        return _MISSING
    variables = {"BENCH_STEP_MS": str(args.step_ms), "BENCH_BATCH": str(args.batch)}
    with network(len(_SLOTS)) as hosts:
        calm = _trained(hosts, variables, args.fault_free_minutes * 60, 0.0)
        _tell("without faults", calm)
        rough = _trained(hosts, variables, args.minutes * 60, args.every)
    _tell(f"a fault every {args.every:g} s", rough)
    share = rough.rate / calm.rate
    print(f"{os.cpu_count()} cores for all hosts; digits: {rough.source}; throughput kept: {100 * share:.1f} %")
    kept = all(len(run.hashes) == 1 and not run.left and not run.steps_lost for run in (calm, rough))
    return 0 if kept else 1


def _tell(what: str, run: Run) -> None:
    equal = "equal" if len(run.hashes) == 1 else "DIFFERENT"
    print(
        f"{what}: {run.rate:.0f} samples/s, accuracy {100 * run.accuracy:.1f} % after {run.samples} samples, "
        f"{run.faults} faults, {run.steps_lost} committed steps lost, {equal} weights on {run.ranks} ranks, "
        f"left behind: {', '.join(run.left) or 'nothing'}",
        flush=True,
    )


def _trained(hosts: Network, variables: dict[str, str], seconds: float, every_s: float) -> Run:
    job = ElasticHosts(hosts, _SLOTS, _OPTIONS, [str(_RANK)], variables)
    faults = 0
    try:
        job.until(lambda lines: _of(lines, "step"), _PATIENCE_S, "a first step")
        began_s = time.monotonic()
        turns = itertools.cycle(_TURNS)
        while every_s and time.monotonic() + every_s < began_s + seconds:
            time.sleep(every_s / 2)  # as long before the first as behind the last
            fault, number = next(turns)
            if job.ranks(hosts[number]):
                job.fail(fault, number)
                faults += 1
            time.sleep(min(_CUT_S, every_s / 2))
            job.mend()
            time.sleep(max(0.0, every_s / 2 - _CUT_S))
        time.sleep(max(0.0, began_s + seconds - time.monotonic()))
        (job.folder / "end").touch()
        code = job.end(_PATIENCE_S)
        if code:
            raise RuntimeError(f"the job ended with {code}:\n{job.output()}")
        lines = list(job.told())
    finally:
        left = job.close()
    return _judged(lines, faults, left)


def _judged(lines: list[dict[str, Any]], faults: int, left: list[str]) -> Run:
    steps, ends = sorted(_of(lines, "step"), key=lambda line: float(line["at"])), _of(lines, "end")
    first, last = steps[0], steps[-1]
    rate = (last["samples"] - first["samples"]) / (last["at"] - first["at"])
    lost = 0
    for begun in _of(lines, "epoch"):  # every step was committed before it was told
        before = [line["step"] for line in steps if line["at"] < begun["at"]]
        lost += max(0, max(before, default=0) - begun["step"])
    hashes = {line["hash"] for line in ends}
    return Run(
        rate,
        last["accuracy"],
        last["samples"],
        faults,
        lost,
        hashes,
        len(ends),
        left,
        ends[0]["source"] if ends else "",
    )


def _of(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"] == what]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main(sys.argv[1:]))
