"""What reducing a step's gradients costs in TensorFlow: a step with the reduction minus the same step without it.

    tensorflow_step.py [--runs 3] [--sets resnet50 mlp small]

Two ranks. In one job, in alternating slices: `tf.function`, eager, XLA (`jit_compile=True`), and `horovod.torch` with
the same tensors; in a second job `tf.distribute.MultiWorkerMirroredStrategy`, all processes with one thread per
operator. Prints a Markdown table of medians over the runs, and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

RANK = str(Path(__file__).resolve().parent / "tensorflow_step_rank.py")
ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 400.0
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def environment(**more: str) -> dict[str, str]:
    """Of a rank."""
    return {**os.environ, **QUIET, "PYTHONPATH": f"{ROOT}/python:{ROOT}/benchmarks", **more}


def figures(output: str) -> dict[str, float]:
    """What a rank has printed in a line "FIGURES " and JSON: numbers by name."""
    line = next(line for line in output.splitlines() if "FIGURES " in line)
    found: dict[str, float] = json.loads(line.partition("FIGURES ")[2])
    return found


def figures_of_horovod(which: str) -> dict[str, float]:
    """What rank 0 of a job of this project found. Ends the program if the job fails."""
    command = [sys.executable, "-m", "horovod.runner", "-np", "2", sys.executable, RANK, "ours", which]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return figures(done.stdout)


def figures_of_strategy(which: str) -> dict[str, float]:
    """What the first of two workers of TensorFlow's own strategy found. Ends the program if one fails."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    workers = [f"127.0.0.1:{port}" for port in ports]
    command = [sys.executable, RANK, "strategy", which]
    processes = []
    for index in range(2):
        place = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        variables = environment(TF_CONFIG=json.dumps(place))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command, env=variables, text=True, **pipes))
    try:
        outputs = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        sys.exit("\n".join(error for _, error in outputs))
    return figures(outputs[0][0])


def main() -> None:
    """Runs and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=["resnet50", "mlp", "small"])
    asked = parser.parse_args()
    print("| gradients | way | overhead ms (median of the runs; each) | / horovod.torch | strategy / this |")
    print("|---|---|---|---|---|")
    for which in asked.sets:
        runs = [{**figures_of_horovod(which), **figures_of_strategy(which)} for _ in range(asked.runs)]
        ways = list(runs[0])
        for way in ways:
            each = [run[way] for run in runs]
            torch = statistics.median(run[way] / run["torch"] for run in runs)
            strategy = statistics.median(run["strategy"] / run[way] for run in runs)
            print(
                f"| {which} | {way} | {statistics.median(each):.2f} ({', '.join(f'{value:.2f}' for value in each)}) "
                f"| {torch:.2f} | {strategy:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
