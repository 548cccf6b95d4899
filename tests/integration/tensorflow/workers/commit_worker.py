"""Cases of commits of TensorFlow variables: of the values of their moment, whoever changes them while the background
copies."""

import numpy as np
import tensorflow as tf
from jobs.aborted import aborted_on_a_gpu
from jobs.case_runner import expect_raises, run_cases

import horovod.tensorflow as hvd
from horovod._core.errors import HorovodInternalError
from horovod._core.training.elastic import snapshot


class Held:
    """The background, which does its work when the case says so."""

    def __init__(self):
        self.work = []

    def put(self, work):
        self.work.append(work)

    def __enter__(self):
        self.before, snapshot._background = snapshot._background, lambda: self
        return self

    def __exit__(self, *_):
        self.do()
        snapshot._background = self.before

    def do(self):
        done = len(self.work)
        while self.work:
            self.work.pop(0)()
        return done


def check(variables, change):
    """What `change` does to the variables before they are copied is not in the commit; twice, for both memories."""
    state = hvd.elastic.TensorFlowState(variables, step=0)
    for _ in range(3):
        before = [np.array(variable) for variable in variables]
        with Held() as held:
            state.save()
            change()
            assert any((np.array(now) != then).any() for now, then in zip(variables, before)), "nothing was changed"
            assert held.do() == 1, "nothing was left to do in the background"
        for kept, then in zip(state._values.value, before):
            np.testing.assert_array_equal(kept, then)
        state.restore()
        for now, then in zip(variables, before):
            np.testing.assert_array_equal(np.array(now), then)
        for variable in variables:
            variable.assign_add(tf.ones_like(variable))


def made(count=2):
    return [tf.Variable(tf.random.normal((300, 200))) for _ in range(count)]


def case_assignments():
    variables = made()

    def change():
        variables[0].assign(tf.zeros((300, 200)))
        variables[1].assign_sub(tf.ones((300, 200)))

    check(variables, change)


def case_rows_and_slices():
    variables = made(3)

    def change():
        variables[0].scatter_nd_update([[0], [7]], tf.ones((2, 200)))
        variables[1].scatter_add(tf.IndexedSlices(tf.ones((2, 200)), [1, 2]))
        variables[2][5, :7].assign(tf.fill((7,), 9.0))

    check(variables, change)


def case_functions():
    for compiled in (False, True):
        variables = made()

        @tf.function(jit_compile=compiled)
        def change(variables=variables):
            for variable in variables:
                variable.assign(variable * 2.0 + 1.0)
                variable.assign_add(tf.ones_like(variable))

        check(variables, change)


def case_steps_of_optimizers():
    for compiled in (None, False, True):
        for make in (lambda: tf.optimizers.Adam(0.1), lambda: tf.optimizers.SGD(0.1, momentum=0.9)):
            variables, optimizer = made(), make()
            optimizer.build(variables)

            def change(variables=variables, optimizer=optimizer):
                optimizer.apply_gradients([(tf.ones_like(variable), variable) for variable in variables])

            own = list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
            everything = variables + [getattr(variable, "value", variable) for variable in own]
            everything = [variable for variable in everything if isinstance(variable, tf.Variable)]
            floats = [variable for variable in everything if variable.dtype.is_floating]
            check(floats, change if compiled is None else tf.function(change, jit_compile=compiled))


def case_kinds():
    variables = [
        tf.Variable(3.5),
        tf.Variable(tf.zeros((0, 4))),
        tf.Variable(tf.cast(tf.random.normal((90, 90)), tf.bfloat16)),
        tf.Variable([True, False]),
        tf.Variable(["a", "b"]),
        tf.Variable(tf.range(5, dtype=tf.int64)),
    ]
    state = hvd.elastic.TensorFlowState(variables)
    before = [variable.numpy() for variable in variables]
    for _ in range(3):
        state.save()
        variables[0].assign(1.0)
        variables[2].assign(tf.zeros_like(variables[2]))
        variables[3].assign([False, False])
        variables[4].assign(["c", "d"])
        variables[5].assign_add(tf.ones_like(variables[5]))
        state.restore()
        for variable, then in zip(variables, before):
            np.testing.assert_array_equal(np.array(variable.numpy()), np.array(then))


def case_a_tensor_in_a_state_stays_one():
    state = hvd.elastic.TensorFlowState(made(1), best=tf.constant([1.0, 2.0]))
    state.best = tf.constant([3.0])
    state.restore()
    assert tf.is_tensor(state.best) and state.best.numpy().tolist() == [1.0, 2.0]


def case_two_memories_and_no_more():
    variables = made(1)
    state = hvd.elastic.TensorFlowState(variables)
    kept = []
    for _ in range(6):
        variables[0].assign_add(tf.ones((300, 200)))
        state.save()
        kept.append(state._values.value[0])
    assert len({id(array) for array in kept}) == 2


def case_what_was_aborted_on_a_gpu_is_not_kept():
    """A rank dies while the GPU is at work for a function that XLA has compiled: what comes out of it is anything."""
    variables = made(1)
    state = hvd.elastic.TensorFlowState(variables, step=1)
    for _ in range(2):  # into both memories
        state.save()
    kept = variables[0].numpy()
    variables[0].assign_add(tf.ones((300, 200)))
    state.step = 2
    with aborted_on_a_gpu():
        expect_raises(HorovodInternalError, state.save, "was not saved")
    state.restore()
    np.testing.assert_array_equal(variables[0].numpy(), kept)
    assert state.step == 1


if __name__ == "__main__":
    run_cases(globals(), hvd)
