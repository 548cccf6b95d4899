"""How well TensorFlow training scales from one process to two: the same batch and one thread per process.

    tensorflow_training.py [--runs 3] [--models mlp resnet]

One job for `horovod.tensorflow` (`tf.function`, eager, XLA), one for `tf.distribute.MultiWorkerMirroredStrategy`. In
each, slices alternate between training steps of both processes together and the same steps of one process alone, while
the other sleeps. Efficiency is the second's time over the first's; 1.0 would be twice the images with two processes.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from tensorflow_jobs import figures_of_horovod, figures_of_strategy

RANK = Path(__file__).resolve().parent / "tensorflow_training_rank.py"


def main() -> None:
    """Runs and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=["mlp", "resnet"])
    asked = parser.parse_args()
    print("| model | way | alone ms | together ms | efficiency (median; each run) | strategy's overhead / this |")
    print("|---|---|---|---|---|---|")
    for which in asked.models:
        runs = [
            {**figures_of_horovod(RANK, "ours", which), **figures_of_strategy(RANK, "strategy", which)}
            for _ in range(asked.runs)
        ]
        for way in [name.partition(" ")[0] for name in runs[0] if name.endswith(" alone")]:
            alone, together = [[run[f"{way} {kind}"] for run in runs] for kind in ("alone", "together")]
            efficiency = [a / t for a, t in zip(alone, together)]
            ratio = statistics.median(
                (run["strategy together"] - run["strategy alone"]) / (run[f"{way} together"] - run[f"{way} alone"])
                for run in runs
            )
            print(
                f"| {which} | {way} | {statistics.median(alone):.2f} | {statistics.median(together):.2f} "
                f"| {statistics.median(efficiency):.2f} ({', '.join(f'{value:.2f}' for value in efficiency)}) "
                f"| {ratio:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
