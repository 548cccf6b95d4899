"""Adding gradients up over passes (`backward_passes_per_step=2`) when something is not as usual: a reduction that
fails, gradients that are None in one pass only. With the Keras that `tf.keras` is. Run on every rank; raises on the
first thing that is not so."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

MODES: dict[str, Callable[..., Any]] = {
    "eager": lambda step: step,
    "function": tf.function,
    "xla": lambda step: tf.function(step, jit_compile=True),
}
FAILURES = (tf.errors.FailedPreconditionError, tf.errors.InternalError)  # the latter inside XLA


def close(what: str, got: Any, expected: Any) -> None:
    if not np.allclose(got, expected, rtol=1e-5):
        raise AssertionError(f"rank {hvd.rank()}, {what}: got {got}, expected {expected}")


class Breakable:
    """A compression that sends, while it is broken, another shape on every rank."""

    broken = False

    def __init__(self) -> None:
        self.sent: set[int] = set()

    def compress(self, tensor: Any) -> Any:
        self.sent.add(tensor.shape[0])
        return (tf.ones([hvd.rank() + 2]) if self.broken else tensor), tensor.shape

    def decompress(self, tensor: Any, shape: Any) -> Any:
        return tf.fill(shape, tensor[0]) if self.broken else tensor


class Training:
    """Variables, from zero on, and steps that give each this rank's gradient, or none."""

    sparse = False

    def __init__(self, n: int, mode: str, plain: Any = None, **options: Any) -> None:
        make = getattr(tf.keras, "Variable", tf.Variable)
        self.variables = [make(np.zeros(2 + i, "float32")) for i in range(n)]
        self.compression = Breakable()
        self.optimizer = hvd.DistributedOptimizer(
            plain or tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2, compression=self.compression, **options
        )
        self.optimizer.build(self.variables)
        self._compile = MODES[mode]
        self._steps: dict[Any, Any] = {}

    def step(self, *present: bool, broken: bool = False) -> None:
        """One pass; a function of its own for each set of gradients, as tracing makes them."""

        def run() -> None:
            gradients = [self._gradient(2 + i) if there else None for i, there in enumerate(present)]
            self.optimizer.apply_gradients(zip(gradients, self.variables))

        self.compression.broken = broken
        self._steps.setdefault((present, broken), self._compile(run))()

    def _gradient(self, size: int) -> Any:
        gradient = tf.ones(size) * (hvd.rank() + 1.0)
        return tf.IndexedSlices(gradient[:1], tf.constant([0]), tf.constant([size])) if self.sparse else gradient

    @property
    def values(self) -> list[float]:
        """In units of the mean gradient, descended."""
        return [float(-variable.numpy()[0]) / ((hvd.size() + 1) / 2) for variable in self.variables]


def failed_reduction(mode: str) -> None:
    """Steps after one that failed update as before, with their own gradients."""
    if hvd.size() == 1:
        return  # nobody to disagree with
    training = Training(1, mode)
    training.step(True)
    try:
        training.step(True, broken=True)
    except FAILURES as error:
        if "shape" not in str(error):
            raise
    else:
        raise AssertionError("shapes that differ were taken")
    seen = []
    for _ in range(4):
        training.step(True)
        seen.append(training.values[0])
    if mode == "xla":  # which does not say how much of a failed step it has written: only that updates go on
        seen = [0.0, 2.0, *(value - seen[1] + 2 for value in seen[2:])]
    close(f"after a failure, {mode}", seen, [0, 2, 2, 4])


def gradients_that_come_and_go(mode: str) -> None:
    """None counts as zero, whichever pass it is in; the next step begins with nothing."""
    with_none, whole = (True, False), (True, True)
    for order in ((whole, with_none), (with_none, whole)):
        training = Training(2, mode)
        for present in order:
            close(f"before the last pass, {mode}", training.values, [0, 0])
            training.step(*present)
        close(f"gradients {order}, {mode}", training.values, [2, 1])
        training.step(*whole)
        training.step(*whole)
        close(f"the step after {order}, {mode}", training.values, [4, 3])


def never_a_gradient(mode: str) -> None:
    """Nothing is sent for such a variable."""
    training = Training(2, mode)
    for _ in range(2):
        training.step(True, False)
    close(f"never, {mode}", training.values, [2, 0])
    close(f"sizes sent, {mode}", sorted(training.compression.sent), [2])


def sparse_gradients(mode: str) -> None:
    """Made dense; and None in the second pass."""
    training = Training(2, mode, sparse_as_dense=True)
    training.sparse = True
    training.step(True, True)
    training.step(True, False)
    close(f"sparse, {mode}", training.values, [2, 1])
    close(f"no slice of it, {mode}", training.variables[0].numpy()[1], 0)


def steps_are_passes(mode: str) -> None:
    """`iterations` advances in every pass: a schedule of the learning rate counts as with one pass per step."""
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([2], [1.0, 0.25])
    training = Training(1, mode, plain=tf.keras.optimizers.SGD(schedule))
    seen = []
    for step in range(1, 7):
        training.step(True)
        close(f"iterations, {mode}", training.optimizer.iterations, step)
        seen.append(training.values[0])
    close(f"rates, {mode}", seen, [0, 2, 2, 2.5, 2.5, 3])


def two_lists(mode: str) -> None:
    """Variables that take their steps apart from one another have their passes apart too."""
    training = Training(2, mode)
    first, second = training.variables

    def step_of(variable: Any, scale: float) -> Any:
        pairs = [(tf.ones(variable.shape) * scale, variable)]
        return MODES[mode](lambda: training.optimizer.apply_gradients(pairs))

    steps = [step_of(first, 1.0), step_of(second, 100.0)]
    for expected in (0, 2, 2, 4):
        for step in steps:
            step()
        close(f"two lists, {mode}", [first.numpy()[0], second.numpy()[0]], [-expected, -100.0 * expected])


def local_variables_of_a_helper(mode: str) -> None:
    """The gradients of a rank's own variables are added up and divided by the number of ranks, or not; never sent."""
    make = MODES[mode]
    for scaled in (True, False):
        own, shared = tf.Variable([0.0]), tf.Variable([0.0])
        sent: list[int] = []

        def reduce(gradients: Any, variables: Any, sent: list[int] = sent) -> Any:
            sent.append(len(variables))
            return hvd.grouped_allreduce(gradients, op=hvd.Sum, name="helper")

        helper = hvd.LocalGradientAggregationHelperEager(2, reduce, False, False, scale_local_gradients=scaled)
        helper.register_local_var(own)

        def run(own: Any = own, shared: Any = shared, helper: Any = helper) -> None:
            gradients = helper.compute_gradients([tf.constant([hvd.rank() + 1.0])] * 2, [own, shared])
            helper.apply_gradients(
                lambda: [v.assign_add(g) for v, g in zip((own, shared), gradients)], optimizer=object()
            )

        step = make(run)
        step()
        step()
        close(f"shared, {mode}", shared, [hvd.size() * (hvd.size() + 1.0)])
        close(f"own, {mode}", own, [2 * (hvd.rank() + 1.0) / (hvd.size() if scaled else 1)])
        close(f"sent, {mode}", sent, [1] * len(sent))


def main() -> None:
    hvd.init()
    cases = (
        failed_reduction, gradients_that_come_and_go, never_a_gradient, sparse_gradients, steps_are_passes,
        two_lists, local_variables_of_a_helper,
    )  # fmt: skip
    for case in cases:
        for mode in MODES:
            case(mode)
        print(f"passed {case.__name__}", flush=True)


if __name__ == "__main__":
    main()
