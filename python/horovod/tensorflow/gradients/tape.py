"""Gradient tapes whose gradients are those of all ranks: `DistributedGradientTape` and its partial variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod._core.errors import InvalidArgumentError
from horovod._core.life.process_sets import ProcessSet, global_process_set
from horovod._core.operations.reduce_ops import Average
from horovod._core.tensors.compression import Compressor
from horovod._core.training.groups import chosen_groups
from horovod._core.training.reduction_options import ReductionOptions
from horovod.tensorflow.as_written import as_written
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.gradients import reduction_notes
from horovod.tensorflow.gradients.reducer import GradientReduction, Groups

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape", "local_variables_of"]


class _DistributedGradientTape(tf.GradientTape):
    """What a tape becomes: it goes on recording, and its `gradient` is reduced. `_around` makes it, of a class that is
    derived from the tape's own too."""

    _hvd_class: Any
    _hvd_reduction: GradientReduction

    @as_written
    def register_local_source(self, source: Any) -> None:
        """Excludes this variable's gradient from the reduction: every rank has its own values of it."""
        self._hvd_reduction.register_local(source)

    @as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """The gradients of `target` with respect to `sources`, combined over the ranks. Collective. A distributed
        optimizer that is given them does not add them up again.

        Args:
            target, sources, output_gradients, unconnected_gradients: as of `tf.GradientTape.gradient`.
            use_generic_names: number the operations instead of naming them after the variables, for variables whose
                names differ between the ranks.

        Returns:
            In the structure of `sources`.
        """
        own = super().gradient(target, sources, output_gradients, unconnected_gradients)
        reduced = self._allreduce_grads(tf.nest.flatten(own), tf.nest.flatten(sources), use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    @as_written
    def _allreduce_grads(self, grads: Sequence[Any], vars: Sequence[Any], use_generic_names: bool = False) -> list[Any]:
        reduced = self._hvd_reduction.reduce(grads, vars, "DistributedGradientTape", use_generic_names)
        reduction_notes.note(reduced, vars, self._hvd_reduction)
        return reduced

    @as_written
    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """As `gradient`, sorted: (source, gradient) pairs of the local sources, and of all others. Collective."""
        flat = tf.nest.flatten(sources)
        gradients = self.gradient(target, flat, output_gradients, use_generic_names, unconnected_gradients)
        pairs = list(zip(flat, tf.nest.flatten(gradients)))
        is_local = self._hvd_reduction.is_local
        return [p for p in pairs if is_local(p[0])], [p for p in pairs if not is_local(p[0])]


def _around(tape: tf.GradientTape, reduction: GradientReduction) -> _DistributedGradientTape:
    """The tape, reducing. Its recording may be under way, or done; a class of the user's keeps its methods."""
    own: Any = getattr(tape, "_hvd_class", type(tape))  # of one that is wrapped again the first
    kind = type(own.__name__, (_DistributedGradientTape, own), {"__doc__": own.__doc__})
    made: _DistributedGradientTape = object.__new__(kind)
    made.__dict__.update(tape.__dict__)
    made._hvd_class, made._hvd_reduction = own, reduction
    return made


@as_written
def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes a tape's gradients those of all ranks. Local; the tape's `gradient` is collective.

    Args:
        gradtape: recording, or done.
        device_dense, device_sparse: devices of the operators; "" = TensorFlow's choice.
        compression: hvd.Compression.none, fp16 or bf16.
        sparse_as_dense: make IndexedSlices dense first.
        op: hvd.Average, Sum or Adasum.
        gradient_predivide_factor: f splits the averaging: 1/f before the sum, f/size after it.
        num_groups: deprecated; use `groups`.
        groups: the number of groups, or lists of variables, each a group.
        process_set: the ranks that take part.
        scale_local_gradients: divide the gradients of local sources by the number of ranks.

    Raises:
        ValueError: no tape, predivide with op other than Average, or no grouping.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise InvalidArgumentError(
            f"DistributedGradientTape wraps a tf.GradientTape. Received: {type(gradtape).__name__}. For an optimizer "
            "use hvd.DistributedOptimizer."
        )
    options = ReductionOptions(op, compression, gradient_predivide_factor, 1, process_set)
    chosen = chosen_groups(groups, num_groups)
    reduction = GradientReduction(options, device_dense, device_sparse, sparse_as_dense, chosen, scale_local_gradients)
    return _around(gradtape, reduction)


@as_written
def PartialDistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As `DistributedGradientTape`, leaving alone the gradients of local layers, which differ between the ranks.

    Args:
        local_layers: a Keras layer, or a list of them.

    Raises:
        ValueError: something that is not a layer.
    """
    tape = DistributedGradientTape(
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
        groups, process_set, scale_local_gradients,
    )  # fmt: skip
    for variable in local_variables_of(local_layers):
        tape.register_local_source(variable)
    return tape


def local_variables_of(layers: Any) -> list[Any]:
    """The trainable weights of a layer or a list of layers.

    Raises:
        InvalidArgumentError: something that is not a layer.
    """
    if layers is None:
        return []
    found: list[Any] = []
    for layer in layers if isinstance(layers, (list, tuple)) else [layers]:
        weights = getattr(layer, "trainable_weights", None)
        if not callable(getattr(layer, "build", None)) or weights is None:
            raise InvalidArgumentError(
                f"local_layers must be a Keras layer or a list of layers. Received: {type(layer).__name__}."
            )
        found += weights
    return found
