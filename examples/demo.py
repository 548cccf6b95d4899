"""Trains examples/pytorch_digits.py with 1 and with 2 ranks and checks what it claims: `make demo`.

    python examples/demo.py

The same global batches are split over the ranks, one core per rank and no GPU. Exit code 1 if a claim does not hold.

Needs scikit-learn, for its data: pip install scikit-learn.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
SCRIPT = HERE / "pytorch_digits.py"
MIN_ACCURACY = 0.97
# The order of additions differs between 1 and 2 ranks, and training magnifies the last bits.
LOSS_TOLERANCE = 0.01


def run(ranks):
    """Trains; the RESULT of every epoch."""
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    environ = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "horovod.runner", "-np", str(ranks), sys.executable, str(SCRIPT), "--json"]
    print(f"\n$ horovodrun -np {ranks} python examples/{SCRIPT.name}", flush=True)
    results = []
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            text = line.rstrip().partition("<stdout>:")[2] or line.rstrip()
            if text.startswith("RESULT "):
                results.append(json.loads(text.removeprefix("RESULT ")))
            else:
                print(text, flush=True)
    if process.returncode or not results:
        sys.exit(f"The job with {ranks} rank(s) failed with exit code {process.returncode}.")
    return results


def claims(one, two):
    """(claim, does it hold) for the results of both runs."""
    apart = max(abs(a["loss"] - b["loss"]) / max(a["loss"], b["loss"]) for a, b in zip(one, two))
    accuracies = [results[-1]["accuracy"] for results in (one, two)]
    yield (
        f"test accuracy is at least {MIN_ACCURACY:.0%} with 1 and with 2 ranks: {accuracies[0]:.2%}, "
        f"{accuracies[1]:.2%}",
        min(accuracies) >= MIN_ACCURACY,
    )
    yield (
        "both ranks have the same parameters, bit for bit, after every epoch: "
        + ", ".join(r["hashes"][0][:6] for r in two),
        all(len(r["hashes"]) == 2 and len(set(r["hashes"])) == 1 for r in two),
    )
    yield "the ranks' shards have no image in common in any epoch", not any(r["overlap"] for r in two)
    yield (
        f"the loss of every epoch is that of 1 rank but for rounding: apart by at most {apart:.1e} of itself",
        apart <= LOSS_TOLERANCE and len(one) == len(two),
    )


def main():
    one, two = run(1), run(2)
    speeds = [statistics.median(r["images_per_s"] for r in results[1:]) for results in (one, two)]
    print("\nSummary")
    held = list(claims(one, two))
    for claim, holds in held:
        print(f"  {'ok    ' if holds else 'FAILED'}  {claim}")
    print(
        f"  speed   {speeds[0]:.0f} images/s with 1 rank, {speeds[1]:.0f} with 2 (one core each): "
        f"{speeds[1] / speeds[0]:.2f} x"
    )
    sys.exit(0 if all(holds for _, holds in held) else 1)


if __name__ == "__main__":
    main()
