"""Batch normalization over the batches of all ranks, as if they were one batch."""

from __future__ import annotations

import weakref
from typing import Any, Final, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.operations.reduce_ops import Sum
from horovod._core.training.ordinals import Ordinals
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.collectives import ops

__all__ = ["SyncBatchNormalization"]

# In the order in which layers first normalize over the ranks: Keras counts those, too, of models that only one rank has
# built. Functions that were traced in an earlier session keep their names.
_layers: Final = Ordinals(weakref.WeakKeyDictionary(), by_session=False)
_KERAS_2 = not hasattr(tf.keras, "ops")  # which came with Keras 3


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """A Keras batch normalization whose statistics in training are those of all ranks' batches together.

    Collective in training: all ranks must run the layer, forward and backward. Batches may differ in size. The sums of
    both moments are reduced one after the other, so that the variance is one around the common mean.

    Args:
        fused: must be False: fused kernels keep the statistics to themselves.
        **kwargs: of the Keras layer.

    Raises:
        ValueError: `fused` is true or None.
    """

    def __init__(self, fused: Optional[bool] = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise InvalidArgumentError("SyncBatchNormalization does not support fused=True.")
        super().__init__(**({**kwargs, "fused": False} if _KERAS_2 else kwargs))

    @as_written
    def _moments(
        self, inputs: Any, mask_or_axes: Any = None, keep_dims: bool = False, mask: Any = None
    ) -> tuple[Any, Any]:
        """Mean and variance over all ranks, for the layer's `call` in training. Keras 3 gives the mask, Keras 2 the
        axes first."""
        axes, mask = (mask_or_axes, mask) if _KERAS_2 else (self._reduction_axes, mask_or_axes)
        values = tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else inputs
        one = tf.ones([], values.dtype) if mask is None else tf.cast(tf.expand_dims(mask, -1), values.dtype)
        weights = tf.broadcast_to(one, tf.shape(values))
        name = f"SyncBatchNormalization.{_layers.of(self)}"
        sums, counts = self._total(name, [values * weights, weights], axes)
        mean = sums / counts
        (squares,) = self._total(f"{name}.variance", [tf.square(values - mean) * weights], axes)
        variance = squares / counts
        return (mean, variance) if keep_dims else (tf.squeeze(mean, axes), tf.squeeze(variance, axes))

    @staticmethod
    def _total(name: str, tensors: list[Any], axes: Any) -> list[Any]:
        own = [tf.reduce_sum(tensor, axes, keepdims=True) for tensor in tensors]
        return ops.grouped_allreduce(own, op=Sum, name=name, ignore_name_scope=True)
