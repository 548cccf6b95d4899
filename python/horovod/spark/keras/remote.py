"""What a rank does in a fit with Keras. Knows nothing of pyspark."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

import horovod.keras as hvd
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod.keras.installed import KERAS_2, keras
from horovod.spark.common.on_rank import Run, gpu_index
from horovod.spark.keras.model_bytes import Progress, loaded, progress_of, saved


@dataclass
class Work:
    """A fit.

    Attributes:
        run: see there.
        model: its bytes.
        optimizer: as `keras.optimizers.serialize` gives it.
        loss, loss_weights, metrics: as `compile` takes them.
        custom_objects: to load the model and the optimizer with.
        compression: of hvd.Compression.
        callbacks: the user's.
        checkpoint_callback: the user's, or None.
        prefetch: batches that tf.data prepares.
        validation_steps: of an epoch; None: all rows.
    """

    run: Run
    model: bytes
    optimizer: Mapping[str, Any]
    loss: Any
    loss_weights: Optional[Sequence[float]]
    metrics: Sequence[Any]
    custom_objects: Mapping[str, Any]
    compression: Any
    callbacks: Sequence[Any]
    checkpoint_callback: Optional[Any]
    prefetch: int


def train(work: Work) -> Optional[dict[str, Any]]:
    """Trains on this rank. Rank 0 returns the model's bytes, the history and the outputs' shapes."""
    hvd.init()
    run = work.run
    _pin(run.use_gpu)
    if run.seed is not None:
        keras.utils.set_random_seed(run.seed + hvd.rank())
    checkpoint = run.checkpoint() if hvd.rank() == 0 else None
    checkpoint = broadcast_object(checkpoint, 0, name="spark.checkpoint")
    model = loaded(checkpoint or work.model, work.custom_objects)
    before = progress_of(checkpoint) if checkpoint else Progress({}, 0, ())
    compiled(model, work, hvd.size(), before.optimizer)
    keeper = Keeper(run, before)
    with run.opened(hvd.rank(), hvd.size()) as module, contextlib.ExitStack() as undo:
        ended = threading.Event()
        undo.callback(ended.set)
        training, validation = module.train_data(), module.val_data() if run.module_args["has_val"] else None
        if hasattr(training, "epoch"):
            training.epoch = before.epochs
        callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
        callbacks += [*work.callbacks, *_checkpoints(work, undo), keeper]
        if before.epochs < run.epochs:
            model.fit(
                _fed(training, work, model, ended),
                steps_per_epoch=_steps(training, run.module_args["steps_per_epoch_train"], "train"),
                epochs=run.epochs,
                initial_epoch=before.epochs,
                validation_data=None if validation is None else _fed(validation, work, model, ended),
                validation_steps=validation
                and _steps(validation, run.module_args["steps_per_epoch_val"], "validation"),
                callbacks=callbacks,
                verbose=run.verbose if hvd.rank() == 0 else 0,
            )
        outputs = before.outputs or _output_shapes(model, work, training)
    if hvd.rank() != 0:
        return None
    return {"model": saved(model), "history": keeper.progress.history, "outputs": outputs}


def compiled(model: Any, work: Any, size: int, values: Sequence[np.ndarray[Any, Any]] = ()) -> None:
    """Compiles it with a distributed optimizer whose rate of learning is `size` times the user's.

    Args:
        values: of the optimizer's variables, from a checkpoint.
    """
    optimizer = keras.optimizers.deserialize(dict(work.optimizer), custom_objects=dict(work.custom_objects))
    if values:
        optimizer.build(model.trainable_variables)
        for variable, value in zip(_state(optimizer), values):
            variable.assign(value)
    _scale(optimizer, size)
    if size > 1:
        optimizer = hvd.DistributedOptimizer(optimizer, compression=work.compression or hvd.Compression.none)
    model.compile(
        optimizer=optimizer, loss=work.loss, loss_weights=work.loss_weights, metrics=list(work.metrics) or None
    )


def _scale(optimizer: Any, factor: float) -> None:
    try:
        optimizer.learning_rate = float(np.asarray(optimizer.learning_rate)) * factor
    except (TypeError, ValueError):
        raise UnsupportedError(
            "optimizer has a schedule as its learning rate, which cannot be multiplied by the number of ranks. Give a "
            "number, and the schedule as a callback (LearningRateScheduleCallback of horovod.keras.callbacks)."
        ) from None


def _state(optimizer: Any) -> list[Any]:
    """Its variables but the rate of learning, which is of this job."""
    rate = getattr(optimizer, "_learning_rate", None)
    variables = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [variable for variable in variables if variable is not rate]


class Keeper(keras.callbacks.Callback):  # type: ignore[misc,unused-ignore]
    """After each epoch: the history, and on rank 0 a checkpoint in the store."""

    def __init__(self, run: Run, before: Progress) -> None:
        super().__init__()
        self._run = run
        self.progress = before

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        history = {name: list(values) for name, values in self.progress.history.items()}
        for name, value in (logs or {}).items():
            history.setdefault(name, []).append(float(value))
        values = [np.asarray(keras.ops.convert_to_numpy(v) if not KERAS_2 else v) for v in _state(self.model.optimizer)]
        self.progress = Progress(history, epoch + 1, values, self.progress.outputs)
        if hvd.rank() == 0 and self._run.store.saving_runs():
            self._run.keep(saved(self.model, self.progress), history)


def _checkpoints(work: Work, undo: contextlib.ExitStack) -> list[Any]:
    """The user's callback that writes checkpoints, on rank 0: into a folder that goes to the store."""
    callback = work.checkpoint_callback
    if callback is None or hvd.rank() != 0:
        return []
    remote = work.run.store.to_remote(work.run.id)
    folder = undo.enter_context(remote.get_local_output_dir())
    if hasattr(callback, "filepath"):
        callback.filepath = os.path.join(folder, os.path.basename(str(callback.filepath)) or "best.keras")
    undo.callback(remote.sync, folder)
    return [callback, keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: remote.sync(folder))]


def _fed(batches: Iterable[Any], work: Work, model: Any, ended: threading.Event) -> Any:
    """What `fit` takes: batches until the training has ended. TensorFlow's threads ask for more then, too."""
    shapes = input_shapes(model)

    def endless() -> Iterator[Any]:
        while not ended.is_set():
            for batch in batches:
                if ended.is_set():
                    return
                yield _as_keras(batch, work.run, shapes)

    if not work.prefetch:
        return endless()
    return _prefetched(endless, work.prefetch)


def _prefetched(endless: Callable[[], Iterator[Any]], batches: int) -> Any:
    if keras.config.backend() != "tensorflow":
        raise UnsupportedError(
            "tensorflow_dataset_prefetch_buffer_size needs Keras' backend tensorflow; the readers are ahead without "
            "it. Set it to 0."
        )
    import tensorflow as tf

    source = endless()
    first = next(source)

    def signature(array: Any) -> Any:
        return tf.TensorSpec((None, *array.shape[1:]), array.dtype)

    def again() -> Iterator[Any]:
        yield first
        yield from source

    return tf.data.Dataset.from_generator(again, output_signature=tf.nest.map_structure(signature, first)).prefetch(
        batches
    )


def input_shapes(model: Any) -> list[Optional[tuple[int, ...]]]:
    """Of its inputs' batches, -1 first; None where a length is not fixed."""
    return [_known(tensor.shape) for tensor in getattr(model, "inputs", None) or ()]


def shaped(arrays: Sequence[Any], shapes: Sequence[Optional[tuple[int, ...]]]) -> list[Any]:
    """Features as the model's inputs want them."""
    if len(shapes) != len(arrays):
        return list(arrays)
    return [array if shape is None else np.reshape(array, shape) for array, shape in zip(arrays, shapes)]


def _known(shape: Sequence[Optional[int]]) -> Optional[tuple[int, ...]]:
    lengths = tuple(shape)[1:]
    return None if None in lengths else (-1, *(int(length) for length in lengths if length is not None))


def _as_keras(batch: Mapping[str, Any], run: Run, shapes: Sequence[Optional[tuple[int, ...]]]) -> Any:
    features, labels, weights = run.parts(batch)
    features = shaped(features, shapes)
    x, y = (parts[0] if len(parts) == 1 else tuple(parts) for parts in (features, labels))
    if weights is None:
        return x, y
    return x, y, weights if len(labels) == 1 else tuple([weights] * len(labels))


def _steps(batches: Any, given: Optional[int], what: str) -> int:
    if given is not None:
        return given
    try:
        return len(batches)
    except TypeError:
        raise InvalidArgumentError(f"The data module's batches have no length. Give {what}_steps_per_epoch.") from None


def _output_shapes(model: Any, work: Work, batches: Iterable[Any]) -> list[list[int]]:
    """Of a row, seen in one batch."""
    outputs = getattr(model, "outputs", None)
    if outputs and all(_known(each.shape) is not None for each in outputs):
        return [list(each.shape[1:]) for each in outputs]
    x = next(iter(_fed(batches, work, model, threading.Event())))[0]
    return [list(array.shape[1:]) for array in arrays_of(model, x)]


def arrays_of(model: Any, x: Any) -> list[np.ndarray[Any, Any]]:
    """The model's outputs, one for each label."""
    found = model(x, training=False)
    outputs = list(found) if isinstance(found, (list, tuple)) else [found]
    return [np.asarray(output if KERAS_2 else keras.ops.convert_to_numpy(output)) for output in outputs]


def _pin(use_gpu: bool) -> None:
    """Chooses the GPU of this rank, before Keras' backend uses one."""
    backend = "tensorflow" if KERAS_2 else keras.config.backend()
    gpus = _gpus_of(backend)
    index = gpu_index(
        len(gpus) if use_gpu else 0, hvd.local_rank(), lambda has: allgather_object(has, name="spark.gpus")
    )
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.set_visible_devices([] if index is None else gpus[index], "GPU")
    elif index is not None and backend == "torch":
        import torch

        torch.cuda.set_device(index)


def _gpus_of(backend: str) -> Sequence[Any]:
    if backend == "tensorflow":
        import tensorflow as tf

        found: Sequence[Any] = tf.config.list_physical_devices("GPU")
        return found
    if backend == "torch":
        import torch

        return range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    return ()  # JAX takes what CUDA_VISIBLE_DEVICES leaves it
