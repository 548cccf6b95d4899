"""Jobs of every framework on one, two and three hosts, and every mistake with every way to start a job, as tables:
`python -m hosts.mistakes_table`.

Ends with 1 when something was not told, or told too late. Takes root, see `network`; PYTHONPATH must hold python and
tests.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from .conftest import Ended, Hosts
from .mistakes import MISTAKES, STARTS, Mistake
from .network import Network, why_absent
from .trainings import KERAS, NODES, PYTORCH, TENSORFLOW, Training, serve_and_train

_MOST_HOSTS = 3


def main() -> int:
    reason = why_absent()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    network = Network(_MOST_HOSTS)
    try:
        hosts = Hosts(network)
        trained = [_trained(hosts, training) for training in (PYTORCH, TENSORFLOW, KERAS)]
        told = [_told(hosts, mistake) for mistake in MISTAKES]
    finally:
        network.close()
    _row("program", *(f"{n} host{'s' * (n > 1)}" for n in range(1, _MOST_HOSTS + 1)), "it shows")
    _row(*["---"] * (_MOST_HOSTS + 2))
    failed = [not _say(row) for row in trained]
    failed.append(not _data_service())
    print()
    _row("mistake", *(start.name for start in STARTS), "message")
    _row(*["---"] * (len(STARTS) + 2))
    failed += [not _say(row) for row in told]
    print(f"{len(failed)} rows, {sum(failed)} failed")
    return int(any(failed))


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _say(row: tuple[bool, list[str]]) -> bool:
    _row(*row[1])
    return row[0]


def _trained(hosts: Hosts, training: Training) -> tuple[bool, list[str]]:
    runs = [training.run(hosts, count) for count in range(1, _MOST_HOSTS + 1)]
    well = all(run.code == 0 for run in runs)
    return well, [f"`{' '.join(training.words)}`", *(map(_seconds, runs)), _shown(runs[1], training.shows)]


def _data_service() -> bool:
    network = Network(len(NODES), NODES)
    try:
        with tempfile.TemporaryDirectory() as place:
            jobs = serve_and_train(network, Path(place))
    finally:
        network.close()
    shows = _shown(jobs.trained, "equal on all ranks")
    _row("data service: 4 workers on two hosts, 2 ranks on two others", "", _seconds(jobs.trained), "", shows)
    return jobs.trained.code == jobs.served.code == 0


def _seconds(run: Ended) -> str:
    return f"{run.seconds:.1f}" if run.code == 0 else f"code {run.code}"


def _shown(run: Ended, sign: str) -> str:
    line = next((line for line in run.out if sign in line), "nothing")
    return f"`{line[:150]}`"


def _told(hosts: Hosts, mistake: Mistake) -> tuple[bool, list[str]]:
    with tempfile.TemporaryDirectory() as place, mistake.made(hosts, Path(place)) as setting:
        runs = [start(hosts, setting) for start in STARTS]
    message = runs[0].err[-1] if runs[0].err else ""
    well = all(
        run.code != 0 and run.seconds < mistake.within_s and all(part in "\n".join(run.err) for part in mistake.said)
        for run in runs
    )
    cells = [f"{run.seconds:.1f}" for run in runs]
    return well, [mistake.name, *cells, f"`{message.replace(str(place), '/somewhere').replace(sys.prefix, '/venv')}`"]


if __name__ == "__main__":
    raise SystemExit(main())
