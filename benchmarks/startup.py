"""What a job takes to begin and to end, in this checkout and in another one, in turns.

    startup.py [CHECKOUT] [--ranks 2] [--hosts 3] [--rounds 20] [--only true numpy torch]

Each program is started by horovodrun: `true`; and a script that calls `hvd.init()` and prints its rank, with NumPy and
with torch. Beside each time stands what is the checkout's own: without the interpreters' and the frameworks' imports,
which are measured as the same number of processes that import the framework and nothing of Horovod, started at once.
Prints a Markdown table: medians and quartiles in milliseconds. The first job of each is not counted: it compiles the
modules, which an installation has compiled. The other checkout must be built. With `--hosts`, the ranks are spread over
so many hosts, which are namespaces of this machine (root; `make hosts`), and started through ssh; imports are measured
on one of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

# The hosts are those of the tests.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from contenders.peers import ROOT  # noqa: E402
from harness.contest import alternate, timed  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_SCRIPT = "import horovod.{0} as hvd\nhvd.init()\nprint(hvd.rank())\n"
_TIMEOUT_S = 120


class _Checkout:
    """How programs run with one checkout.

    Args:
        root: of the checkout.
        network: the hosts; None for this machine alone.
    """

    def __init__(self, root: Path, network: Optional[Network] = None) -> None:
        package = next(place for place in (root / "python", root) if (place / "horovod").is_dir())
        self._environ = {**os.environ, "PYTHONPATH": str(package)}
        self._environ.pop("PYTHONDONTWRITEBYTECODE", None)
        self._entry = network[1].entry() if network else []
        self._hosts = [host.name for host in network.hosts] if network else []

    def job(self, ranks: int, command: Sequence[str]) -> None:
        """A whole job, from the start of horovodrun to its end."""
        words = [sys.executable, "-m", "horovod.runner", "-np", str(ranks)]
        if self._hosts:
            each = -(-ranks // len(self._hosts))
            words += ["-H", ",".join(f"{name}:{each}" for name in self._hosts)]
        words = [*self._entry, *words, *command]
        done = subprocess.run(words, env=self._environ, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)} failed: {done.stderr}")

    def imports(self, ranks: int, framework: str) -> None:
        """As many processes at once that import the framework."""
        words = [sys.executable, "-c", f"import {framework}"]
        for process in [subprocess.Popen(words, env=self._environ) for _ in range(ranks)]:
            process.wait(_TIMEOUT_S)


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    if asked.hosts and (reason := why_absent()):
        raise SystemExit(f"startup: no hosts can be made: {reason}")
    with contextlib.ExitStack() as ended:
        scratch = Path(ended.enter_context(tempfile.TemporaryDirectory()))
        network = ended.enter_context(contextlib.closing(Network(asked.hosts))) if asked.hosts else None
        sides = {"this": _Checkout(ROOT, network)}
        if asked.checkout:
            sides["other"] = _Checkout(asked.checkout.resolve(), network)
        print("| program | checkout | in all, ms | quartiles | imports, ms | own, ms |\n|---|---|---|---|---|---|")
        for program in asked.only:
            _measure(program, sides, asked, scratch)
    return 0


def _measure(program: str, sides: dict[str, _Checkout], asked: argparse.Namespace, scratch: Path) -> None:
    script = scratch / f"init_{program}.py"  # a script `numpy.py` would hide the library
    script.write_text(_SCRIPT.format(program))
    command = ["true"] if program == "true" else [sys.executable, str(script)]

    def whole(side: _Checkout) -> object:
        return lambda: timed(lambda: side.job(asked.ranks, command))

    runs = {name: whole(side) for name, side in sides.items()}
    if program != "true":
        runs["imports"] = lambda: timed(lambda: sides["this"].imports(asked.ranks, program))
    alternate(runs, 1)  # compiles what is not compiled yet
    times = alternate(runs, asked.rounds)
    imports = statistics.median(times.pop("imports", [0.0])) * 1e3
    for name, values in times.items():
        low, middle, high = (value * 1e3 for value in statistics.quantiles(values, n=4, method="inclusive"))
        line = (
            f"| {program} | {name} | {middle:.0f} | {low:.0f} to {high:.0f} | {imports:.0f} | {middle - imports:.0f} |"
        )
        print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("checkout", type=Path, nargs="?", help="folder of the other checkout, built")
    made.add_argument("--ranks", type=int, default=2)
    made.add_argument("--hosts", type=int, default=0, help="over so many hosts by ssh; 0: on this machine")
    made.add_argument("--rounds", type=int, default=20, help="jobs per program and checkout, two at least")
    made.add_argument("--only", nargs="+", default=["true", "numpy", "torch"], choices=["true", "numpy", "torch"])
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
