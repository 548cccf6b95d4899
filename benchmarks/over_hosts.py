"""Collectives between hosts: ours against Open MPI over TCP and torch gloo, on namespaced hosts with shaped links.

    over_hosts.py [--hosts 2] [--local-size 1] [--rate 1gbit | none] [--rows ...] [--sizes ...] [--minutes 6]

Makes the hosts of tests/hosts (as root; each with its own address, name, /dev/shm and sshd), gives every link the rate
in both directions, measures what a plain TCP stream reaches ("line"), and then lets the contenders work in alternating
slices of one run, as `run_all` does. Prints a Markdown table: microseconds (median of the slowest rank's times), the
speed of ours as a share of the fastest peer's, and for rows of at least 16 MB how much of the line ours uses: the time
that the bytes which any algorithm has to move take at line rate / the time of ours. With n hosts those bytes are, of
what a rank puts in: allreduce 2 (n-1)/n, broadcast 1, reducescatter and alltoall (n-1)/n; and (n-1)/n of the whole that
an allgather makes. `rows.between_hosts.least_bytes` has the formula for several ranks on a host. A second table names
all contenders' times.

Everything is gone when this process is, also after Ctrl-C, which ends it with what there is and code 130. The exit
code is 1 if a result was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

# The hosts are those of the tests. This program has no folder called hosts, and must not.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from contenders import on_hosts  # noqa: E402
from harness import line as lines  # noqa: E402
from harness import machine_state  # noqa: E402
from harness.contest import NO_TIME, Contest, Effort  # noqa: E402
from harness.line import Line  # noqa: E402
from harness.progress import Progress  # noqa: E402
from harness.row import Row, size_label  # noqa: E402
from harness.shares import share  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402
from ranks import networks  # noqa: E402
from rows import between_hosts  # noqa: E402

_LARGE = 16 << 20  # what a link lets pass as a burst, 128 KB, is less than 1 % of it
_INTERRUPTED, _MISSING = 130, 3
_NETWORKS = tuple(networks.all_networks())
_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "B": 1}


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    reason = why_absent()
    if reason is not None:
        print(f"over_hosts: no hosts can be made: {reason}", file=sys.stderr)
        return _MISSING
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves nothing behind either
    progress = Progress(sys.stderr)
    rows: list[Row] = []
    code = 0
    try:
        with _own_files():
            _measure(asked, progress, rows)
    except KeyboardInterrupt:
        code = _INTERRUPTED
    progress.clear()
    print("\n".join(["", "## Times", "", *times(rows)]))
    if code:
        print("\nINTERRUPTED: not all rows were measured.")
    wrong = any("WRONG" in (entry.void or "") for row in rows for entry in row.entries)
    return code or int(wrong)


@contextlib.contextmanager
def _own_files() -> Iterator[None]:
    """A folder for all temporary files, removed after the hosts: a launcher that is killed removes nothing itself."""
    folder = tempfile.mkdtemp(prefix="hosts-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(asked: argparse.Namespace, progress: Progress, rows: list[Row]) -> None:
    """Adds each row when it is measured, and prints its line."""
    progress.begin(60 * asked.minutes, 60 * asked.minutes)
    progress.show(f"making {asked.hosts} hosts")
    network = Network(asked.hosts)
    try:
        if asked.rate != "none":
            lines.shape(network, asked.rate)
        line = lines.measure(network, asked.slice * 5)
        others = machine_state.quiet_share()
        progress.clear()
        print(f"Others used {100 * others:.0f} % of the cores before.")
        print(f"{asked.hosts} hosts x {asked.local_size} ranks, links of {asked.rate}; {line}.", flush=True)
        contenders = on_hosts.find(network, asked.local_size, create=True)
        effort = Effort(asked.rounds, asked.slice, least=2)
        with Contest(contenders, asked.hosts * asked.local_size, effort, progress) as contest:
            progress.clear()
            print(f"{'; '.join(f'{name}: {what}' for name, what in contest.versions.items())}.\n\n{HEAD}", flush=True)
            for row in _rows(contest, asked):
                rows.append(row)
                progress.clear()
                print(words_of(row, line, asked.hosts, asked.local_size), flush=True)
    finally:
        network.close()


def _rows(contest: Contest, asked: argparse.Namespace) -> Iterator[Row]:
    operations = [name for name in asked.rows if name != between_hosts.GRADIENTS]
    found = between_hosts.collective_rows(contest, operations, asked.sizes)
    if between_hosts.GRADIENTS not in asked.rows:
        return found
    return itertools.chain(found, between_hosts.gradient_rows(contest, asked.networks))


HEAD = "| | ours, us | best peer, us | | share of the best peer | share of the line | flat, us |\n" + "|---" * 7 + "|"


def words_of(row: Row, line: Line, hosts: int, local_size: int) -> str:
    """The line of a row in the first table."""
    ours, peer, compared = row.best_ours(), row.best_peer(), share([row])
    times_us = [_microseconds(entry.median) if entry else "-" for entry in (ours, peer)]
    ratio = f"{compared.median:.2f}" if compared else "-"
    bold = f"**{ratio}**" if compared and compared.slower else ratio
    used = "-"
    if ours and row.size_bytes >= _LARGE:
        needed = between_hosts.least_bytes(row.operation, row.size_bytes, hosts, local_size)
        used = f"{line.seconds(needed) / ours.median:.3f}"
    flat = _microseconds(row.median(on_hosts.FLAT))
    return f"| {row.name} | {times_us[0]} | {times_us[1]} | {peer.label if peer else '-'} | {bold} | {used} | {flat} |"


def times(rows: Sequence[Row]) -> list[str]:
    """The second table: every contender's time, or why there is none."""
    made = ["| | contender | p50, us | p99 | best | samples |", "|---|---|---|---|---|---|"]
    for row in rows:
        for entry in row.entries:
            if entry.void == NO_TIME:
                continue
            figures = [_microseconds(entry.quantile(part)) for part in (0.5, 0.99, 0)]
            words = f"{' | '.join(figures)} | {len(entry.samples)}" if not entry.void else f"{entry.void} | | |"
            made.append(f"| {row.name} | {entry.label} | {words} |")
    return made


def _microseconds(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:.1f}" if seconds < 1e-3 else f"{seconds * 1e6:,.0f}"


def _size(text: str) -> int:
    for unit, factor in _UNITS.items():
        number = text.upper().removesuffix(unit)
        if number != text.upper() and number.isdecimal() and int(number) * factor >= 4:
            return int(number) * factor
    raise argparse.ArgumentTypeError(f"{text!r} is no size of at least 4 bytes, such as 4B, 64KB or 16MB")


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--hosts", type=int, choices=(2, 3), default=2)
    made.add_argument("--local-size", type=int, default=1, metavar="M", help="ranks of each host; 1")
    made.add_argument(
        "--rate", default="1gbit", help="of every link, as tc says it, or none: as fast as it goes; 1gbit"
    )
    all_rows = [*between_hosts.OPERATIONS, between_hosts.GRADIENTS]
    made.add_argument("--rows", nargs="+", choices=all_rows, default=all_rows, metavar="ROW", help=", ".join(all_rows))
    sizes = ", ".join(map(size_label, between_hosts.SIZES))
    made.add_argument(
        "--networks",
        nargs="+",
        choices=_NETWORKS,
        default=_NETWORKS[:1],
        metavar="NAME",
        help=f"whose gradients; of {', '.join(_NETWORKS)}, the first",
    )
    made.add_argument("--sizes", nargs="+", type=_size, default=between_hosts.SIZES, metavar="SIZE", help=sizes)
    made.add_argument("--minutes", type=float, default=6.0, help="what does not fit into them is left out; 6")
    made.add_argument("--rounds", type=int, default=7, help="recorded slices per contender and row; 7")
    made.add_argument("--slice", type=float, default=0.2, help="seconds of a slice; 0.2")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
