"""Collectives in functions that JAX compiles, in turns in one job: ours, `jax.lax.psum` over gloo (`jax.distributed`),
and mpi4jax where it is installed and mpirun has started the job. And whole training steps of examples/jax/digits.py:
ours, by psum, and without a collective.

    PYTHONPATH=benchmarks horovodrun -np 2 python benchmarks/frameworks/jax_psum.py
    PYTHONPATH=benchmarks mpirun -np 2 python benchmarks/frameworks/jax_psum.py

Prints a line per row: the median of the medians of five rounds, and the others' times as multiples of ours.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from ranks.resnet50 import parameter_sizes

import horovod.jax as hvd

ROOT = Path(__file__).resolve().parents[2]
_SIZES = (4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
_ROUNDS = 5
_OWN, _SAME = PartitionSpec("ranks"), PartitionSpec()

Call = Callable[[], Any]


def median_us(call: Call, count: int) -> float:
    """Of some calls in a row, each of which ends before the next begins."""
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


def row(name: str, calls: dict[str, Call], count: int) -> None:
    """Measures the contenders in turns; rank 0 prints."""
    medians: dict[str, list[float]] = {which: [] for which in calls}
    for _ in range(_ROUNDS):
        for which, call in calls.items():
            hvd.barrier()
            median_us(call, max(2, count // 10))
            medians[which].append(median_us(call, count))
    times = {which: statistics.median(found) for which, found in medians.items()}
    if hvd.rank() == 0:
        words = [f"{which} {us:10.1f} us ({us / times['ours']:5.2f})" for which, us in times.items()]
        print(f"{name:34s}", "  ".join(words), flush=True)


def start_gloo() -> Mesh:
    """`jax.distributed` with these ranks, each with a device."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = hvd.broadcast_object(f"127.0.0.1:{port}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, hvd.size(), hvd.rank(), coordinator_bind_address=address)
    return Mesh(np.array(jax.devices()), ("ranks",))


def sharded(function: Any, mesh: Mesh, takes: Any, gives: Any) -> Any:
    """The function as each rank runs it on its part, in which `jax.lax.psum` reaches the others."""
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False))


def everywhere(tree: Any, mesh: Mesh, spec: Any) -> Any:
    """Arrays over the devices of all ranks, of this rank's parts."""
    place = NamedSharding(mesh, spec)
    return jax.tree.map(lambda part: jax.make_array_from_process_local_data(place, np.asarray(part)), tree)


def sums(tree: Any, mesh: Mesh) -> dict[str, Call]:
    """Each contender's sum of the ranks' trees, whose first result is checked."""
    ours = jax.jit(lambda t: hvd.allreduce(t, hvd.Sum))
    by_psum, spread = sharded(lambda t: jax.lax.psum(t, "ranks"), mesh, _OWN, _OWN), everywhere(tree, mesh, _OWN)
    calls: dict[str, Call] = {"ours": lambda: ours(tree), "gloo": lambda: by_psum(spread)}
    if "OMPI_COMM_WORLD_SIZE" in os.environ and importlib.util.find_spec("mpi4jax"):
        import mpi4jax
        from mpi4py import MPI

        by_mpi = jax.jit(lambda t: jax.tree.map(lambda leaf: mpi4jax.allreduce(leaf, op=MPI.SUM), t))
        calls["mpi4jax"] = lambda: by_mpi(tree)
    for which, call in calls.items():
        for leaf in jax.tree.leaves(call()):
            found = np.asarray(leaf.addressable_data(0))
            assert (found == hvd.size() * (hvd.size() + 1) / 2).all(), f"{which} is wrong"
    return calls


def example(value_and_grad: Any) -> Any:
    """The example's step with this way to gradients."""
    path = ROOT / "examples" / "jax" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    module: Any = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    module.hvd = SimpleNamespace(value_and_grad=value_and_grad)
    return module


def steps(sizes: tuple[int, ...], batch: int, mesh: Mesh) -> dict[str, Call]:
    """Each contender's training step, with this many rows for each rank."""

    def by_psum(fun: Any) -> Any:
        def mean(*args: Any) -> Any:
            value, grads = jax.value_and_grad(fun)(*args)
            return value, jax.lax.pmean(grads, "ranks")

        return mean

    params = example(None).new_params(jax.random.key(0), sizes)
    velocity = jax.tree.map(jnp.zeros_like, params)
    rng = np.random.default_rng(hvd.rank())
    data = rng.random((batch, sizes[0]), np.float32), rng.integers(0, sizes[-1], batch)
    ours, alone = example(hvd.value_and_grad).train_step, example(jax.value_and_grad).train_step
    over = sharded(example(by_psum).train_step, mesh, (_SAME, _SAME, _OWN, _OWN), _SAME)
    model, spread = everywhere((params, velocity), mesh, _SAME), everywhere(data, mesh, _OWN)
    return {
        "ours": lambda: ours(params, velocity, *data),
        "gloo": lambda: over(*model, *spread),
        "no collective": lambda: alone(params, velocity, *data),
    }


def main() -> None:
    """All rows."""
    hvd.init()
    mesh = start_gloo()
    for size in _SIZES:
        leaf = jnp.full(size // 4, 1.0 + hvd.rank())
        row(f"allreduce {size} B", sums(leaf, mesh), 200 if size <= 64 << 10 else 40 if size <= 1 << 20 else 6)
    tree = [jnp.full(count, 1.0 + hvd.rank()) for count in parameter_sizes()]
    row(f"ResNet-50, {len(tree)} gradients", sums(tree, mesh), 4)
    row("step of the example", steps((64, 128, 10), 32, mesh), 100)
    row("step of 784-1024-1024-10", steps((784, 1024, 1024, 10), 32, mesh), 10)
    jax.distributed.shutdown()
    hvd.shutdown()


if __name__ == "__main__":
    main()
