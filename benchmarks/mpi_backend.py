"""Our own plane, MPI as the plane, and bare MPI: a blocking allreduce per size, in one run, in alternation.

    mpi_backend.py [--launchers openmpi5,openmpi4,mpich,intel] [-np 2] [--rounds 5] [--seconds 0.3] [--sizes 8,65536]
    mpi_backend.py --hosts 2 [--rate 1gbit]

The second form makes hosts of namespaces (as root), gives each link the rate, or none, and starts `-np` ranks on each,
one if nothing is said. For each launcher of `tools/launcher_envs.py` (`make launchers`) one mpirun starts the ranks
once; in every round they initialise with HOROVOD_CPU_OPERATIONS=gloo, measure all sizes, end, and do the same with mpi;
then mpi4py's own Allreduce on the same arrays, with the same library. A time is that of the slowest rank, the median
over a round; the table has the median over the rounds, or with `--best` the fastest round, for machines that have other
work, and the ratios of these. Prints a Markdown table. The
times are this machine's of this moment; the ratios are the result.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(ROOT / "tests"))

SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
LAUNCHERS = ("openmpi5", "openmpi4", "mpich", "intel")
PLANES = ("gloo", "mpi", "mpi4py")
_LEAST_CALLS = 5
_MOST_S = 900.0


def main(words: Sequence[str]) -> int:
    """Starts the ranks of every launcher that is there; 1 if one failed."""
    asked = _parser().parse_args(words)
    if asked.rank:
        return rank(asked.sizes, asked.rounds, asked.seconds, min if asked.best else statistics.median)
    failed = 0
    with contextlib.ExitStack() as undo:
        network = _network(asked, undo) if asked.hosts > 1 else None
        for name in asked.launchers.split(","):
            failed |= _run(name, asked, network)
    return failed


def rank(sizes: Sequence[int], rounds: int, seconds: float, of_rounds: Callable[[list[float]], float]) -> int:
    """One rank of a job: measures, and says what it found if it is the first."""
    import numpy as np
    from mpi4py import MPI

    import horovod.numpy as hvd

    world = MPI.COMM_WORLD
    arrays = {size: np.zeros(size // 4, np.float32) for size in sizes}
    results = {size: np.zeros(size // 4, np.float32) for size in sizes}
    found: dict[tuple[str, int], list[float]] = {(plane, size): [] for plane in PLANES for size in sizes}
    for _ in range(rounds):
        for plane in PLANES:
            if plane != "mpi4py":
                os.environ["HOROVOD_CPU_OPERATIONS"] = plane
                hvd.init()
            for size in sizes:
                if plane == "mpi4py":
                    source, target = arrays[size], results[size]

                    def call(source: object = source, target: object = target) -> None:
                        world.Allreduce(source, target)
                else:
                    name, array = f"of {size}", arrays[size]

                    def call(name: object = name, array: object = array) -> None:
                        hvd.allreduce_(array, op=hvd.Sum, name=name)

                found[plane, size].append(world.allreduce(_median(call, seconds, world), op=MPI.MAX))
            if plane != "mpi4py":
                hvd.shutdown()
    hosts = len(set(world.allgather(socket.gethostname())))
    if world.rank == 0:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0].replace("\t", " ").strip()
        where = f"{hosts} hosts" if hosts > 1 else "1 host"
        print("\n".join(_table(f"{library}, {world.size} ranks, {where}", sizes, found, of_rounds)), flush=True)
    return 0


def _median(call: Callable[[], None], seconds: float, world: object) -> float:
    """The median time of a call, in seconds. All ranks make the same number of calls."""
    call()
    began = time.perf_counter()
    call()
    least = world.allreduce(time.perf_counter() - began)  # type: ignore[attr-defined]
    calls = max(_LEAST_CALLS, min(2000, int(seconds / max(least / world.size, 1e-7))))  # type: ignore[attr-defined]
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def _table(
    title: str,
    sizes: Sequence[int],
    found: dict[tuple[str, int], list[float]],
    of_rounds: Callable[[list[float]], float],
) -> list[str]:
    lines = [
        "",
        f"| {title} | ours, us | MPI as plane, us | bare MPI, us | ours / MPI as plane | bare / MPI as plane |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for size in sizes:
        ours, plane, bare = (of_rounds(found[name, size]) * 1e6 for name in PLANES)
        cells = [_label(size), *(f"{each:.3g}" for each in (ours, plane, bare)), f"{ours / plane:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{bare / plane:.2f}"]) + " |")
    return lines


def _label(size: int) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def _network(asked: argparse.Namespace, undo: contextlib.ExitStack) -> Any:
    """The hosts; gone when `undo` is. They find the files of this program where it has them."""
    from harness import line
    from hosts.network import Network, why_absent

    reason = why_absent()
    if reason is not None:
        raise SystemExit(f"mpi_backend: no hosts can be made: {reason}")
    network = Network(asked.hosts)
    undo.callback(network.close)
    if asked.rate != "none":
        line.shape(network, asked.rate)
    print(f"{asked.hosts} hosts, links of {asked.rate}; {line.measure(network, 1.0)}.", flush=True)
    return network


def _run(name: str, asked: argparse.Namespace, network: Any) -> int:
    from launchers.starters import BY_ID, ENVS

    starter = BY_ID[name]
    packages = list((ENVS / "mpi4py").glob("lib/python3*/site-packages"))
    missing = starter.why_absent() or ("" if packages else "mpi4py is not installed; `make launchers` installs it")
    if missing:
        print(f"\n{name}: left out: {missing}")
        return 0
    sizes = ",".join(map(str, asked.sizes))
    options = [
        "--rounds",
        str(asked.rounds),
        "--seconds",
        str(asked.seconds),
        "--sizes",
        sizes,
        *(["--best"] if asked.best else []),
    ]
    program = [sys.executable, os.path.abspath(__file__), "--rank", *options]
    path = os.pathsep.join([str(ROOT / "python"), *map(str, packages)])
    environ = {**os.environ, **starter.environ, "PATH": starter.path(), "PYTHONPATH": path}
    environ["LD_LIBRARY_PATH"] = str(ENVS / name / "lib")
    if network is None:
        return subprocess.run(starter.command(asked.np or 2, program), env=environ, check=False).returncode
    from hosts.mpis import BY_ID as ON_HOSTS

    variables = {name: environ[name] for name in ("PYTHONPATH", "LD_LIBRARY_PATH")}
    words = ON_HOSTS[name].command([asked.np or 1] * asked.hosts, program, variables)
    kept = {name: value for name, value in environ.items() if not name.startswith(("HOROVOD", "OMP_"))}
    running = network[1].start(words, kept, stdout=None, stderr=None)
    return int(running.end(_MOST_S).returncode)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launchers", default=",".join(LAUNCHERS))
    parser.add_argument("-np", type=int, default=0, help="ranks; of each host, where there are several")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--rate", default="none", help="of every link, as tc says it, or none: as fast as it goes")
    parser.add_argument("--sizes", type=lambda text: [int(each) for each in text.split(",")], default=SIZES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--best", action="store_true", help="the fastest round instead of the median")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
