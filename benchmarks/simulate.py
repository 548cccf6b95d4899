"""What jobs of many hosts would cost: the engine's own negotiation and schedules, run over virtual time.

    simulate.py [start negotiation collectives scaling] [--gbit 10 100] [--cost NAME=NUMBER ...]

Prints Markdown tables for 64 hosts x 16 ranks and 128 hosts x 4; --layouts 1024x16 has 16,384 ranks and takes minutes
for each line. The training steps are those of the last layout, also with links of 25 Gbit/s. What the machines and
links charge for is in benchmarks/native/simulate/costs.h; --cost changes it. docs/scaling-simulation.md says where the
figures come from.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

# The rows between hosts know those of the tests. This program has no folder called hosts, and must not.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from harness.plan import build_native  # noqa: E402
from simulation import tables  # noqa: E402
from simulation.tool import Machines, Simulator  # noqa: E402

_LAYOUTS = ("64x16", "128x4")
_TABLES = ("start", "negotiation", "collectives", "scaling")
_SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20)
# Design 0010: 896 ends of connections on two cores.
_HANDSHAKE_MS = 1.2


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    folder, missing = (asked.native_dir, "") if asked.native_dir else build_native()
    if folder is None:
        print(f"simulate: the simulator was not built: {missing}", file=sys.stderr)
        return 3
    simulator = Simulator(folder / "simulate")
    costs = {name: float(number) for name, _, number in (word.partition("=") for word in asked.cost)}
    for name in asked.tables:
        _print(name, simulator, asked, costs)
    return 0


def _print(name: str, simulator: Simulator, asked: argparse.Namespace, costs: dict[str, float]) -> None:
    layouts = [tuple(map(int, word.split("x"))) for word in asked.layouts]
    one_link = [Machines(hosts, ranks, (asked.gbit or (10.0,))[0], costs) for hosts, ranks in layouts]
    if name == "start":
        print("\n## Start-up\n", *tables.start(simulator, one_link, asked.handshake_ms), sep="\n", flush=True)
    if name == "negotiation":
        print("\n## 1,000 cached tensors, one step\n", *tables.negotiation(simulator, one_link), sep="\n", flush=True)
    if name == "collectives":
        for gbit in asked.gbit or (10.0, 100.0):
            for hosts, ranks in layouts:
                machines = Machines(hosts, ranks, gbit, costs)
                print(f"\n## Collectives, {machines}\n", flush=True)
                for line in tables.collectives(simulator, machines, asked.sizes):
                    print(line, flush=True)
    if name == "scaling":
        hosts, ranks = layouts[-1]
        links = [Machines(hosts, ranks, gbit, costs) for gbit in asked.gbit or (10.0, 25.0, 100.0)]
        print(f"\n## Training steps, {hosts} x {ranks}\n", flush=True)
        for line in tables.scaling(simulator, links, tables.PICTURES_PER_S):
            print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("tables", nargs="*", default=_TABLES, metavar="TABLE", help=", ".join(_TABLES))
    made.add_argument("--layouts", nargs="+", default=_LAYOUTS, metavar="HOSTSxRANKS", help=" ".join(_LAYOUTS))
    made.add_argument("--gbit", type=float, nargs="+", default=[], help="of a host's link; 10 and 100")
    made.add_argument("--sizes", type=int, nargs="+", default=_SIZES, metavar="BYTES", help="of the collectives")
    made.add_argument("--cost", nargs="+", default=[], metavar="NAME=NUMBER", help="as in costs.h")
    made.add_argument("--handshake-ms", type=float, default=_HANDSHAKE_MS, help=f"of one end; {_HANDSHAKE_MS}")
    made.add_argument("--native-dir", type=Path, help="where the C++ benchmarks are built; made if not given")
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
