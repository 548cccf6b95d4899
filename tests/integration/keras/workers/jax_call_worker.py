"""Cases of the core's custom call in functions that JAX compiles, without Keras around it."""

from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from keras_cases import expect_raises, run_cases

import horovod.keras as hvd
from horovod._core.errors import (
    CollectiveTimeoutError,
    HorovodInternalError,
    InvalidArgumentError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
)
from horovod._core.life import context, session
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER
from horovod._core.life.planes import gpu_plane
from horovod._core.operations.described_call import DescribedOperation, TensorForm, describe, failure_named_in
from horovod._core.operations.reduce_ops import Average, Max, Sum
from horovod._core.tensors import dtypes
from horovod.jax import operators
from horovod.keras.backends.jax import failure_behind

REDUCIBLE = [name for name in dtypes.NAMES if name != "bool"]


def form(name, tensor, result=None):
    result = tensor if result is None else result
    return TensorForm(name, dtypes.NAMES.index(str(tensor.dtype)), tensor.shape, result.size * result.dtype.itemsize)


def allreduce(name, *tensors, op=Sum, factors=(1.0, 1.0)):
    members = [form(f"{name}{index}", tensor) for index, tensor in enumerate(tensors)]
    return operators.call([DescribedOperation(ALLREDUCE, members, 0, int(op), factors)], tensors)


def expect_failure(kind, function, *words):
    """JAX's error tells Horovod's."""
    error = expect_raises(
        jax.errors.JaxRuntimeError, lambda: jax.block_until_ready(function()), f"Horovod {kind.__name__}: ", *words
    )
    failure = failure_named_in(error)
    assert type(failure) is kind, repr(failure)
    assert str(error).endswith(str(failure))


def case_every_dtype_in_one_call():
    tensors = [(jnp.arange(5) % 2 + hvd.rank()).astype(name) for name in REDUCIBLE]  # float8_e5m2 adds up to 8 exactly
    assert [str(tensor.dtype) for tensor in tensors] == REDUCIBLE
    sums = jax.jit(lambda *t: allreduce("dtypes", *t))(*tensors)
    for tensor, total in zip(tensors, sums):
        assert total.dtype == tensor.dtype
        expected = sum(np.arange(5) % 2 + rank for rank in range(hvd.size()))
        np.testing.assert_array_equal(np.array(total).astype("float64"), expected)
    flags = jnp.array([False, hvd.rank() == 1])
    np.testing.assert_array_equal(jax.jit(lambda t: allreduce("flags", t, op=Max))(flags)[0], [False, hvd.size() > 1])


def case_shapes_factors_and_average():
    tensors = [jnp.float32(hvd.rank()), jnp.ones((0, 3)), jnp.full((2, 3, 4), hvd.rank(), "float32")]
    scalar, empty, cube = jax.jit(lambda *t: allreduce("average", *t, op=Average, factors=(4.0, 0.5)))(*tensors)
    mean = 2 * (hvd.size() - 1) / 2
    assert scalar.shape == () and scalar == mean and empty.shape == (0, 3)
    np.testing.assert_array_equal(cube, np.full((2, 3, 4), mean))


def case_several_submissions_are_under_way_together():
    # The ranks name them in another order: each must find its counterpart.
    names = ["a", "b", "c"]
    order = names if hvd.rank() == 0 else names[::-1]
    tensor = jnp.ones(3)
    calls = [DescribedOperation(ALLREDUCE, [form(name, tensor)], 0, int(Sum)) for name in order]
    values = [tensor * (1 + names.index(name)) for name in order]
    results = jax.jit(lambda *t: operators.call(calls, t))(*values)
    for name, result in zip(order, results):
        np.testing.assert_array_equal(result, np.full(3, hvd.size() * (1 + names.index(name))))


def case_other_operations():
    rank, size = hvd.rank(), hvd.size()
    own = jnp.arange(2 * size, dtype="float32").reshape(size, 2) + 10 * rank
    everything = np.concatenate([np.array(own) - 10 * rank + 10 * other for other in range(size)])

    def run(op_type, shape, **options):
        result = jax.ShapeDtypeStruct(shape, own.dtype)
        one = DescribedOperation(op_type, [form("other", own, result)], **options)
        return jax.jit(lambda t: operators.call([one], [t], [result]))(own)[0]

    np.testing.assert_array_equal(run(BROADCAST, own.shape, root=size - 1), everything[-size:])
    np.testing.assert_array_equal(run(ALLGATHER, (size * size, 2)), everything)
    np.testing.assert_array_equal(run(ALLTOALL, own.shape), everything[rank::size])
    total = everything.reshape(size, size, 2).sum(0)
    np.testing.assert_array_equal(run(REDUCESCATTER, (1, 2), reduce_op=int(Sum)), total[rank : rank + 1])


def case_an_allgather_of_unequal_rows_is_refused():
    own = jnp.ones((1 + hvd.rank(), 2))
    result = jax.ShapeDtypeStruct((hvd.size(), 2), own.dtype)
    one = DescribedOperation(ALLGATHER, [form("unequal", own, result)])
    expect_failure(InvalidArgumentError, lambda: jax.jit(lambda t: operators.call([one], [t], [result]))(own), "rows")


def case_calls_of_a_function_keep_their_order():
    def several(x):
        # Each rank is late at another place; nothing but the token connects the calls.
        total = 0
        for number in range(12):
            late = jax.lax.fori_loop(0, 50 if (number + hvd.rank()) % 3 else 1, lambda _, y: jnp.tanh(y @ y), x)
            total += allreduce(f"order{number}", x + 0 * late)[0]
        return total

    start = jnp.ones((40, 40)) / 40
    calls = [one for one in jax.make_jaxpr(several)(start).eqns if one.primitive.name == "ffi_call"]
    assert len(calls) == 12
    assert all(two.invars[0] is one.outvars[0] for one, two in zip(calls, calls[1:]))
    function = jax.jit(several)
    for _ in range(5):
        np.testing.assert_allclose(function(start), 12 * hvd.size() * np.array(start), rtol=1e-6)


def case_inside_scan_cond_and_another_function():
    def step(carry, _):
        inner = jax.jit(lambda x: allreduce("inner", x)[0])
        carry = jax.lax.cond(carry.sum() > 0, lambda x: allreduce("branch", x)[0], lambda x: x, carry)
        return inner(carry) / hvd.size() ** 2, allreduce("row", carry)[0]

    last, rows = jax.jit(lambda x: jax.lax.scan(step, x, None, length=4))(jnp.ones(3))
    np.testing.assert_allclose(last, np.ones(3))
    np.testing.assert_allclose(rows, np.full((4, 3), hvd.size() ** 2))


def case_outside_of_functions():
    for number in range(3):
        np.testing.assert_array_equal(allreduce("eager", jnp.full(2, number))[0], np.full(2, number * hvd.size()))
    expect_failure(MismatchError, lambda: allreduce("eager", jnp.ones(2 + hvd.rank())), "'eager0'")
    np.testing.assert_array_equal(allreduce("eager", jnp.ones(2))[0], np.full(2, hvd.size()))


def case_given_memory_is_reduced_in_place():
    given = jnp.ones(1000)
    address = given.unsafe_buffer_pointer()
    result = jax.jit(lambda x: allreduce("given", x)[0], donate_argnums=0)(given)
    assert result.unsafe_buffer_pointer() == address
    kept = jnp.ones(1000)
    jax.block_until_ready(jax.jit(lambda x: allreduce("kept", x)[0])(kept))
    np.testing.assert_array_equal(kept, np.ones(1000))


def case_only_what_can_is_done_in_place():
    # XLA gives the memory of the operand to no result of an alltoall.
    size = hvd.size()
    own = jnp.arange(size * 1000, dtype="float32") + hvd.rank()
    expected = np.concatenate([np.array(own[hvd.rank() * 1000 :][:1000]) - hvd.rank() + r for r in range(size)])
    one = DescribedOperation(ALLTOALL, [form("each", own)])
    received = jax.jit(lambda x: operators.call([one], [x])[0], donate_argnums=0)(own)
    np.testing.assert_array_equal(received, expected)


def case_usable_on_one_device_that_the_core_reaches():
    def gpu(version):
        return SimpleNamespace(platform="gpu", client=SimpleNamespace(platform_version=version), local_hardware_id=3)

    used = []

    def use(current, device):
        used.append((current, device))
        return len(used) == 1

    assert operators.usable()
    with mock.patch.object(gpu_plane, "use_in_every_life", use), mock.patch.object(jax, "devices") as devices:
        devices.return_value = [gpu("PJRT C API\nrocm 60300")]
        assert not operators.usable() and not used
        devices.return_value = [gpu("PJRT C API\ncuda 13000")]
        assert operators.usable() and not operators.usable()
        assert used == [(session.require(), 3)] * 2
        with mock.patch.object(jax, "device_count", lambda: 2):
            assert not operators.usable()


def case_a_call_without_use_is_left_out():
    def unused(x):
        allreduce("unused", x)
        return x + 1

    x = jnp.ones(2 + hvd.rank())  # would be a mismatch
    np.testing.assert_array_equal(jax.jit(unused)(x), x + 1)


def case_a_failure_is_told_where_results_are_used():
    reduced = jax.jit(lambda x: allreduce("late", x)[0])
    used = jax.jit(lambda x: x * 2)
    expect_failure(MismatchError, lambda: used(reduced(jnp.ones(2 + hvd.rank()))), "'late0'")


def case_failures_have_their_classes():
    known = jax.jit(lambda x: allreduce("known", x))
    jax.block_until_ready(known(jnp.ones(3)))
    expect_failure(MismatchError, lambda: jax.jit(lambda x: allreduce("m", x))(jnp.ones(2 + hvd.rank())), "'m0'", "[2]")
    assert failure_behind(ValueError("Horovod ShutdownError: not JAX's")) is None
    for kind, status in ((HorovodInternalError, 4), (PeerLostError, 7), (CollectiveTimeoutError, 8)):
        session.require().engine.abort(status, "a failure made by the test")
        # JAX runs a small function that it has compiled at once, and raises a ValueError.
        error = expect_raises(
            (jax.errors.JaxRuntimeError, ValueError), lambda: jax.block_until_ready(known(jnp.ones(3)))
        )
        assert type(failure_behind(error)) is kind
        expect_failure(kind, lambda: jax.jit(lambda x: allreduce("aborted", x))(jnp.ones(3)), "made by the test")
        context.shutdown()
        expect_failure(NotInitializedError, lambda: jax.jit(lambda x: allreduce("aborted", x))(jnp.ones(3)))
        context.init()
    np.testing.assert_array_equal(jax.jit(lambda x: allreduce("after", x)[0])(jnp.ones(3)), np.full(3, hvd.size()))


def case_a_call_that_is_not_as_described_is_refused():
    allreduce("registered", jnp.ones(1))

    def refused(words, **attributes):
        results = [jax.ShapeDtypeStruct((), "float32"), jax.ShapeDtypeStruct((3,), "float32")]
        foreign = jax.ffi.ffi_call("hvd_collective", results)
        expect_failure(
            InvalidArgumentError, lambda: jax.jit(lambda x: foreign(np.float32(0), x, **attributes))(jnp.ones(3)), words
        )

    def described(*forms):
        return describe([DescribedOperation(ALLREDUCE, forms)])

    refused("no description")
    refused("no description", description=3)
    refused("no description", description="0 0 1 x")
    refused("dtype or shape", description=described(TensorForm("t", dtypes.FLOAT16, [3], 6)))
    refused("dtype or shape", description=described(TensorForm("t", dtypes.FLOAT32, [4], 16)))
    refused("dtype or shape", description=described(TensorForm("t", dtypes.FLOAT32, [3], 16)))
    refused("2 operands", description=described(*[TensorForm("t", dtypes.FLOAT32, [3], 12)] * 2))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    run_cases(globals())
