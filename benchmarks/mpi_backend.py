"""Our own plane, MPI as the plane, and bare MPI: a blocking allreduce per size, in one run, in alternation.

    mpi_backend.py [--launchers openmpi5,openmpi4,mpich,intel] [-np 2] [--rounds 5] [--seconds 0.3]

For each launcher of `tools/launcher_envs.py` (`make launchers`) one mpirun starts the ranks once; in every round they
initialise with HOROVOD_CPU_OPERATIONS=gloo, measure all sizes, end, and do the same with mpi; then mpi4py's own
Allreduce on the same arrays, with the same library. A time is that of the slowest rank, the median over a round; the
table has the median over the rounds, and the ratios of the medians. Prints a Markdown table. The times are this
machine's of this moment; the ratios are the result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(1, str(ROOT / "tests"))

SIZES = (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20)
LAUNCHERS = ("openmpi5", "openmpi4", "mpich", "intel")
PLANES = ("gloo", "mpi", "mpi4py")
_LEAST_CALLS = 5


def main(words: Sequence[str]) -> int:
    """Starts the ranks of every launcher that is there; 1 if one failed."""
    asked = _parser().parse_args(words)
    if asked.rank:
        return rank(asked.rounds, asked.seconds)
    failed = 0
    for name in asked.launchers.split(","):
        failed |= _run(name, asked)
    return failed


def rank(rounds: int, seconds: float) -> int:
    """One rank of a job: measures, and says what it found if it is the first."""
    import numpy as np
    from mpi4py import MPI

    import horovod.numpy as hvd

    world = MPI.COMM_WORLD
    arrays = {size: np.zeros(size // 4, np.float32) for size in SIZES}
    results = {size: np.zeros(size // 4, np.float32) for size in SIZES}
    found: dict[tuple[str, int], list[float]] = {(plane, size): [] for plane in PLANES for size in SIZES}
    for _ in range(rounds):
        for plane in PLANES:
            if plane != "mpi4py":
                os.environ["HOROVOD_CPU_OPERATIONS"] = plane
                hvd.init()
            for size in SIZES:
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
    if world.rank == 0:
        library = MPI.Get_library_version().split(",")[0].splitlines()[0].replace("\t", " ").strip()
        print("\n".join(_table(f"{library}, {world.size} ranks", found)), flush=True)
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


def _table(title: str, found: dict[tuple[str, int], list[float]]) -> list[str]:
    lines = [
        "",
        f"| {title} | ours, us | MPI as plane, us | bare MPI, us | ours / MPI as plane | bare / MPI as plane |",
    ]
    lines.append("|---|---|---|---|---|---|")
    for size in SIZES:
        ours, plane, bare = (statistics.median(found[name, size]) * 1e6 for name in PLANES)
        cells = [_label(size), *(f"{each:.3g}" for each in (ours, plane, bare)), f"{ours / plane:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{bare / plane:.2f}"]) + " |")
    return lines


def _label(size: int) -> str:
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def _run(name: str, asked: argparse.Namespace) -> int:
    from launchers.starters import BY_ID, ENVS

    starter = BY_ID[name]
    packages = list((ENVS / "mpi4py").glob("lib/python3*/site-packages"))
    missing = starter.why_absent() or ("" if packages else "mpi4py is not installed; `make launchers` installs it")
    if missing:
        print(f"\n{name}: left out: {missing}")
        return 0
    program = [sys.executable, __file__, "--rank", "--rounds", str(asked.rounds), "--seconds", str(asked.seconds)]
    path = os.pathsep.join([str(ROOT / "python"), *map(str, packages)])
    environ = {**os.environ, **starter.environ, "PATH": starter.path(), "PYTHONPATH": path}
    environ["LD_LIBRARY_PATH"] = str(ENVS / name / "lib")
    return subprocess.run(starter.command(asked.np, program), env=environ, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launchers", default=",".join(LAUNCHERS))
    parser.add_argument("-np", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
