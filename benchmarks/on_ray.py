"""Ray Train with `horovod.ray.HorovodConfig` beside Ray's own `TorchTrainer` (gloo), in turns, on a cluster of its own.

    on_ray.py [--rounds 3] [--epochs 8] [--workers 2] [--only horovod gloo keras]

All train a small network on scikit-learn's digits from Ray Data, and report with a checkpoint after each epoch. Start
is from `fit()` to the end of the first step on rank 0: workers, imports, process group or `hvd.init()`, data. Steps are
those of all epochs but the first, from the first to the last of each; an epoch is all of that with Ray's part: the
beginning of its data, report and checkpoint. Prints a Markdown table: medians of the rounds, and their range. keras:
`horovod.keras` on PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

_BATCH = 32


class _Clock:
    """When a train function has come where; in seconds since the epoch, as other processes count them."""

    def __init__(self) -> None:
        self.steps: list[list[float]] = [[]]
        self.epochs: list[float] = []

    def step(self) -> None:
        """Ends a step."""
        self.steps[-1].append(time.time())

    def report(self, save: Any, rank: int) -> None:
        """Ends an epoch with a report and a checkpoint."""
        from ray import train

        self.epochs.append(time.time())
        seen = {"steps": self.steps, "epochs": self.epochs}
        with tempfile.TemporaryDirectory() as place:
            if rank == 0:
                save(place)
            train.report(seen, checkpoint=train.Checkpoint.from_directory(place) if rank == 0 else None)
        self.steps.append([])


def _torch(config: dict[str, Any]) -> None:
    clock = _Clock()
    import torch
    from ray import train

    torch.manual_seed(1)
    model: Any = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    plain = model
    rank = train.get_context().get_world_rank()
    if config["kind"] == "gloo":
        from ray.train.torch import prepare_model

        model = prepare_model(model)
        optimizer: Any = torch.optim.Adam(model.parameters(), lr=3e-3)
    else:
        import horovod.torch as hvd

        hvd.init()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    kinds = {"image": torch.float32, "label": torch.int64}
    for _ in range(config["epochs"]):
        shard = train.get_dataset_shard("train")
        for batch in shard.iter_torch_batches(batch_size=_BATCH, dtypes=kinds, drop_last=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
            optimizer.step()
            clock.step()
        clock.report(lambda place: torch.save(plain.state_dict(), os.path.join(place, "state.pt")), rank)


def _keras(config: dict[str, Any]) -> None:
    clock = _Clock()
    import keras
    from ray import train

    import horovod.keras as hvd

    hvd.init()
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(3e-3)), loss)
    for _ in range(config["epochs"]):
        shard = train.get_dataset_shard("train")
        for batch in shard.iter_batches(batch_size=_BATCH, drop_last=True):
            model.train_on_batch(batch["image"], batch["label"])
            clock.step()
        clock.report(lambda place: model.save(os.path.join(place, "model.keras")), hvd.rank())


def _trained(kind: str, workers: int, epochs: int, storage: str) -> dict[str, float]:
    """One training, from `fit` to its end."""
    import ray
    from ray import train
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    from sklearn.datasets import load_digits

    from horovod.ray import HorovodConfig

    digits = load_digits()
    rows = [{"image": image / 16, "label": int(label)} for image, label in zip(digits.data, digits.target)]
    common: dict[str, Any] = {
        "train_loop_config": {"kind": kind, "epochs": epochs},
        "scaling_config": train.ScalingConfig(num_workers=workers),
        "run_config": train.RunConfig(storage_path=storage),
        "datasets": {"train": ray.data.from_items(rows)},
    }
    if kind == "gloo":
        trainer = TorchTrainer(_torch, **common)
    else:
        function = _keras if kind == "keras" else _torch
        trainer = DataParallelTrainer(function, backend_config=HorovodConfig(verbose=0), **common)
    start_s = time.time()
    seen = trainer.fit().metrics
    end_s = time.time()
    steps, ends = seen["steps"], seen["epochs"]
    return {
        "start, s": steps[0][0] - start_s,
        "steps per s": statistics.median((len(each) - 1) / (each[-1] - each[0]) for each in steps[1:] if each),
        "epoch, s": (ends[-1] - ends[0]) / (epochs - 1),
        "all, s": end_s - start_s,
    }


@contextlib.contextmanager
def _cluster(workers: int) -> Iterator[str]:
    # Nobody else may use the cluster, and no file is made for that. Ray reads these when it is imported.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32), RAY_USAGE_STATS_ENABLED="0")
    import ray

    variables = {"KERAS_BACKEND": "torch", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ray.init(num_cpus=workers + 2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": variables})
    print(f"ray {ray.__version__}, {workers} workers", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory() as storage:
            yield storage
    finally:
        ray.shutdown()


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=["horovod", "gloo", "keras"], choices=["horovod", "gloo", "keras"])
    asked = parser.parse_args(words)
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in asked.only}
    with _cluster(asked.workers) as storage:
        for number in range(asked.rounds):
            for kind in asked.only if number % 2 == 0 else reversed(asked.only):
                found[kind].append(_trained(kind, asked.workers, asked.epochs, storage))
                print(f"{kind}: {found[kind][-1]}", file=sys.stderr, flush=True)
    titles = list(found[asked.only[0]][0])
    print(f"| | {' | '.join(titles)} |\n|---|{'---|' * len(titles)}")
    for kind, rounds in found.items():
        columns = [[each[title] for each in rounds] for title in titles]
        cells = [f"{statistics.median(each):.4g} ({min(each):.4g}-{max(each):.4g})" for each in columns]
        print(f"| {kind} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
