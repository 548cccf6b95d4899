"""Starts the two ranks of a TensorFlow benchmark, with `horovodrun` or as the workers of a `tf.distribute` strategy.

The rank's script prints one line "FIGURES " and JSON: numbers by name.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

__all__ = ["figures_of_strategy", "figures_of_horovod"]

_ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 400.0
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, **_QUIET, "PYTHONPATH": f"{_ROOT}/python:{_ROOT}/benchmarks", **more}


def _figures(output: str) -> dict[str, float]:
    line = next(line for line in output.splitlines() if "FIGURES " in line)
    found: dict[str, float] = json.loads(line.partition("FIGURES ")[2])
    return found


def figures_of_horovod(script: Path, *words: str) -> dict[str, float]:
    """What rank 0 of a job of this project found. Ends the program if the job fails."""
    command = [sys.executable, "-m", "horovod.runner", "-np", "2", sys.executable, str(script), *words]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, timeout=_LIMIT_S)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return _figures(done.stdout)


def figures_of_strategy(script: Path, *words: str) -> dict[str, float]:
    """What the first of two workers of TensorFlow's own strategy found. Ends the program if one fails."""
    ports = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports.append(probe.getsockname()[1])
    workers = [f"127.0.0.1:{port}" for port in ports]
    processes = []
    for index in range(2):
        place = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        processes.append(
            subprocess.Popen(
                [sys.executable, str(script), *words],
                env=_environment(TF_CONFIG=json.dumps(place)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        outputs = [process.communicate(timeout=_LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        sys.exit("\n".join(error for _, error in outputs))
    return _figures(outputs[0][0])
