"""Autotune on a real training step over hosts that are pretended: the log, and the step time before and after.

    autotune.py [--hosts 2,2] [--layers 60] [--width 128] [--samples 20] [--steps-per-sample 10] [--log FILE]

Starts ranks as on several hosts, which the loopback connects; they train a deep, narrow network of PyTorch on
scikit-learn's digits, whose many small gradients are where fusion and linger matter, and tune. When the tuner has kept
something, the same ranks go on in turns with the parameters of the start and with those that were kept, so that both
are measured in one run. Prints the log and a Markdown table; a difference within the spread of the blocks says that
there was nothing to gain. The exit code is 1 when the job failed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# The pretended hosts are those of the tests.
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from jobs import on_hosts, run  # noqa: E402

_RANK = Path(__file__).resolve().parent / "ranks" / "autotune_rank.py"
_PATIENCE_S = 1200.0


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    asked = _parser().parse_args(words)
    with tempfile.TemporaryDirectory() as place:
        log = Path(asked.log or Path(place, "autotune.csv")).resolve()
        environ = {
            "HOROVOD_AUTOTUNE": "1",
            "HOROVOD_AUTOTUNE_LOG": str(log),
            "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": str(asked.samples),
            "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": str(asked.steps_per_sample),
            "OMP_NUM_THREADS": "1",
        }
        counts = [int(count) for count in asked.hosts.split(",")]
        ended = run(on_hosts(counts, _RANK, asked.layers, asked.width), environ, patience_s=_PATIENCE_S)
        if ended.code or not ended.of("measured"):
            print(ended, file=sys.stderr)
            return 1
        print(log.read_text())
    print("\n".join(line for line in ended.stderr.splitlines() if "autotune" in line))
    print(table(ended.of("measured")[0], asked.hosts))
    return 0


def table(measured: dict[str, list[float]], hosts: str) -> str:
    """The step times of both, as medians of blocks.

    Args:
        measured: milliseconds of each block's median step, under "start" and "kept".
        hosts: ranks of each.
    """
    lines = [f"\nranks {hosts}, {os.cpu_count()} cores\n", "| parameters | step, ms | blocks, ms |", "|---|---|---|"]
    for name in ("start", "kept"):
        blocks = measured[name]
        spread = f"{min(blocks):.2f} to {max(blocks):.2f}"
        lines.append(f"| {name} | {statistics.median(blocks):.2f} | {spread} |")
    ratio = statistics.median(measured["start"]) / statistics.median(measured["kept"])
    return "\n".join([*lines, f"\nstart / kept: {ratio:.3f}"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="autotune.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", default="2,2", help="ranks of each host")
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--steps-per-sample", type=int, default=10)
    parser.add_argument("--log", help="keep the log there")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
