"""What reducing a step's gradients costs in TensorFlow: a step with the reduction minus the same step without it.

    tensorflow_step.py [--runs 3] [--sets resnet50 mlp small]

Two ranks. In one job, in alternating slices: `tf.function`, eager, XLA (`jit_compile=True`), and `horovod.torch` with
the same tensors; in a second job `tf.distribute.MultiWorkerMirroredStrategy`, all processes with one thread per
operator. Prints a Markdown table of medians over the runs, and ratios.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from tensorflow_jobs import figures_of_horovod, figures_of_strategy

RANK = Path(__file__).resolve().parent / "tensorflow_step_rank.py"


def main() -> None:
    """Runs and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sets", nargs="+", default=["resnet50", "mlp", "small"])
    asked = parser.parse_args()
    print("| gradients | way | overhead ms (median of the runs; each) | / horovod.torch | strategy / this |")
    print("|---|---|---|---|---|")
    for which in asked.sets:
        runs = [
            {**figures_of_horovod(RANK, "ours", which), **figures_of_strategy(RANK, "strategy", which)}
            for _ in range(asked.runs)
        ]
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
