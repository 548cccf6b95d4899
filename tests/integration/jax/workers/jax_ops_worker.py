"""Cases of the operations on pytrees: values, names, and what JAX makes of functions that hold them."""

import importlib.util
from types import SimpleNamespace
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jobs.case_runner import expect_raises, run_cases

import horovod.jax as hvd
from horovod._core.errors import InvalidArgumentError, MismatchError, NotInitializedError, UnsupportedError
from horovod._core.operations.described_call import failure_named_in
from horovod.jax import operators


def ways(function):
    """It, and it compiled."""
    return function, jax.jit(function)


def same(tree, expected):
    assert jax.tree_util.tree_structure(tree) == jax.tree_util.tree_structure(expected), tree
    for one, two in zip(jax.tree_util.tree_leaves(tree), jax.tree_util.tree_leaves(expected)):
        np.testing.assert_allclose(np.asarray(one).astype("float64"), np.asarray(two).astype("float64"), rtol=1e-5)


def own(*shape):
    """Other values on each rank."""
    return jnp.arange(float(np.prod(shape, dtype=int))).reshape(shape) + 10 * hvd.rank()


def everyones(*shape):
    return [np.asarray(own(*shape)) - 10 * hvd.rank() + 10 * rank for rank in range(hvd.size())]


def case_allreduce_of_a_tree():
    tree = {"a": own(3), "b": (hvd.rank(), None, jnp.ones((2,), jnp.bfloat16)), "c": np.float32(2)}
    expected = {"a": sum(everyones(3)), "b": (sum(range(hvd.size())), None, [2.0, 2.0]), "c": 4.0}
    expected["b"] = (expected["b"][0], None, np.full(2, 2.0))
    for function in ways(lambda t: hvd.allreduce(t, hvd.Sum)):
        result = function(tree)
        same(result, expected)
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree_util.tree_leaves(result))
        assert result["b"][2].dtype == jnp.bfloat16 and result["b"][0].dtype == jnp.int32
    same(hvd.allreduce({}), {})


def case_every_reduction_and_factors():
    x = own(3) + 1
    values = np.stack(everyones(3)) + 1
    found = {
        hvd.Average: values.mean(0), hvd.Sum: values.sum(0), hvd.Min: values.min(0), hvd.Max: values.max(0),
        hvd.Product: values.prod(0),
    }  # fmt: skip
    for op, expected in found.items():
        for function in ways(lambda t, op=op: hvd.allreduce(t, op)):
            same(function(x), expected)
    for function in ways(lambda t: hvd.allreduce(t, hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)):
        same(function(x), 2 * values.sum(0))
    for function in ways(lambda t: hvd.grouped_allreduce([t, 2 * t], hvd.Sum)):
        same(function(x), [values.sum(0), 2 * values.sum(0)])


def case_small_types():
    for name in ("bfloat16", "float8_e5m2", "int8"):
        for function in ways(lambda t: hvd.allreduce(t, hvd.Sum)):
            result = function(jnp.ones(3).astype(name))
            assert result.dtype.name == name
            same(result, np.full(3, hvd.size()))
    for function in ways(lambda t: hvd.allreduce(t, hvd.Sum, compression=hvd.Compression.bf16)):
        assert function(jnp.ones(3)).dtype == jnp.float32
        same(function(jnp.full(3, 1.001)), np.full(3, hvd.size()))  # rounded on the way


def case_64_bits():
    jax.config.update("jax_enable_x64", True)
    try:
        for function in ways(lambda t: hvd.allreduce(t, hvd.Sum)):
            same(function(jnp.array([2**40 + 1, 1])), np.array([2**40 + 1, 1]) * hvd.size())
            assert function(np.float64(1)).dtype == jnp.float64
    finally:
        jax.config.update("jax_enable_x64", False)


def case_allgather_along_an_axis():
    for function in ways(lambda t: hvd.allgather({"x": t})):
        same(function(own(2, 3)), {"x": np.concatenate(everyones(2, 3))})
    for function in ways(lambda t: hvd.allgather(t, axis=-1)):
        same(function(own(2, 3)), np.concatenate(everyones(2, 3), -1))
    ragged = hvd.allgather(jnp.full(1 + hvd.rank(), hvd.rank()))
    same(ragged, np.concatenate([np.full(1 + rank, rank) for rank in range(hvd.size())]))
    expect_raises(InvalidArgumentError, lambda: hvd.allgather(1.0), "at least one dimension")
    expect_raises(InvalidArgumentError, lambda: jax.jit(hvd.allgather)(1.0), "at least one dimension")


def case_broadcast_alltoall_and_reducescatter():
    size, rank = hvd.size(), hvd.rank()
    for function in ways(lambda t: hvd.broadcast({"x": t, "n": 7}, root_rank=size - 1)):
        same(function(own(3)), {"x": everyones(3)[-1], "n": 7})
    blocks = np.concatenate([each[2 * rank : 2 * rank + 2] for each in everyones(2 * size, 2)])
    for function in ways(hvd.alltoall):
        same(function([own(2 * size, 2)]), [blocks])
    rows = sum(everyones(2 * size - 1, 2))
    for function in ways(lambda t: hvd.reducescatter(t, hvd.Sum)):
        same(function(own(2 * size - 1, 2)), rows[2 * rank : 2 * rank + 2])
    expect_raises(UnsupportedError, lambda: jax.jit(hvd.reducescatter)(own(1)), "without one")
    splits = [1, *range(2, size + 1)]
    received, counts = hvd.alltoall(own(sum(splits)), splits)
    assert counts.tolist() == [splits[rank]] * size and received.shape == (size * splits[rank],)
    for bad in (lambda: jax.jit(lambda t: hvd.alltoall(t, splits))(own(9)), lambda: hvd.alltoall([own(9)], splits)):
        expect_raises(UnsupportedError, bad, "splits", "outside")
    expect_raises(InvalidArgumentError, lambda: jax.jit(hvd.alltoall)(own(2 * size + 1)), "split equally")
    expect_raises(InvalidArgumentError, lambda: jax.jit(lambda t: hvd.broadcast(t, 77))(own(1)), "root_rank 77")


def case_process_sets():
    alone = hvd.add_process_set([hvd.size() - 1])
    for function in ways(lambda t: hvd.allreduce(t, hvd.Sum, process_set=alone)):
        if hvd.rank() == hvd.size() - 1:
            same(function(own(3)), own(3))
        else:
            expect_raises(InvalidArgumentError, lambda f=function: f(own(3)), "not a member")
    hvd.remove_process_set(alone)


def case_a_mismatch_names_the_leaf():
    tree = {"dense": {"kernel": jnp.ones(2 + hvd.rank())}}
    words = ("'grads['dense']['kernel']'", "float32 [2]", "float32 [3]")
    expect_raises(MismatchError, lambda: hvd.allreduce(tree, name="grads"), *words)
    compiled = jax.jit(lambda t: hvd.allreduce(t, name="grads"))
    error = expect_raises(jax.errors.JaxRuntimeError, lambda: jax.block_until_ready(compiled(tree)), *words)
    assert type(failure_named_in(error)) is MismatchError
    expect_raises(MismatchError, lambda: hvd.broadcast_parameters(tree), "params['dense']['kernel']", "on rank 1")
    other = {"dense": {"kernel" if hvd.rank() else "core": jnp.ones(2)}}
    expect_raises(MismatchError, lambda: hvd.broadcast_parameters(other), "params['dense']['core']", "missing on rank")


def case_leaves_that_are_no_arrays():
    expect_raises(InvalidArgumentError, lambda: hvd.allreduce({"act": "relu"}), "eager['act']", "is no array but a str")
    expect_raises(InvalidArgumentError, lambda: hvd.allgather([jax.random.key(0)]), "eager[0]", "key_data")
    expect_raises(InvalidArgumentError, lambda: hvd.allreduce(jnp.ones(2, complex)), "complex64")
    expect_raises(InvalidArgumentError, lambda: jax.jit(hvd.allreduce)(jnp.ones(2, complex)), "complex64")
    expect_raises(UnsupportedError, lambda: jax.jit(hvd.allreduce)(jnp.ones(2, bool)), "bool has no average")


def case_numbers_that_do_not_fit_are_refused():
    for number in (np.int64(2**40), np.array([1, -(2**40)]), 2**40):
        expect_raises(InvalidArgumentError, lambda n=number: hvd.broadcast({"seed": n}), "['seed']")
    expect_raises(InvalidArgumentError, lambda: hvd.allreduce(np.array(["a"])), "cannot be an array of JAX")
    same(hvd.broadcast(np.int64(7)), 7)


def case_arrays_of_other_processes_are_refused():
    with mock.patch.object(type(own(1)), "is_fully_addressable", False):
        expect_raises(UnsupportedError, lambda: hvd.allreduce(own(1)), "jax.lax.psum")


def case_gradients():
    x, size, rank = own(4), hvd.size(), hvd.rank()

    weights = 1 + np.arange(size)
    of = {
        "sum": (lambda t: hvd.allreduce(t, hvd.Sum), x, np.full(4, weights.sum())),
        "average": (hvd.allreduce, x, np.full(4, weights.mean())),
        "max": (lambda t: hvd.allreduce(t, hvd.Max), x, np.full(4, weights.sum() * (rank == size - 1))),
        "min": (lambda t: hvd.allreduce(t, hvd.Min), jnp.ones(4), np.full(4, weights.sum() / size)),
        "gather": (hvd.allgather, x, np.full(4, weights.mean())),
        "broadcast": (hvd.broadcast, x, np.full(4, weights.mean() * (rank == 0))),
        "alltoall": (hvd.alltoall, x, np.repeat(weights, 4 // size)),
        "scatter": (lambda t: hvd.reducescatter(t, hvd.Sum), own(3), size * np.array([1.0, 1.0, 2.0])),
        "cast": (lambda t: hvd.allreduce(t, hvd.Sum, None, hvd.Compression.fp16), x, np.full(4, weights.sum())),
    }

    def total(given):
        return sum((of[kind][0](one) * (1 + rank)).sum() for kind, one in given.items())

    for function in ways(jax.grad(total)):
        same(function({kind: row[1] for kind, row in of.items()}), {kind: row[2] for kind, row in of.items()})
    ragged = jax.grad(lambda t: (hvd.allgather(t) * jnp.arange(3.0)).sum())(jnp.ones(1 + rank))
    same(ragged, np.arange(3.0)[:1] if rank == 0 else np.arange(3.0)[1:])
    integers = jax.jit(jax.grad(lambda t: hvd.allreduce(t, hvd.Sum)["w"].sum(), allow_int=True))
    same(integers({"w": x, "n": jnp.arange(3)})["w"], np.full(4, size))
    cubes = jax.grad(lambda y: jax.grad(lambda t: (hvd.allreduce(t, hvd.Sum) ** 3).sum())(y).sum())
    same(jax.jit(cubes)(x), size * size * 6 * sum(everyones(4)))
    expect_raises(UnsupportedError, lambda: jax.grad(lambda t: hvd.allreduce(t, hvd.Product).sum())(x), "no gradient")


def case_vmap():
    for function in ways(jax.vmap(lambda t: hvd.allreduce(t, hvd.Sum))):
        same(function(own(2, 3)), sum(everyones(2, 3)))
    for function in ways(jax.vmap(lambda t: hvd.allgather(t), in_axes=1, out_axes=1)):
        same(function(own(2, 3)), np.concatenate(everyones(2, 3)))
    blocks = [each.reshape(2, 3, hvd.size(), 2)[:, :, hvd.rank()] for each in everyones(2, 3, 2 * hvd.size())]
    same(jax.jit(jax.vmap(jax.vmap(hvd.alltoall)))(own(2, 3, 2 * hvd.size())), np.concatenate(blocks, -1))
    same(jax.vmap(lambda t, u: hvd.allreduce((t, u), hvd.Sum), (0, None))(own(2, 3), own(2))[0], sum(everyones(2, 3)))
    squares = jax.grad(lambda t: (hvd.allreduce(t, hvd.Sum) ** 2).sum())
    same(jax.jit(jax.vmap(squares))(own(2, 3)), 2 * hvd.size() * sum(everyones(2, 3)))
    per_row = jax.grad(lambda t: (jax.vmap(hvd.allgather)(t) ** 2).sum())
    same(jax.jit(per_row)(own(2, 3)), 2 * own(2, 3))
    batch = jax.jit(jax.vmap(lambda t: hvd.allreduce(t, hvd.Adasum)))
    expect_raises(UnsupportedError, lambda: batch(own(2, 3)), "Adasum", "jax.vmap")


def case_scan_cond_remat_and_donation():
    def body(carry, row):
        return hvd.allreduce(carry * row), carry

    scanned = jax.grad(lambda c, rows: jax.lax.scan(body, c, rows)[0].sum())
    same(jax.jit(scanned)(jnp.ones(2), jnp.full((3, 2), 1.0 + hvd.rank())), np.full(2, (1 + hvd.rank()) * 1.5**2))
    chosen = jax.jit(lambda p, t: jax.lax.cond(p, lambda u: hvd.allreduce(u, hvd.Sum), lambda u: u, t))
    same(chosen(True, own(2)), sum(everyones(2)))
    same(chosen(False, own(2)), own(2))
    again = jax.jit(jax.grad(jax.checkpoint(lambda t: jnp.sum(jnp.sin(hvd.allreduce(jnp.sin(t)))))))
    mean = np.sin(1.0)
    same(again(jnp.ones(2)), np.full(2, np.cos(mean) * np.cos(1.0)))
    given = own(1000)
    address = given.unsafe_buffer_pointer()
    result = jax.jit(lambda t: hvd.allreduce(t, hvd.Sum), donate_argnums=0)(given)
    assert result.unsafe_buffer_pointer() == address
    same(result, sum(everyones(1000)))


def case_calls_of_a_function_and_of_its_gradient_have_one_order():
    def several(t):
        return sum((hvd.allreduce(t, hvd.Sum, name=f"n{n}") * n).sum() for n in (1, 2, 3))

    def with_loss(t):
        loss, slope = jax.value_and_grad(several)(t)
        return hvd.allreduce(loss, name="loss"), slope

    steps = jax.make_jaxpr(with_loss)(own(2)).jaxpr.eqns
    made_by = {id(out): step for step in steps for out in step.outvars}
    calls = [step for step in steps if "name=run" in str(step.params) or step.params.get("bwd")]
    assert len(calls) == 7  # there, back, and the loss

    def behind(token, call):
        step = made_by.get(id(token))
        return step is call or (step is not None and any(behind(one, call) for one in step.invars))

    for one, two in zip(calls, calls[1:]):
        assert behind(two.invars[0], one)
    for function in ways(jax.value_and_grad(several)):
        total, slope = function(own(2))
        same(total, 6 * np.sum(everyones(2)))
        same(slope, np.full(2, 6.0 * hvd.size()))


def case_outside_only():
    for name in ("barrier", "join"):
        expect_raises(UnsupportedError, lambda n=name: jax.jit(lambda: getattr(hvd, n)())(), f"hvd.{name}()", "outside")
    hvd.barrier()


def case_constants_of_a_traced_function_are_reduced_when_it_runs():
    function = jax.jit(lambda t: t + hvd.allreduce(np.ones(2, np.float32), hvd.Sum))
    for _ in range(2):
        same(function(jnp.zeros(2)), np.full(2, hvd.size()))
    assert "hvd_collective" in function.lower(jnp.zeros(2)).as_text()


def case_devices_that_the_core_does_not_reach():
    devices = [SimpleNamespace(platform="tpu", client=SimpleNamespace(platform_version="tpu"))]
    with mock.patch.object(jax, "local_devices", lambda: devices):
        assert not operators.reached()
        expect_raises(UnsupportedError, lambda: jax.jit(hvd.allreduce)(own(5)), "one GPU", "outside of compiled")
    devices = [SimpleNamespace(platform="cpu")] * 2
    with mock.patch.object(jax, "local_devices", lambda: devices):
        assert operators.reached()


def case_parameters_objects_and_metrics():
    tree = {"w": own(2), "n": hvd.rank()}
    for function in (hvd.broadcast_parameters, hvd.broadcast_optimizer_state):
        same(function(tree, root_rank=1), {"w": everyones(2)[1], "n": 1})
    same(hvd.metric_average({"loss": hvd.rank(), "n": np.int64(1)}), {"loss": (hvd.size() - 1) / 2, "n": 1.0})
    assert hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None) == {"epoch": 3}
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def case_random_keys_are_broadcast():
    def of(seed):
        return {"key": jax.random.key(seed, impl="rbg"), "n": seed, "several": jax.random.split(jax.random.key(seed))}

    for function in (*ways(hvd.broadcast), hvd.broadcast_parameters):
        found, root = function(of(hvd.rank())), of(0)
        assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(root)
        for one, two in zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(root)):
            assert jnp.asarray(one).dtype == jnp.asarray(two).dtype and jnp.all(one == two)
    batch = jax.random.split(jax.random.key(hvd.rank()), 3)
    assert (jax.vmap(hvd.broadcast)(batch) == jax.random.split(jax.random.key(0), 3)).all()
    other = jax.random.key(0, impl="rbg" if hvd.rank() else "threefry2x32")
    expect_raises(MismatchError, lambda: hvd.broadcast_parameters({"key": other}), "params['key']", "uint32 [4]")


def case_an_import_inside_of_a_traced_function():
    """The module knows which functions are traced, also when one of them has imported it."""
    found = []

    def imports(t):
        spec = importlib.util.find_spec("horovod.jax.operators")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append((module, module.tracing()))
        return t

    jax.jit(imports)(own(1))
    ((module, inside),) = found
    assert inside and not module.tracing()


def case_gradients_of_a_loss():
    def loss(params, x):
        return (params["w"] * x).sum(), x

    x, params = own(3), {"w": jnp.ones(3)}
    mean = np.mean(everyones(3), 0)
    for function in ways(hvd.value_and_grad(loss, has_aux=True)):
        (value, aux), gradients = function(params, x)
        same((value, aux, gradients), (x.sum(), x, {"w": mean}))
    same(hvd.grad(loss, has_aux=True)(params, x), ({"w": mean}, x))
    same(hvd.grad(lambda *a: loss(*a)[0], (0, 1), op=hvd.Sum)(params, x)[1], np.full(3, hvd.size()))
    error = expect_raises(MismatchError, lambda: hvd.grad(loss, has_aux=True)({"w": jnp.ones(1 + hvd.rank())}, 1.0))
    assert "'grads['w']'" in str(error)


def case_send_and_recv():
    rank, size = hvd.rank(), hvd.size()
    hvd.send({"x": own(3), "n": rank}, (rank + 1) % size)
    like = {"x": jax.ShapeDtypeStruct((3,), jnp.float32), "n": 0}
    before = (rank - 1) % size
    same(hvd.recv(like, before), {"x": everyones(3)[before], "n": before})
    for call in (hvd.send, hvd.recv):
        compiled = jax.jit(lambda t, call=call: call(t, before))
        words = f"hvd.{call.__name__}() in a function", "outside"
        expect_raises(UnsupportedError, lambda f=compiled: f(own(1)), *words)


def case_joined_ranks_stand_aside():
    for _ in range(1 + hvd.rank()):
        result = hvd.allreduce(own(2), hvd.Sum)
    same(result, sum(everyones(2)) if hvd.rank() == 0 else own(2))
    assert hvd.join() == hvd.size() - 1


def case_a_second_life_with_functions_of_the_first():
    function = jax.jit(lambda t: hvd.allreduce(t, hvd.Sum))
    own_of_the_first = own(2)
    same(function(own_of_the_first), sum(everyones(2)))
    hvd.shutdown()
    # A ValueError where JAX runs the function at once.
    kinds = (jax.errors.JaxRuntimeError, ValueError)
    error = expect_raises(kinds, lambda: jax.block_until_ready(function(own_of_the_first)))
    assert type(failure_named_in(error)) is NotInitializedError
    hvd.init()
    same(function(own(2)), sum(everyones(2)))


def case_moments_of_the_whole_batch():
    """With gradients, and parts of different lengths."""
    parts = [3 + np.random.default_rng(rank).standard_normal((rank + 2, 3)).astype("float32") for rank in (0, 1)]
    whole = jnp.concatenate(parts)

    def loss_of(x, moments):
        mean, variance = moments(x)
        return jnp.sum(((x - mean) / jnp.sqrt(variance + 1e-3)) ** 3)

    for function in ways(lambda x: hvd.batch_moments(x, 0)):
        same(function(parts[hvd.rank()]), (whole.mean(0), whole.var(0)))
    mine = jax.jit(jax.grad(lambda x: loss_of(x, hvd.batch_moments)))(parts[hvd.rank()])
    alone = jax.grad(lambda x: loss_of(x, lambda a: (a.mean(0), a.var(0))))(whole)
    start = 2 * hvd.rank()
    np.testing.assert_allclose(mine, alone[start : start + hvd.rank() + 2], rtol=2e-2, atol=2e-2)


def case_means_of_running_statistics():
    stats = {"mean": jnp.full(2, hvd.rank(), jnp.bfloat16), "count": jnp.int32(7 + hvd.rank())}
    found = hvd.batch_stats_mean(stats)
    same(found, {"mean": [0.5, 0.5], "count": 7 + hvd.rank()} | {"mean": np.full(2, 0.5)})
    assert found["mean"].dtype == jnp.bfloat16


def case_calls_around_inner_functions_keep_their_order():
    """Each takes the token of the one before it, also where a function inside has been traced between them."""

    def step(x):
        first = hvd.allreduce(x, name="around")
        inside = jax.jit(lambda y: hvd.allreduce(y, name="in jit"))(x)
        inside = jax.lax.scan(lambda c, _: (hvd.allreduce(c, name="in scan"), None), inside, None, length=2)[0]
        inside = jax.lax.cond(inside.sum() > 0, lambda y: hvd.allreduce(y, name="in cond"), lambda y: y, inside)
        return first, inside, hvd.allreduce(jnp.concatenate([x, x]), name="around")  # of another shape

    calls = [one for one in jax.make_jaxpr(step)(own(3)).jaxpr.eqns if "custom_vjp" in one.primitive.name]
    assert len(calls) == 2 and calls[1].invars[0] is calls[0].outvars[0]
    for _ in range(3):
        first, _, last = jax.jit(step)(own(3))
        same((first, last), (np.mean(everyones(3), 0), np.tile(np.mean(everyones(3), 0), 2)))


if __name__ == "__main__":
    run_cases(globals(), hvd, process_sets="dynamic")
