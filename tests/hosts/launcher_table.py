"""Every way to start a job on one, two and three hosts, and each with every mistake, as tables:
`python -m hosts.launcher_table [WORD...]`.

With words: the ways whose name has one of them. Ends with 1 when a job failed, or a mistake was not told. Takes root,
see `network`, and the launchers of `make launchers`; PYTHONPATH must hold python and tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launchers.slurm import Cluster

from .conftest import ROOT, Ended, Hosts
from .launcher_mistakes import IMPOSSIBLE, MISTAKES, Mistake
from .mpi.mpis import BY_ID as MPIS
from .mpi.test_mpi_over_hosts import remove_files_of_mpi
from .network import Network, why_absent
from .ways import SRUN_PMI2, WAYS, Order, Way, nodes, write_secret

RANK = Path(__file__).parent / "mpi" / "mpi_rank.py"
COUNTS: tuple[tuple[int, ...], ...] = ((2,), (2, 2), (2, 1, 1))
_SHOWN = 330
_LOOK_S = 0.05


class Place(NamedTuple):
    """Where jobs are started.

    Attributes:
        hosts: three of them.
        folder: that all see.
        slurm: by which its programs find a cluster on them; empty where there is none.
    """

    hosts: Hosts
    folder: Path
    slurm: dict[str, str]


@contextlib.contextmanager
def place(hosts: Hosts, folder: Path, with_slurm: bool) -> Iterator[Place]:
    """The place, with a Slurm on the hosts if asked for."""
    with contextlib.ExitStack() as undo:
        environ = undo.enter_context(Cluster(nodes(hosts))).environ if with_slurm else {}
        yield Place(hosts, folder, environ)


def order(at: Place, way: Way, counts: Sequence[int], part: str = "work") -> Order:
    """A job of `mpi_rank.py` for this way."""
    environ = dict(at.slurm) if way.needs_cluster else {}
    if way is SRUN_PMI2:  # srun does not say which library its PMI is for
        environ["HOROVOD_MPI_LIBRARY"] = str(MPIS["mpich"].folder / MPIS["mpich"].library)
        # By UCX it publishes 4 KB, mostly of what lies behind its address in memory, in lines that may be longer than
        # the 1024 bytes which Slurm reads: then MPI_Init fails, or stands still.
        environ["MPIR_CVAR_CH4_NETMOD"] = "ofi"
    folder = Path(tempfile.mkdtemp(dir=at.folder))
    secret = write_secret(folder) if way.needs_secret else None
    return Order(counts, [sys.executable, str(RANK), part], environ=environ, folder=folder, secret=secret)


def said(ended: Ended) -> list[dict[str, Any]]:
    """What the ranks have told, in their order, whatever their launcher puts before a line."""
    found = [json.loads(line[line.index("{") :]) for line in ended.out if '{"rank"' in line]
    return sorted(found, key=lambda each: int(each["rank"]))


def complaints(way: Way, counts: Sequence[int], ended: Ended) -> list[str]:
    """What is wrong with a job that should have worked."""
    if ended.code:
        return [f"code {ended.code}: {' / '.join(ended.err[-5:])}"]
    size, told = sum(counts), said(ended)
    found = []
    if [each["hvd_rank"] for each in told] != list(range(size)):
        found.append(f"ranks {[each['hvd_rank'] for each in told]}")
    if sorted(each["hvd_local_size"] for each in told) != sorted(count for count in counts for _ in range(count)):
        found.append(f"local sizes {[each['hvd_local_size'] for each in told]}")
    if any(each["first"] != [size * (size + 1) / 2] * 4 or each["first"] != each["second"] for each in told):
        found.append("wrong sums")
    if any(each["launcher"] != way.launcher for each in told):
        found.append(f"launcher {told[0]['launcher']}")
    return found


def works(at: Place, way: Way, counts: Sequence[int]) -> tuple[Ended, list[str]]:
    """Runs a job, and says what is wrong with it."""
    try:
        ended = way.run(at.hosts, order(at, way, counts))
    except AssertionError as error:  # it was still running
        return Ended(-1, [], [], 0.0), [str(error)]
    finally:
        remove_files_of_mpi(at.hosts)
    return ended, complaints(way, counts, ended)


class Told(NamedTuple):
    """What became of a job with a mistake.

    Attributes:
        line: that tells of it; empty when none did.
        after_s: until it came.
        over_s: until the job was over.
        said: all that was printed until then.
    """

    line: str
    after_s: float
    over_s: float
    said: str


def told(at: Place, way: Way, mistake: Mistake, until_over: bool = True) -> Told:
    """Runs a job with a mistake: until it is over, or ends it once that has been told."""
    with mistake.made(at.hosts, way, order(at, way, (1, 1))) as wrong:
        path = wrong.folder / "said"
        with path.open("wb") as file:
            began_s = time.monotonic()
            started = way.start(at.hosts, dataclasses.replace(wrong, streams={"stdout": file, "stderr": file}))
            after_s, line, text = wrong.within_s, "", ""
            while True:
                over = all(running.entered.poll() is not None for running in started)
                now_s = time.monotonic() - began_s
                text = path.read_text(errors="replace")
                if not line and (line := mistake.line(way, text)):
                    after_s = now_s
                if over or now_s > wrong.within_s or (line and not until_over):
                    break
                time.sleep(_LOOK_S)
            for running in started:
                running.kill()
    remove_files_of_mpi(at.hosts)
    return Told(line, after_s, now_s, text)


def main() -> int:
    reason = why_absent()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    chosen = [way for way in WAYS if not sys.argv[1:] or any(word in way.name for word in sys.argv[1:])]
    network = Network(3)
    failed = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            here = [way for way in chosen if way.why_absent() is None]
            with place(Hosts(network), Path(folder), any(way.needs_cluster for way in here)) as at:
                failed += _print_jobs(at, chosen)
                failed += _print_mistakes(at, here)
    finally:
        network.close()
    print(f"{failed} failed")
    return int(failed > 0)


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


def _print_jobs(at: Place, ways: Sequence[Way]) -> int:
    _row("launcher", "command on two hosts", *(f"{len(counts)} host{'s' * (len(counts) > 1)}" for counts in COUNTS))
    _row(*["---"] * (2 + len(COUNTS)))
    failed = 0
    for way in ways:
        if why := way.why_absent():
            _row(way.name, f"`{way.shown}`", why)
            continue
        cells = []
        for counts in COUNTS:
            ended, wrong = works(at, way, counts)
            failed += bool(wrong)
            cells.append(f"{sum(counts)} ranks: {'; '.join(wrong)[:_SHOWN] or f'{ended.seconds:.1f} s'}")
        _row(way.name, f"`{way.shown}`", *cells)
    return failed


def _print_mistakes(at: Place, ways: Sequence[Way]) -> int:
    failed = 0
    print()
    _row("mistake", "launcher", "said after", "over after", "message")
    _row(*["---"] * 5)
    for mistake in MISTAKES:
        for way in ways:
            if (mistake.name, way.name) in IMPOSSIBLE:
                continue
            found = told(at, way, mistake)
            failed += not found.line
            message = f"`{_plain(found.line, at)}`" if found.line else "nothing was said"
            _row(mistake.name, way.name, f"{found.after_s:.1f}", f"{found.over_s:.1f}", message)
    return failed


def _plain(line: str, at: Place) -> str:
    """Without what belongs to this machine and run, and short."""
    line = re.sub(rf"{re.escape(str(at.folder))}/[^/ ]+", "/shared", line)
    for text, word in (
        (sys.prefix, "/venv"),
        (str(ROOT), "/checkout"),
        ("|", "/"),
        ("`", "'"),
    ):
        line = line.replace(text, word)
    line = re.sub(r"\(/checkout/build/launchers/[^)]*\)", "(...)", line)  # where the library lies, and why it is that
    return re.sub(r"\s+", " ", line)[:_SHOWN]


if __name__ == "__main__":
    raise SystemExit(main())
