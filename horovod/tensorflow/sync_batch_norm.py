"""Batch normalization over the batches of all ranks, as if they were one batch."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.reduce_ops import Sum
from horovod.tensorflow import ops

__all__ = ["SyncBatchNormalization"]


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
        kwargs.setdefault("name", None)
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        """Mean and variance over all ranks, of the shape that the layer keeps. Keras calls this in training."""
        values = tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else inputs
        axes = self._reduction_axes
        one = tf.ones([], values.dtype) if mask is None else tf.cast(tf.expand_dims(mask, -1), values.dtype)
        weights = tf.broadcast_to(one, tf.shape(values))
        name = f"{self.path if hasattr(self, 'path') else self.name}"
        sums, counts = self._total(name, [tf.reduce_sum(values * weights, axes), tf.reduce_sum(weights, axes)])
        mean = sums / counts
        around = values - tf.reshape(mean, self._broadcast_shape(values))
        (squares,) = self._total(f"{name}.variance", [tf.reduce_sum(around * around * weights, axes)])
        return mean, squares / counts

    def _broadcast_shape(self, values: Any) -> list[int]:
        axis = self.axis if isinstance(self.axis, int) else self.axis[0]
        shape = [1] * len(values.shape)
        shape[axis] = -1
        return shape

    @staticmethod
    def _total(name: str, tensors: list[Any]) -> list[Any]:
        return ops.grouped_allreduce(tensors, op=Sum, name=f"SyncBatchNormalization.{name}")
