"""Train a small Keras network on scikit-learn's handwritten digits by Ray Train: its data, reports and checkpoints, and
Horovod between the workers. On Keras' PyTorch, JAX or TensorFlow.

    pip install "ray[train]" keras jax scikit-learn
    KERAS_BACKEND=jax python examples/ray/train_keras_digits.py --workers 2
"""

import argparse
import os
import tempfile
import time

import ray
from ray import train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from horovod.ray import HorovodConfig


def use_own_gpu(hvd, backend):
    """Gives this rank a GPU of its own, where there are any: before the backend uses one."""
    if backend == "torch":
        import torch

        if torch.cuda.is_available():
            torch.cuda.set_device(hvd.local_rank())
    elif backend == "jax":
        import jax

        jax.config.update("jax_cuda_visible_devices", str(hvd.local_rank()))
    elif backend == "tensorflow":
        import tensorflow as tf

        if gpus := tf.config.list_physical_devices("GPU"):
            tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def train_digits(config):
    import keras

    import horovod.keras as hvd

    hvd.init()
    use_own_gpu(hvd, keras.backend.backend())

    class Report(keras.callbacks.Callback):
        """Reports each epoch to Ray Train, with a checkpoint of rank 0."""

        def on_epoch_begin(self, epoch, logs=None):
            self.start_s = time.monotonic()

        def on_epoch_end(self, epoch, logs=None):
            if config["fails_in"] == epoch and first == 0 and hvd.rank() == 1:
                raise RuntimeError("as a machine may fail")
            metrics = {"epoch": epoch, "accuracy": float(logs["accuracy"]), "first": first, "ranks": hvd.size()}
            metrics["steps_per_s"] = steps / (time.monotonic() - self.start_s)
            with tempfile.TemporaryDirectory() as place:
                if hvd.rank() == 0:
                    self.model.save(os.path.join(place, "model.keras"))
                    with open(os.path.join(place, "epoch"), "w") as file:
                        file.write(str(epoch))
                train.report(metrics, checkpoint=train.Checkpoint.from_directory(place) if hvd.rank() == 0 else None)

    first = 0
    if checkpoint := train.get_checkpoint():
        with checkpoint.as_directory() as place:
            model = hvd.load_model(os.path.join(place, "model.keras"))  # its optimizer is a distributed one again
            with open(os.path.join(place, "epoch")) as file:
                first = int(file.read()) + 1
    else:
        layers = [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(config["learning_rate"]))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    shard = train.get_dataset_shard("train")  # Ray Data gives each worker as many rows
    steps = config["rows"] // hvd.size() // 32

    def batches():
        while True:
            for batch in shard.iter_batches(batch_size=32, drop_last=True):
                yield batch["image"], batch["label"]

    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), Report()]
    model.fit(
        batches(),
        steps_per_epoch=steps,
        epochs=config["epochs"],
        initial_epoch=first,
        callbacks=callbacks,
        verbose=0,
    )


def main():
    from sklearn.datasets import load_digits

    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--storage", default=os.path.expanduser("~/ray_results"), help="where checkpoints go")
    parser.add_argument("--fails-in", type=int, help="an epoch in which a worker fails; Ray Train starts all again")
    args = parser.parse_args()
    ray.init(runtime_env={"env_vars": {"KERAS_BACKEND": os.environ.get("KERAS_BACKEND", "jax")}})
    digits = load_digits()
    rows = [{"image": image / 16, "label": int(label)} for image, label in zip(digits.data, digits.target)]
    config = {"learning_rate": 3e-3, "epochs": args.epochs, "fails_in": args.fails_in, "rows": len(rows)}
    trainer = DataParallelTrainer(
        train_digits,
        train_loop_config=config,
        backend_config=HorovodConfig(),
        scaling_config=train.ScalingConfig(num_workers=args.workers),
        run_config=train.RunConfig(storage_path=args.storage, failure_config=train.FailureConfig(max_failures=1)),
        datasets={"train": ray.data.from_items(rows)},
    )
    result = trainer.fit()
    print(f"RESULT {result.metrics} {result.checkpoint.path}")


if __name__ == "__main__":
    main()
