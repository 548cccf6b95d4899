"""A training on elastic hosts under one fault after the other, beside the same one without faults.

    elastic_long.py [--minutes 30] [--every 29] [--fault-free-minutes 2] [--step-ms 100] [--batch 32] [--keep FOLDER]

8 ranks on 3 hosts of namespaces (root; `make hosts`) train a small network on digits (scikit-learn's, where it is
installed). In turn a rank is killed, one is stopped, and a link is cut for some seconds, each time on the next host;
the launcher's own link cannot be cut, since its job ends with it. Hosts come back a second after they were given up.
Figures: samples per second that were committed, as a share of those without faults in the same run, and what the rest
was lost to; per kind of fault how long until the next step was committed, and until all ranks were there again; the
accuracy of both; whether all ranks hold the same in the end; what is left on any host. A step takes --step-ms at least,
as if a device computed: else more ranks than cores would hide that some are missing.

The training is told to end when all ranks are there, which may be after the time that is measured: whoever is still
missing a minute later has not come back, and the benchmark fails. --keep leaves what ranks have told, the output and
the journal of the job with faults.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Optional

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from harness import continuity  # noqa: E402
from harness.continuity import Fault, Recovery, Step  # noqa: E402
from harness.elastic_hosts import ElasticHosts, network  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_RANK = Path(__file__).parent / "ranks" / "elastic_long_rank.py"
_SLOTS = (3, 3, 2)
_FULL = sum(_SLOTS)
_TURNS = (("kill", 1), ("stop", 2), ("cut", 3), ("kill", 2), ("stop", 3), ("cut", 2), ("kill", 3), ("stop", 1))
_OPTIONS = (
    *("--min-np", "2", "--blacklist-cooldown-range", "1", "1"),
    *("--gloo-timeout-seconds", "3", "--start-timeout", "5"),
    *("--stall-check-warning-time-seconds", "1", "--stall-check-shutdown-time-seconds", "3"),
)
_CUT_S = 8.0  # longer than it takes to be believed
_PATIENCE_S = 60.0
_LOOK_S = 0.1
_MISSING = 3


class Run(NamedTuple):
    """What has become of a training.

    Attributes:
        rate: samples per second that were committed.
        accuracy: at the end.
        samples: in all.
        faults: that were done.
        steps: that were committed while it was measured, by time.
        recoveries: from the faults.
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
    steps: list[Step]
    recoveries: list[Recovery]
    steps_lost: int
    hashes: set[str]
    ranks: int
    left: list[str]
    source: str

    @property
    def kept(self) -> bool:
        """Nothing was lost, nothing is left, and all ranks are there and hold the same."""
        whole = self.ranks == _FULL and len(self.hashes) == 1
        return whole and not self.left and not self.steps_lost


class _Plan(NamedTuple):
    """How long a training is measured, the time between two faults (0: none), and where to leave what it told."""

    seconds: float
    every_s: float = 0.0
    keep: Optional[Path] = None


def main(words: Sequence[str]) -> int:
    """Prints what both trainings came to; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description="a training on elastic hosts under faults")
    parser.add_argument("--minutes", type=float, default=30.0, help="with faults")
    parser.add_argument("--every", type=float, default=29.0, help="seconds between two faults")
    parser.add_argument("--fault-free-minutes", type=float, default=2.0)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step")
    parser.add_argument("--keep", type=Path, help="a folder for what the job with faults has told")
    args = parser.parse_args(words)
    reason = why_absent()
    if reason is not None:
        print(f"elastic_long: no hosts can be made: {reason}", file=sys.stderr)
        return _MISSING
    variables = {"BENCH_STEP_MS": str(args.step_ms), "BENCH_BATCH": str(args.batch)}
    with network(len(_SLOTS)) as hosts:
        calm = _trained(hosts, variables, _Plan(args.fault_free_minutes * 60))
        _tell("without faults", calm)
        rough = _trained(hosts, variables, _Plan(args.minutes * 60, args.every, args.keep))
    _tell(f"a fault every {args.every:g} s", rough)
    for line in continuity.told(rough.recoveries):
        print(f"  {line}")
    _tell_shares(calm, rough)
    return 0 if calm.kept and rough.kept else 1


def _tell(what: str, run: Run) -> None:
    equal = "equal" if len(run.hashes) == 1 else "DIFFERENT"
    print(
        f"{what}: {run.rate:.0f} samples/s, accuracy {100 * run.accuracy:.1f} % after {run.samples} samples, "
        f"{run.faults} faults, {run.steps_lost} committed steps lost, {equal} weights on {run.ranks} of {_FULL} ranks, "
        f"left behind: {', '.join(run.left) or 'nothing'}",
        flush=True,
    )


def _tell_shares(calm: Run, rough: Run) -> None:
    kept = 100 * rough.rate / calm.rate
    step_s = (calm.steps[-1].at_s - calm.steps[0].at_s) / (len(calm.steps) - 1)
    still, missing = (100 * share for share in continuity.shares(rough.steps, _FULL, step_s))
    print(
        f"{os.cpu_count()} cores for all hosts; digits: {rough.source}; throughput kept: {kept:.1f} %; lost: "
        f"{still:.1f} % while nothing was committed, {missing:.1f} % by ranks that were missing, "
        f"{100 - kept - still - missing:.1f} % by steps that took longer than without faults"
    )


def _trained(hosts: Network, variables: dict[str, str], plan: _Plan) -> Run:
    job = ElasticHosts(hosts, _SLOTS, _OPTIONS, [str(_RANK)], variables)
    try:
        job.until(_steps, _PATIENCE_S, "a first step")
        end_s = time.monotonic() + plan.seconds
        faults = _disturbed(job, plan.every_s, end_s) if plan.every_s else []
        job.rest(end_s)
        _await_all(job)
        (job.folder / "end").touch()
        code = job.end(_PATIENCE_S)
        if code:
            raise RuntimeError(f"the job ended with {code}:\n{job.output()}")
        lines = list(job.told())
    finally:
        if plan.keep is not None:
            job.keep(plan.keep)
        left = job.close()
    return _judged(lines, faults, left, end_s)


def _disturbed(job: ElasticHosts, every_s: float, end_s: float) -> list[Fault]:
    """Does one fault after the other until this time."""
    faults = []
    for kind, number in itertools.cycle(_TURNS):
        if time.monotonic() + every_s > end_s:
            return faults
        job.rest(time.monotonic() + every_s / 2)  # as long before the first as behind the last
        if job.ranks(job.network[number]):
            faults.append(Fault(kind, number, job.fail(kind, number)))
        job.rest(time.monotonic() + min(_CUT_S, every_s / 2))
        job.mend()
        job.rest(time.monotonic() + max(0.0, every_s / 2 - _CUT_S))
    return faults


def _await_all(job: ElasticHosts) -> None:
    """Until the last step is one of all ranks; but no longer than it is worth."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while _steps(job.told())[-1].size < _FULL and time.monotonic() < deadline_s:
        job.rest(time.monotonic() + _LOOK_S)


def _judged(lines: list[dict[str, Any]], faults: list[Fault], left: list[str], end_s: float) -> Run:
    told, ends = sorted(_of(lines, "step"), key=lambda line: float(line["at"])), _of(lines, "end")
    measured = [line for line in told if line["at"] <= end_s]
    first, last = measured[0], measured[-1]
    rate = (last["samples"] - first["samples"]) / (last["at"] - first["at"])
    lost = 0
    for begun in _of(lines, "epoch"):  # every step was committed before it was told
        before = [line["step"] for line in told if line["at"] < begun["at"]]
        lost += max(0, max(before, default=0) - begun["step"])
    return Run(
        rate,
        max(_of(lines, "accuracy"), key=lambda line: float(line["at"]))["share"],
        told[-1]["samples"],
        len(faults),
        _steps(measured),
        continuity.recoveries(_steps(lines), faults, _FULL),
        lost,
        {line["hash"] for line in ends},
        len(ends),
        left,
        ends[0]["source"] if ends else "",
    )


def _steps(lines: list[dict[str, Any]]) -> list[Step]:
    """By time."""
    return sorted(Step(line["at"], line["epoch"], line["size"]) for line in _of(lines, "step"))


def _of(lines: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"] == what]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main(sys.argv[1:]))
