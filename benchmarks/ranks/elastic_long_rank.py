"""A rank of `elastic_long`: trains a small network on digits, commits at every step, and tells what was done.

BENCH_STEP_MS is how long a step takes at least, as if a device computed; BENCH_BATCH samples of it are this rank's. The
training goes on until the launcher's side says that it is over, by a file that rank 0 looks for.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from telling import Told

import horovod.numpy as hvd
from horovod._core.life import membership

END = Path(os.environ["BENCH_FOLDER"], "end")
STEP_S = float(os.environ["BENCH_STEP_MS"]) / 1000
BATCH = int(os.environ["BENCH_BATCH"])
HIDDEN = 64
RATE = 0.05
EVERY = 10  # steps between two measurements of the accuracy
tell = Told()


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], str]:
    """Pictures of 8 x 8 points, their numbers, and where they come from: scikit-learn's, or drawn here."""
    try:
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]
    except ImportError:
        chance = np.random.default_rng(7)
        numbers = chance.integers(0, 10, 1797)
        drawn = chance.normal(size=(10, 64))[numbers] + chance.normal(scale=1.5, size=(1797, 64))
        return drawn, numbers, "synthetic"
    found = load_digits()
    return found.data / 16.0, found.target, "scikit-learn"


PICTURES, NUMBERS, SOURCE = digits()
HELD_OUT = 360  # of them, for the accuracy


def initial() -> dict[str, np.ndarray[Any, Any]]:
    chance = np.random.default_rng(1)
    return {
        "first": chance.normal(scale=0.2, size=(64, HIDDEN)),
        "second": chance.normal(scale=0.2, size=(HIDDEN, 10)),
    }


def gradients(weights: dict[str, Any], pictures: Any, numbers: Any) -> dict[str, Any]:
    """Of the cross entropy, averaged over the pictures."""
    hidden = np.maximum(pictures @ weights["first"], 0.0)
    scores = hidden @ weights["second"]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(numbers)), numbers] -= 1.0
    shares /= len(numbers)
    back = (shares @ weights["second"].T) * (hidden > 0)
    return {"first": pictures.T @ back, "second": hidden.T @ shares}


def accuracy(weights: dict[str, Any]) -> float:
    hidden = np.maximum(PICTURES[:HELD_OUT] @ weights["first"], 0.0)
    return float(((hidden @ weights["second"]).argmax(axis=1) == NUMBERS[:HELD_OUT]).mean())


def fingerprint(weights: dict[str, Any]) -> str:
    return hashlib.sha256(b"".join(weights[name].tobytes() for name in sorted(weights))).hexdigest()


@hvd.elastic.run
def train(state: Any) -> None:
    tell("epoch", epoch=membership.epoch(), rank=hvd.rank(), size=hvd.size(), step=state.step, samples=state.samples)
    over = False
    while not over:
        began_s = time.monotonic()
        chance = np.random.default_rng((state.step, hvd.rank()))
        picked = chance.integers(HELD_OUT, len(NUMBERS), BATCH)
        mine = gradients(state.weights, PICTURES[picked], NUMBERS[picked])
        flag = hvd.allreduce(np.array([float(hvd.rank() == 0 and END.exists())]), name="over", op=hvd.Max)
        mean = {name: hvd.allreduce(value, name=name) for name, value in mine.items()}
        state.weights = {name: value - RATE * mean[name] for name, value in state.weights.items()}
        state.step += 1
        state.samples += BATCH * hvd.size()
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began_s)))
        state.commit()
        over = bool(flag[0])
        if hvd.rank() == 0:
            done = {"step": state.step, "samples": state.samples, "size": hvd.size(), "epoch": membership.epoch()}
            tell("step", **done)
            if state.step % EVERY == 0 or over:
                tell("accuracy", share=accuracy(state.weights))
    tell("end", hash=fingerprint(state.weights), step=state.step, samples=state.samples, source=SOURCE)


hvd.init()
train(hvd.elastic.ObjectState(weights=initial(), step=0, samples=0))
