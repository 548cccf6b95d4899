"""Train a small network on scikit-learn's handwritten digits by Ray Train: its data, reports and checkpoints, and
Horovod between the workers.

    pip install "ray[train]" torch scikit-learn
    python examples/ray/train_digits.py --workers 2
"""

import argparse
import os
import tempfile
import time

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from horovod.ray import HorovodConfig


def train_digits(config):
    import torch

    import horovod.torch as hvd

    hvd.init()
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as place:
            state = torch.load(os.path.join(place, "state.pt"))
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    optimizer = torch.optim.Adam(model.parameters(), lr=config["learning_rate"])
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    shard = train.get_dataset_shard("train")  # Ray Data gives each worker as many rows
    kinds = {"image": torch.float32, "label": torch.int64}
    for epoch in range(first, config["epochs"]):
        start_s, steps, right, rows = time.monotonic(), 0, 0.0, 0
        for batch in shard.iter_torch_batches(batch_size=32, dtypes=kinds, drop_last=True):
            optimizer.zero_grad()
            outputs = model(batch["image"])
            torch.nn.functional.cross_entropy(outputs, batch["label"]).backward()
            optimizer.step()
            steps, rows = steps + 1, rows + len(outputs)
            right += float((outputs.argmax(1) == batch["label"]).sum())
        if config.get("fails_in") == epoch and first == 0 and hvd.rank() == 1:
            raise RuntimeError("as a machine may fail")
        accuracy = hvd.allreduce(torch.tensor(right / rows)).item()
        metrics = {"epoch": epoch, "accuracy": accuracy, "first": first, "ranks": hvd.size()}
        metrics["steps_per_s"] = steps / (time.monotonic() - start_s)
        with tempfile.TemporaryDirectory() as place:
            if hvd.rank() == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(place, "state.pt"))
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(place) if hvd.rank() == 0 else None)


def main():
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"), help="where checkpoints go")
    parser.add_argument("--fails-in", type=int, help="an epoch in which a worker fails; Ray Train starts all again")
    args = parser.parse_args()
    ray.init()
    digits = load_digits()
    rows = [{"image": image / 16, "label": int(label)} for image, label in zip(digits.data, digits.target)]
    trainer = DataParallelTrainer(
        train_digits,
        train_loop_config={"learning_rate": 3e-3, "epochs": args.epochs, "fails_in": args.fails_in},
        backend_config=HorovodConfig(),
        scaling_config=train.ScalingConfig(num_workers=args.workers),
        run_config=train.RunConfig(storage_path=args.storage, failure_config=train.FailureConfig(max_failures=1)),
        datasets={"train": ray.data.from_items(rows)},
    )
    result = trainer.fit()
    print(f"RESULT {result.metrics} {result.checkpoint.path}")


if __name__ == "__main__":
    main()
