"""`load_model`: a saved Keras model whose optimizer becomes a distributed one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from horovod._core.errors import UnsupportedError
from horovod._core.tensors.compression import Compressor
from horovod.keras.compression import Compression
from horovod.keras.installed import KERAS_2, keras
from horovod.keras.optimizer import DistributedOptimizer, is_distributed

__all__ = ["load_model"]


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Iterable[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Compressor = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model that was saved with or without Horovod; its optimizer, if it was saved with one, becomes a
    distributed one that goes on where the saved one was. Local.

    Args:
        filepath: as of `keras.saving.load_model`.
        custom_optimizers: classes of optimizers that are not Keras' own.
        custom_objects: as of `keras.saving.load_model`; what makes a distributed optimizer has its way.
        compression: of the distributed optimizer.
        legacy_opts: the file has a legacy optimizer of Keras 2. Not needed: the file says so itself.

    Raises:
        NotImplementedError: `legacy_opts` is true and this is Keras 3, which has no legacy optimizers.
        NotInitializedError: `init` has not been called.
    """
    if legacy_opts and not KERAS_2:
        raise UnsupportedError("Keras 3 has no legacy optimizers; leave legacy_opts at False.")
    objects = {kind.__name__: kind for kind in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**objects, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        model.optimizer = DistributedOptimizer(optimizer, compression=compression)
    return model
