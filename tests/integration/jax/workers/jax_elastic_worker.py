"""Cases of elastic training: what a state of pytrees keeps, and which failures the loop sees."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jobs.case_runner import run_cases

import horovod.jax as hvd
from horovod._core.life import session


def same(tree, expected):
    assert jax.tree_util.tree_structure(tree) == jax.tree_util.tree_structure(expected), tree
    jax.tree_util.tree_map(np.testing.assert_allclose, tree, expected)


def own(*shape):
    """Other values on each rank."""
    return jnp.arange(float(np.prod(shape))).reshape(shape) + 10 * hvd.rank()


def case_a_state_is_restored_when_unfinished_steps_have_ended():
    """Their collectives must not be those of the next life."""
    state = hvd.elastic.JaxState(params=jnp.ones(2))
    state.save()
    unfinished = state.params = own(2) + 1
    waited_for = []
    with mock.patch.object(jax, "block_until_ready", waited_for.append):
        state.restore()
    assert any(each is unfinished for each in waited_for)
    same(state.params, np.ones(2))


def case_elastic_training_goes_on_after_a_failure_in_a_step():
    starts, resets = [], []
    step = jax.jit(lambda w: w - 0.1 * hvd.allreduce(w * (1 + hvd.rank()), name="elastic"), donate_argnums=0)
    state = hvd.elastic.JaxState(w={"kernel": jnp.full(3, 1.0 + hvd.rank())}, number=0)
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        starts.append(state.number)
        while state.number < 6:
            if (state.number, len(starts), hvd.rank()) == (3, 1, hvd.size() - 1):
                session.require().engine.abort(4, "a failure made by the test")
            state.w = {"kernel": step(state.w["kernel"])}
            state.number += 1
            if state.number % 2 == 0:
                state.commit()
        return state.w

    mean = 1 + (hvd.size() - 1) / 2
    same(train(state), {"kernel": np.full(3, (1 - 0.1 * mean) ** 6)})
    assert starts == [0, 2] and resets == [hvd.size()]
    state._refuse_more_than_is_written()  # a durable commit has all of it


class Unfinished:
    """The result of a step that fails after the training function has returned."""

    def block_until_ready(self):
        raise jax.errors.JaxRuntimeError("FAILED_PRECONDITION: Horovod PeerLostError: rank 7 has died.")


def case_a_last_step_that_fails_is_run_again():
    starts = []
    state = hvd.elastic.JaxState(w=jnp.ones(2), last=None)

    @hvd.elastic.run
    def train(state):
        starts.append(state.last)
        state.last = Unfinished() if len(starts) == 1 else jnp.ones(2)
        return {1: "keys", "that": "JAX cannot sort"}

    assert train(state) == {1: "keys", "that": "JAX cannot sort"}
    assert starts == [None, None]
    same(state.last, np.ones(2))


def case_passes_of_a_step_are_not_given_to_others():
    """They begin again: the sums of rank 0 are of its gradients alone."""
    tx = hvd.DistributedOptimizer(optax.sgd(1.0, momentum=0.5), backward_passes_per_step=2)
    params = {"w": jnp.ones(3)}
    state = hvd.elastic.JaxState(opt={"inside": (tx.init(params), None)})
    for _ in range(3):
        _, passes = tx.update({"w": own(3)}, state.opt["inside"][0], params)
        state.opt = {"inside": (passes, None)}
    momentum = jax.tree_util.tree_leaves(passes.inner)
    assert passes.passes == 1
    state.save()
    state.sync()
    passes = state.opt["inside"][0]
    assert passes.passes == 0 and not passes.sums["w"].any()
    same(jax.tree_util.tree_leaves(passes.inner), momentum)
    _, passes = tx.update({"w": own(3)}, passes, params)
    updates, _ = tx.update({"w": own(3)}, passes, params)
    mean = 2 * (np.arange(3.0) + 10 * (hvd.size() - 1) / 2)
    same(updates, {"w": -1.5 * mean})


def case_what_is_one_object_stays_one():
    history = [hvd.rank()]
    state = hvd.elastic.JaxState(log={"seen": history, "again": history, 1: None})
    state.sync()
    assert state.log["seen"] is state.log["again"] and state.log["again"] == [0]


def case_what_a_state_holds():
    """Random keys, dictionaries whose keys JAX cannot sort, memory that a function has taken over."""
    state = hvd.elastic.JaxState(key=jax.random.key(hvd.rank()), mixed={1: own(2), "a": {2: own(1), "b": None}}, gone=0)
    state.save()
    state.mixed[1] = state.key = None
    state.restore()
    same(state.mixed[1], own(2))
    assert (state.key == jax.random.key(hvd.rank())).all()
    state.sync()
    same([state.mixed[1], state.mixed["a"][2]], [np.arange(2.0), np.zeros(1)])
    assert (state.key == jax.random.key(0)).all()

    @hvd.elastic.run
    def train(state):
        state.gone = own(3)
        jax.jit(lambda t: t + 1, donate_argnums=0)(state.gone)

    train(state)
    assert state.gone.is_deleted()
    state.restore()
    assert state.gone == 0


if __name__ == "__main__":
    run_cases(globals(), hvd, process_sets="dynamic")
