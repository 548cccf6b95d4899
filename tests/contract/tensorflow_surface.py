"""Tapes, and the names beside the documented ones that scripts use. `FACTS` as in `tensorflow_facts`."""

from __future__ import annotations

import subprocess
import sys
import traceback
from typing import Any

import numpy as np
import tensorflow as tf
from targets import Env

from horovod.tensorflow.compression import Compressor, FP16Compressor, NoneCompressor


class Widened(NoneCompressor):
    """What a script derives: called on the class itself."""

    @staticmethod
    def compress(tensor: Any) -> Any:
        return tf.cast(tensor, tf.float64), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx)


def tapes(env: Env) -> None:
    """Gradients of all ranks: averaged, in groups, split factors, local sources, without a gradient, sparse."""
    hvd, n, rank = env.hvd, env.size, env.rank
    a, b, unused = tf.Variable([1.0, 2.0]), tf.Variable([[3.0]]), tf.Variable([1.0])
    table = tf.Variable(tf.zeros([4, 2]))
    mean = (n + 1) / 2

    def gradient(**options: Any) -> list[Any]:
        local = options.pop("local", ())
        with tf.GradientTape() as tape:
            looked_up = tf.gather(table, [rank % 4])
            value = (tf.reduce_sum(a) + tf.reduce_sum(b) + tf.reduce_sum(looked_up)) * (rank + 1)
        tape = hvd.DistributedGradientTape(tape, **options)
        for variable in local:
            tape.register_local_source(variable)
        return list(tape.gradient(value, [a, b, unused, table]))

    rows = np.zeros((4, 2), np.float32)
    for other in range(n):
        rows[other % 4] += (other + 1) / n
    for what, options in (
        ("plain", {}),
        ("groups", {"groups": 2}),
        ("lists", {"groups": [[b, a]]}),
        ("predivide", {"gradient_predivide_factor": 4.0}),
        ("dense", {"sparse_as_dense": True}),
        ("fp16", {"compression": hvd.Compression.fp16}),
        ("derived", {"compression": Widened}),
    ):
        for how in (gradient, tf.function(gradient, autograph=False)):
            got = how(**options)
            env.check(f"{what}, a", got[0], np.full(2, mean, np.float32), rtol=1e-6)
            env.check(f"{what}, b", got[1], np.full((1, 1), mean, np.float32), rtol=1e-6)
            env.check_true(f"{what}: no gradient stays none", got[2] is None)
            env.check(f"{what}, table", tf.convert_to_tensor(got[3]), rows, rtol=1e-6)
    own = gradient(local=[a])
    env.check("local, scaled", own[0], np.full(2, (rank + 1) / n, np.float32), rtol=1e-6)
    own = gradient(local=[a], scale_local_gradients=False)
    env.check("local", own[0], np.full(2, rank + 1.0, np.float32))
    env.raises("predivide a sum", ValueError, lambda: gradient(gradient_predivide_factor=2.0, op=hvd.Sum))
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        value = a * float(rank)
    env.check("as a context", tape.gradient(value, a), np.full(2, (n - 1) / 2, np.float32), rtol=1e-6)
    tape.register_local_source(a)
    local, others = tape.get_local_and_global_gradients(value, [a, b])
    env.check("sorted", [len(local), len(others)], [1, 1])
    local, others = tape.get_local_and_global_gradients(value, [a, b], use_generic_names=True)
    env.check_true("by numbers", local[0][0] is a and others[0] == (b, None))
    (again,) = tape._allreduce_grads([tf.fill([2], rank + 1.0)], [b])
    env.check("by itself", again, np.full(2, mean, np.float32), rtol=1e-6)


class DoublingTape(tf.GradientTape):
    """A user's own."""

    def gradient(self, *args: Any, **kwargs: Any) -> Any:
        return tf.nest.map_structure(lambda gradient: 2 * gradient, super().gradient(*args, **kwargs))


def tapes_of_users(env: Env) -> None:
    """A class derived from TensorFlow's tape keeps what it does."""
    variable = tf.Variable([1.0, 2.0])
    with DoublingTape() as tape:
        value = tf.reduce_sum(variable) * (env.rank + 1.0)
    tape = env.hvd.DistributedGradientTape(tape)
    env.check_true("its class", isinstance(tape, (DoublingTape)) and isinstance(tape, env.hvd._DistributedGradientTape))
    env.check("its gradient", tape.gradient(value, variable), np.full(2, env.size + 1, np.float32), rtol=1e-6)


def tapes_and_optimizers(env: Env) -> None:
    """What a tape has added up an optimizer does not add up again, and what it has not, it does."""
    hvd, total = env.hvd, env.size * (env.size + 1) / 2
    variable = tf.Variable([0.0, 0.0])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), op=hvd.Sum)
    for step, distributed in enumerate((True, False, True), 1):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(variable) * (env.rank + 1.0)
        if distributed:
            tape = hvd.DistributedGradientTape(tape, op=hvd.Sum)
        optimizer.apply_gradients(zip(tape.gradient(value, [variable]), [variable]))
        env.check(f"step {step}", variable, np.full(2, -step * total, np.float32))


def import_paths(env: Env) -> None:
    """What public scripts import and call beside the documented names."""
    from horovod.tensorflow import mpi_ops, util
    from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
    from horovod.tensorflow.gradient_aggregation_eager import LocalGradientAggregationHelperEager

    hvd, n, rows = env.hvd, env.size, tf.ones([env.size, 2])
    total = np.full((n, 2), n, np.float32)
    env.check_true("compressors", issubclass(FP16Compressor, Compressor) and hvd.Compression.none is NoneCompressor)
    # In a process that has imported nothing else: any import of the module would set the attribute.
    alone = "import horovod.tensorflow as hvd; assert hvd.mpi_ops.Sum == hvd.Sum"
    if env.rank == 0:
        done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, timeout=100, check=False)
        env.check("as an attribute", (done.returncode, done.stderr[-300:] if done.returncode else ""), (0, ""))
    env.check("sum", mpi_ops._allreduce(rows, name="paths"), total)
    env.check("sums", mpi_ops._grouped_allreduce([rows, rows], name="paths")[1], total)
    env.check("scattered", mpi_ops._reducescatter(rows, name="paths"), total[:1])
    env.check("all scattered", mpi_ops._grouped_reducescatter([rows, rows])[1], total[:1])
    env.check("average", mpi_ops._allreduce(rows, op=hvd.Average, prescale_factor=2.0), total * 2 / n)
    env.check("name", mpi_ops._normalize_name("layer_1/w:0"), "layer_1_w_0")
    text = env.raises("operators", AttributeError, lambda: mpi_ops.MPI_LIB.horovod_size())
    env.check_true(text, text.endswith("Use hvd.size_op."))
    env.check_true("helpers", hvd.LocalGradientAggregationHelper is LocalGradientAggregationHelper)
    env.check_true("helpers", hvd.LocalGradientAggregationHelperEager is LocalGradientAggregationHelperEager)
    calls: list[int] = []
    remembered = util._cache(lambda x: calls.append(x) or 2 * x)
    env.check("remembered", [remembered(3), remembered(3), calls], [6, 6, [3]])
    in_graph = util._make_subgraph(lambda: tf.constant(tf.executing_eagerly()))
    env.check("subgraph", bool(in_graph()), False)
    env.check_true("eager", util._executing_eagerly())
    reduce = hvd._make_allreduce_grads_fn("paths", "", "", hvd.Compression.none, False, hvd.Sum, 1.0, 1)
    reduced = reduce([rows, None, 2 * rows])
    env.check("gradients", reduced[2], 2 * total)
    env.check_true("none stays none", reduced[1] is None)
    plain = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    env.check_true("TensorFlow 1", isinstance(plain, hvd._LegacyOptimizer))
    env.check_true("its wrapper", isinstance(hvd.DistributedOptimizer(plain), hvd._DistributedOptimizer))
    adasum = hvd.DistributedOptimizer(plain, op=hvd.Adasum)
    env.check_true("its other wrapper", isinstance(adasum, hvd._DistributedAdasumOptimizer))
    kept = [tf.Variable(1.0)]
    state = hvd.elastic.TensorFlowState(kept)
    env.check_true("of a state", state.variables == kept and state.session is None)


class Witness(NoneCompressor):
    """Counts the functions around it that AutoGraph has rewritten."""

    rewritten: list[int] = []

    @classmethod
    def compress(cls, tensor: Any) -> Any:
        frames = traceback.extract_stack()
        cls.rewritten.append(sum("__autograph_generated_file" in frame.filename for frame in frames))
        return tensor, None


def runs_as_written(env: Env) -> None:
    """AutoGraph rewrites the script's function, and nothing that it calls here: that takes seconds."""
    hvd, variable = env.hvd, tf.Variable([1.0])

    def calls() -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(variable)
        gradient = hvd.DistributedGradientTape(tape, compression=Witness).gradient(value, [variable])
        return hvd.allreduce(gradient[0], compression=Witness), hvd.reducescatter(tf.ones([2]), compression=Witness)

    tf.function(calls)()
    env.check("rewritten functions around each", sorted(set(Witness.rewritten)), [1])


FACTS = (tapes, runs_as_written, tapes_of_users, tapes_and_optimizers, import_paths)
