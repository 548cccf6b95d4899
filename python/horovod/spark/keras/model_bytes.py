"""Keras models as bytes: the `.keras` format, whose archive may hold more than the model: what a run goes on with.

Such bytes are a checkpoint that `keras.saving.load_model` opens, too.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Optional

import numpy as np

from horovod.keras.installed import keras

_FURTHER: Final = "horovod/"  # the members of the archive that are ours


class Progress(NamedTuple):
    """How far a run has come.

    Attributes:
        history: of Keras, by name, a value for each epoch.
        epochs: that are over.
        optimizer: the values of its variables, without the rate of learning.
        outputs: shapes of the model's outputs.
    """

    history: Mapping[str, Sequence[float]]
    epochs: int
    optimizer: Sequence[np.ndarray[Any, Any]]
    outputs: Sequence[Sequence[int]] = ()


def saved(model: Any, progress: Optional[Progress] = None) -> bytes:
    """The bytes of a model, without what it was compiled with."""
    with tempfile.TemporaryDirectory(prefix="horovod-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path, include_optimizer=False)
        if progress is not None:
            values = io.BytesIO()
            np.savez(values, *progress.optimizer)
            facts = {"history": progress.history, "epochs": progress.epochs, "outputs": progress.outputs}
            with zipfile.ZipFile(path, "a") as archive:
                archive.writestr(f"{_FURTHER}progress.json", json.dumps(facts))
                archive.writestr(f"{_FURTHER}optimizer.npz", values.getvalue())
        with open(path, "rb") as file:
            return file.read()


def loaded(data: bytes, custom_objects: Optional[Mapping[str, Any]] = None) -> Any:
    """The model, not compiled."""
    with tempfile.TemporaryDirectory(prefix="horovod-") as folder:
        path = os.path.join(folder, "model.keras")
        with open(path, "wb") as file:
            file.write(data)
        return keras.saving.load_model(path, custom_objects=dict(custom_objects or {}), compile=False)


def progress_of(data: bytes) -> Progress:
    """What was saved beside the model."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        facts = json.loads(archive.read(f"{_FURTHER}progress.json"))
        with np.load(io.BytesIO(archive.read(f"{_FURTHER}optimizer.npz")), allow_pickle=False) as values:
            return Progress(
                facts["history"], facts["epochs"], [values[name] for name in values.files], facts["outputs"]
            )
