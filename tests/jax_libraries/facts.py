"""One rank: trains with each library, and reports what failed. With the word `distributed` it is a process of
`jax.distributed` too, and tries what is different there."""

from __future__ import annotations

import faulthandler
import os
import shutil
import socket
import sys
import tempfile
import traceback
from typing import Any, Callable

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx
from jobs.report import report

import horovod.jax as hvd

X = np.random.default_rng(3).normal(size=(8, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


def mine() -> tuple[np.ndarray, np.ndarray]:
    """This rank's half of the batch."""
    return X[hvd.rank() :: hvd.size()], Y[hvd.rank() :: hvd.size()]


def everywhere_equal(tree: Any) -> None:
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree_util.tree_leaves(tree)]
    assert leaves and len({tuple(one) for one in hvd.allgather_object(leaves)}) == 1


def learns(losses: list[float]) -> None:
    assert losses[-1] < 0.7 * losses[0], losses


def flax_nnx() -> None:
    model = nnx.Sequential(
        nnx.Linear(4, 8, rngs=nnx.Rngs(hvd.rank())), nnx.relu, nnx.Linear(8, 1, rngs=nnx.Rngs(hvd.rank()))
    )
    nnx.update(model, hvd.broadcast(nnx.state(model)))
    optimizer = nnx.Optimizer(model, hvd.DistributedOptimizer(optax.adam(0.05)), wrt=nnx.Param)

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
        optimizer.update(model, grads)
        return loss

    losses = [float(step(model, optimizer, *mine())) for _ in range(30)]
    everywhere_equal(nnx.state(model))
    learns(losses)


def flax_linen_with_statistics_of_all_ranks() -> None:
    """Batch normalisation over the ranks by `batch_moments`, beside one process with the whole batch."""

    class Normalised(nn.Module):
        moments: Callable[..., Any]

        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Dense(8)(x)
            mean, variance = self.moments(x)
            return nn.Dense(1)(jnp.tanh((x - mean) / jnp.sqrt(variance + 1e-3)))

    def trained(moments: Callable[..., Any], tx: Any, x: Any, y: Any) -> Any:
        model = Normalised(moments)
        params = Normalised(lambda a: (a.mean(0), a.var(0))).init(jax.random.key(0), X)
        state = tx.init(params)

        @jax.jit
        def step(params: Any, state: Any) -> Any:
            grads = jax.grad(lambda p: jnp.mean((model.apply(p, x) - y) ** 2))(params)
            updates, state = tx.update(grads, state, params)
            return optax.apply_updates(params, updates), state

        for _ in range(5):
            params, state = step(params, state)
        return params

    together = trained(hvd.batch_moments, hvd.DistributedOptimizer(optax.sgd(0.1)), *mine())
    alone = trained(lambda a: (a.mean(0), a.var(0)), optax.sgd(0.1), X, Y)
    everywhere_equal(together)
    for one, two in zip(jax.tree.leaves(together), jax.tree.leaves(alone)):
        np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-4)


def flax_linen_batch_stats() -> None:
    model = nn.BatchNorm(use_running_average=False, momentum=0.5)
    variables = model.init(jax.random.key(0), X)
    _, changed = model.apply(variables, mine()[0] + hvd.rank(), mutable=["batch_stats"])
    own = [np.asarray(leaf) for leaf in jax.tree.leaves(changed)]
    means = [np.mean(ranks, 0) for ranks in zip(*hvd.allgather_object(own))]
    for one, two in zip(jax.tree.leaves(hvd.batch_stats_mean(changed)), means):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def equinox() -> None:
    model = eqx.nn.MLP(4, 1, 8, 1, key=jax.random.key(hvd.rank()))
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)
    model = eqx.combine(hvd.broadcast_parameters(arrays), rest)
    tx = hvd.DistributedOptimizer(optax.adam(0.05))
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))(model)
        updates, state = tx.update(grads, state, model)
        return eqx.apply_updates(model, updates), state, loss

    losses = []
    for _ in range(30):
        model, state, loss = step(model, state, *mine())
        losses.append(float(loss))
    everywhere_equal(eqx.filter(model, eqx.is_inexact_array))
    learns(losses)


def orbax_on_rank_0() -> None:
    """Without jax.distributed rank 0 alone writes and reads, and broadcasts."""
    params = {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3, jnp.bfloat16)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step")
        found = jax.tree.map(jnp.zeros_like, params)
        if hvd.rank() == 0:
            with ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(path, params)
                checkpointer.wait_until_finished()
                found = checkpointer.restore(path, params)
        found = hvd.broadcast_parameters(found)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(params)):
        assert one.dtype == two.dtype and (np.asarray(one) == np.asarray(two)).all()


def orbax_on_all_ranks() -> None:
    """With jax.distributed orbax waits for all processes: all ranks call it, with arrays that all have, in one place.
    Here it is rank 0's directory."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("ranks",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    params = hvd.broadcast_parameters({"kernel": jnp.arange(6.0).reshape(2, 3) + hvd.rank(), "bias": jnp.ones(3)})
    of_all = jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(everywhere, np.asarray(leaf)), params)
    own = tempfile.mkdtemp() if hvd.rank() == 0 else None
    folder = hvd.broadcast_object(own)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(os.path.join(folder, "step"), of_all)
        checkpointer.wait_until_finished()
        found = checkpointer.restore(os.path.join(folder, "step"), of_all)
    found = jax.tree.map(lambda leaf: leaf.addressable_data(0), found)
    for one, two in zip(jax.tree.leaves(found), jax.tree.leaves(params)):
        assert one.dtype == two.dtype and (np.asarray(one) == np.asarray(two)).all()
    everywhere_equal(jax.jit(hvd.allreduce)(found))
    hvd.barrier()
    if own:
        shutil.rmtree(own)


def begin_jax_distributed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = hvd.broadcast_object(f"127.0.0.1:{port}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # listens where the host's name leads to
    jax.distributed.initialize(address, hvd.size(), hvd.rank(), coordinator_bind_address=address)


FACTS = (flax_nnx, flax_linen_with_statistics_of_all_ranks, flax_linen_batch_stats, equinox, orbax_on_rank_0)


def main() -> int:
    faulthandler.dump_traceback_later(160, exit=True)
    hvd.init()
    failures, run = [], 0
    distributed = sys.argv[1:] == ["distributed"]
    if distributed:
        begin_jax_distributed()
    for fact in (orbax_on_all_ranks,) if distributed else FACTS:
        try:
            fact()
        except Exception:
            failures.append(f"{fact.__name__}:\n{traceback.format_exc()}")
            break  # the ranks are no longer at the same place
        run += 1
    report("libraries", rank=hvd.rank(), failures=failures, run=run, jax=jax.__version__)
    if distributed and not failures:
        jax.distributed.shutdown()
    hvd.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
