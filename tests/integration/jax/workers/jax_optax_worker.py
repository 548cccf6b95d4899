"""Cases of distributed optimizers of optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jobs.case_runner import expect_raises, run_cases

import horovod.jax as hvd
from horovod._core.errors import InvalidArgumentError, MismatchError

X = np.random.default_rng(3).normal(size=(16, 4)).astype("float32")
Y = X @ np.arange(4.0, dtype="float32")


def loss_of(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def start():
    return {"w": jnp.ones(4), "b": jnp.zeros(())}


def train(tx, batches, **jit):
    """Parameters after a step with each batch."""

    def step(params, state, x, y):
        updates, state = tx.update(jax.grad(loss_of)(params, x, y), state, params)
        return optax.apply_updates(params, updates), state

    step, params = jax.jit(step, **jit), start()
    state = tx.init(params)
    for batch in batches:
        params, state = step(params, state, X[batch], Y[batch])
    return params


def shares(steps):
    """This rank's half of every batch of eight rows."""
    return [slice(8 * (n % 2) + hvd.rank(), 8 * (n % 2) + 8, hvd.size()) for n in range(steps)]


def close(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def everywhere_equal(params):
    assert len({np.asarray(leaf).tobytes() for one in hvd.allgather_object(params) for leaf in [one["w"]]}) == 1


def case_as_alone_with_the_whole_batch():
    def inner():
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))

    alone = train(inner(), [slice(8 * (n % 2), 8 * (n % 2) + 8) for n in range(4)])
    together = train(hvd.DistributedGradientTransformation(inner()), shares(4), donate_argnums=(0, 1))
    close(together, alone)
    everywhere_equal(together)
    chained = optax.chain(hvd.allreduce_gradients(groups=2, gradient_predivide_factor=2.0), inner())
    close(train(chained, shares(4)), alone)
    assert hvd.DistributedOptimizer is hvd.DistributedGradientTransformation


def case_compression_and_sum():
    tx = hvd.DistributedOptimizer(optax.sgd(0.1 / hvd.size()), op=hvd.Sum, compression=hvd.Compression.fp16)
    exact = train(hvd.DistributedOptimizer(optax.sgd(0.1)), shares(2))
    for one, two in zip(jax.tree.leaves(train(tx, shares(2))), jax.tree.leaves(exact)):
        np.testing.assert_allclose(one, two, rtol=2e-2, atol=1e-2)


def case_several_passes_are_added_up():
    tx = hvd.DistributedOptimizer(optax.adam(1e-2), backward_passes_per_step=2)
    summed = optax.chain(optax.scale(2.0), hvd.DistributedOptimizer(optax.adam(1e-2)))
    mean = optax.MultiSteps(summed, 2)  # its means, times two
    close(train(tx, shares(4), donate_argnums=(0, 1)), train(mean, shares(4)))
    close(train(tx, shares(3)), train(tx, shares(2)))


def case_nothing_is_sent_in_the_passes_between():
    tx = hvd.DistributedOptimizer(optax.adam(1e-2), backward_passes_per_step=2)
    params = start()
    state, update = tx.init(params), jax.jit(tx.update)
    gradients = jax.tree.map(lambda p: jnp.full_like(p, 1.0 + hvd.rank()), params)
    if hvd.rank() == 0:
        hvd.barrier()  # the other rank is through its pass before this one begins
    updates, state = jax.block_until_ready(update(gradients, state, params))
    if hvd.rank() != 0:
        hvd.barrier()
    close(updates, jax.tree.map(jnp.zeros_like, params))
    assert state.passes == 1 and state.inner[1][0].count == 0
    updates, state = update(gradients, state, params)
    assert state.passes == 0 and state.inner[1][0].count == 1 and float(updates["b"]) < 0
    # The first moment is a tenth of the mean of the ranks' sums.
    np.testing.assert_allclose(state.inner[1][0].mu["b"], 0.1 * 2 * (1 + (hvd.size() - 1) / 2), rtol=1e-5)
    reduction = hvd.allreduce_gradients(op=hvd.Sum, backward_passes_per_step=2)
    state = reduction.init(params)
    for expected in (0.0, 2.0 * hvd.size()):
        updates, state = reduction.update(jax.tree.map(jnp.ones_like, params), state)
        assert float(updates["b"]) == expected


def case_wrong_arguments_and_names():
    expect_raises(InvalidArgumentError, lambda: hvd.allreduce_gradients(groups=0), "groups", "0")
    expect_raises(InvalidArgumentError, lambda: hvd.DistributedOptimizer(optax.sgd(1), backward_passes_per_step=0), "0")
    expect_raises(InvalidArgumentError, lambda: hvd.allreduce_gradients(hvd.Sum, gradient_predivide_factor=2.0))
    tx = hvd.DistributedOptimizer(optax.sgd(0.1))
    gradients = {"w": jnp.ones(2 + hvd.rank())}
    expect_raises(MismatchError, lambda: tx.update(gradients, tx.init(gradients)), "'grads['w']'")


def case_state_is_broadcast():
    tx = hvd.DistributedOptimizer(optax.adam(1e-2), backward_passes_per_step=3)
    state = tx.init(jax.tree.map(lambda p: p + hvd.rank(), start()))
    _, state = tx.update(jax.tree.map(lambda p: p * hvd.rank(), start()), state)
    state = hvd.broadcast_optimizer_state(state)
    assert state.passes == 1 and float(state.sums["w"][0]) == 0.0


def case_passes_of_gradients_in_another_type_than_the_parameters():
    tx = hvd.DistributedOptimizer(optax.adamw(1e-2), backward_passes_per_step=2)
    params = {"w": jnp.ones(4, jnp.bfloat16)}
    state = tx.init(params)
    update = jax.jit(tx.update)
    for _ in range(4):
        before = jax.tree.map(lambda leaf: leaf.dtype, state)
        _, state = update({"w": jnp.ones(4, jnp.float32)}, state, params)
        assert jax.tree.map(lambda leaf: leaf.dtype, state) == before


def case_passes_outside_of_compiled_functions_compile_nothing_new():
    tx = hvd.DistributedOptimizer(optax.sgd(1.0), backward_passes_per_step=2)
    params = start()
    state = tx.init(params)
    grads = {"w": jnp.full(4, float(hvd.rank())), "b": jnp.ones(())}
    for _ in range(2):
        updates, state = tx.update(grads, state, params)
    close(updates, {"w": np.full(4, -2 * (hvd.size() - 1) / 2), "b": -2.0})
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
    )
    for number in range(4):
        updates, state = tx.update(grads, state, params)
        close(updates, {"w": np.full(4, -(hvd.size() - 1.0) * (number % 2)), "b": -2.0 * (number % 2)})
    assert not compiled, compiled


if __name__ == "__main__":
    run_cases(globals(), hvd)
