"""Cases of processes that have two CPU devices each, and in which `jax.distributed` is up as well."""

import socket

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jobs.case_runner import expect_raises, run_cases

import horovod.jax as hvd
from horovod._core.errors import UnsupportedError


def case_jax_distributed_beside_it():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = hvd.broadcast_object(f"127.0.0.1:{port}")
    jax.distributed.initialize(address, hvd.size(), hvd.rank(), coordinator_bind_address=address)
    assert len(jax.local_devices()) == 2 and jax.device_count() == 2 * hvd.size()
    x = jnp.full(4, 1.0 + hvd.rank())
    for function in (hvd.allreduce, jax.jit(hvd.allreduce), jax.grad(lambda t: (hvd.allreduce(t) * t).sum() / 2)):
        np.testing.assert_allclose(function(x), np.full(4, 1.5))


def case_arrays_spread_over_the_local_devices():
    mesh = Mesh(np.array(jax.local_devices()), ("d",))
    spread = NamedSharding(mesh, PartitionSpec("d"))
    x = jax.device_put(jnp.arange(4.0) + hvd.rank(), spread)
    result = hvd.allreduce(x, hvd.Sum)
    np.testing.assert_array_equal(result, 2 * np.arange(4.0) + 1)
    assert result.sharding == spread
    summed = jax.jit(
        jax.shard_map(lambda t: jax.lax.psum(t, "d"), mesh=mesh, in_specs=PartitionSpec("d"), out_specs=PartitionSpec())
    )
    np.testing.assert_array_equal(hvd.allreduce(summed(x), hvd.Sum), [6.0, 10.0])


def case_arrays_of_other_processes_are_refused():
    everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("d",)), PartitionSpec("d"))
    x = jax.make_array_from_callback((4,), everywhere, lambda index: np.ones(4, np.float32)[index])
    expect_raises(UnsupportedError, lambda: hvd.allreduce({"w": x}), "eager['w']", "jax.lax.psum")


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", None)  # gloo would not keep to the loopback
    run_cases(globals(), hvd)
