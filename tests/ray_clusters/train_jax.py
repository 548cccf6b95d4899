"""`horovod.jax` in Ray Train: `make test-ray`. See `cluster` and `train` for the rest."""

from __future__ import annotations

from pathlib import Path

from cluster import Cluster, cluster
from train import ended

__all__ = ["cluster"]  # the fixture

PROGRAM = """
import os
import pickle
import sys
import tempfile

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from horovod.ray import HorovodConfig


def train_line(config):
    import jax
    import numpy as np
    import optax

    import horovod.jax as hvd

    hvd.init()
    x = np.random.default_rng(hvd.rank()).normal(size=(64, 3)).astype("float32")
    y = x @ np.array([1, -2, 3], np.float32)
    tx = hvd.DistributedOptimizer(optax.adam(0.1))

    @jax.jit
    def step(params, state):
        loss, grads = jax.value_and_grad(lambda p: ((x @ p["w"] - y) ** 2).mean())(params)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params = {"w": np.full(3, 9.0 * hvd.rank(), np.float32)}
    state, first = tx.init(params), 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as place, open(os.path.join(place, "state"), "rb") as file:
            params, state, first = pickle.load(file)
    params, state = hvd.broadcast_parameters(params), hvd.broadcast_optimizer_state(state)
    for epoch in range(first, 4):
        for _ in range(40):
            params, state, loss = step(params, state)
        if epoch == 2 and first == 0 and hvd.rank() == 1:
            raise RuntimeError("as a machine may fail")
        equal = len(set(hvd.allgather_object(np.asarray(params["w"]).tobytes()))) == 1
        metrics = {"loss": float(hvd.metric_average(loss)), "ranks": hvd.size(), "first": first, "equal": equal}
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "state"), "wb") as file:
                pickle.dump((params, state, epoch + 1), file)
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(place) if hvd.rank() == 0 else None)


ray.init()
result = DataParallelTrainer(
    train_line,
    backend_config=HorovodConfig(),
    scaling_config=train.ScalingConfig(num_workers=2),
    run_config=train.RunConfig(storage_path=sys.argv[1], failure_config=train.FailureConfig(max_failures=1)),
).fit()
print(f"RESULT {result.metrics} {result.checkpoint.path}")
"""


def test_a_training_of_jax_that_is_started_again(cluster: Cluster, tmp_path: Path) -> None:
    metrics, output = ended(cluster, PROGRAM, tmp_path, str(tmp_path))
    assert metrics["ranks"] == 2 and metrics["first"] == 2 and metrics["equal"], output
    assert metrics["loss"] < 0.01 and "as a machine may fail" in output, output
