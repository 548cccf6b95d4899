"""One rank of the tests of `horovod.mxnet`: runs the facts named on the command line, and reports what failed."""

from __future__ import annotations

import contextlib
import faulthandler
import sys
import traceback
import warnings
from typing import Any, Callable

import mxnet as mx
import numpy as np
from jobs.report import report
from mxnet import autograd, gluon, nd
from mxnet.base import MXNetError

import horovod.mxnet as hvd

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def dense(*units: int, **more: Any) -> Any:
    net = gluon.nn.HybridSequential()
    for count in units:
        net.add(gluon.nn.Dense(count, activation="tanh", **more))
    mx.random.seed(hvd.rank())
    net.initialize(mx.init.Xavier())
    return net


def everywhere(array: Any) -> np.ndarray:
    """The ranks' values of an array, by rank."""
    return np.stack(hvd.allgather_object(array.astype("float32").asnumpy()))


def require_equal(net: Any) -> None:
    for name, parameter in net.collect_params().items():
        values = everywhere(parameter.data())
        assert (values == values[0]).all(), name


def steps(net: Any, trainer: Any, count: int = 3, dtype: str = "float32", width: int = 5) -> None:
    for number in range(count):
        x = nd.array(np.random.default_rng([hvd.rank(), number]).standard_normal((4, width))).astype(dtype)
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        trainer.step(1)


def trains(hybrid: bool, **options: Any) -> None:
    """Deferred shapes, then equal parameters, and those of one process with the whole batch."""
    net = dense(6, 3)
    if hybrid:
        net.hybridize()
    params = net.collect_params()
    hvd.broadcast_parameters(params)
    trainer = hvd.DistributedTrainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.5}, **options)
    steps(net, trainer, 1)
    require_equal(net)
    weights = [parameter.data().asnumpy() for parameter in params.values()]
    x = np.random.default_rng(hvd.rank()).standard_normal((4, 5)).astype("float32")
    with autograd.record():
        loss = (net(nd.array(x)) ** 2).mean()
    loss.backward()
    own = [parameter.grad().asnumpy() for parameter in params.values()]
    trainer.allreduce_grads()
    for name, mine, parameter in zip(params, own, params.values()):
        total = np.sum(hvd.allgather_object(mine), axis=0) / options.get("gradient_predivide_factor", 1.0)
        np.testing.assert_allclose(parameter.grad().asnumpy(), total, 1e-2, 1e-3, err_msg=name)
    trainer.update(1)
    require_equal(net)
    assert any((before != p.data().asnumpy()).any() for before, p in zip(weights, params.values()))


def plain() -> None:
    trains(False)


def hybridized_in_groups() -> None:
    trains(True, num_groups=2, prefix="net.")


def compressed_and_divided() -> None:
    trains(True, compression=hvd.Compression.fp16, gradient_predivide_factor=2.0)
    trains(False, compression=hvd.Compression.bf16, num_groups=1)


def average_by_the_trainer() -> None:
    """SGD of rate 1 on a loss whose gradient is known: the mean of the ranks."""
    net = gluon.nn.Dense(1, in_units=1, use_bias=False)
    net.initialize(mx.init.Constant(1.0))
    for factor in (1.0, 4.0):
        before = net.weight.data().asscalar()
        trainer = hvd.DistributedTrainer(
            net.collect_params(), "sgd", {"learning_rate": 1.0}, gradient_predivide_factor=factor
        )
        with autograd.record():
            loss = net(nd.array([[hvd.rank() + 1.0]])).sum()
        loss.backward()
        trainer.step(1)
        mean = (hvd.size() + 1) / 2
        assert abs(before - net.weight.data().asscalar() - mean) < 1e-6


def multi_precision() -> None:
    """Weights of 16 bits, of which the optimizer keeps a copy of 32. The CPU has few operators of these types."""
    weight = gluon.Parameter("weight", shape=(6,), dtype="float16", init=mx.init.One())
    weight.initialize()
    options = {"learning_rate": 2.0**-12, "multi_precision": True}
    trainer = hvd.DistributedTrainer([weight], "sgd", options)
    for _ in range(4):
        with autograd.record():
            loss = (weight.data() * (hvd.rank() + 1.0)).sum()
        loss.backward()
        trainer.step(1)
    # In 16 bits alone each step would be rounded away.
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(weight.data().asnumpy(), np.float16(1 - 4 * mean * 2.0**-12), atol=0)
    assert trainer._updaters[0].states[0][1].dtype == np.float32


def sixteen_bits_of_the_other_kind() -> None:
    gradient = nd.full((6,), hvd.rank() + 1.0).astype(BFLOAT16)
    hvd.allreduce_(gradient, op=hvd.Sum)
    assert gradient.dtype == BFLOAT16
    assert (gradient.astype("float32").asnumpy() == hvd.size() * (hvd.size() + 1) / 2).all()


def added_gradients() -> None:
    """grad_req="add": two passes, one step."""
    net = gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.Zero())
    params = net.collect_params()
    params.setattr("grad_req", "add")
    trainer = hvd.DistributedTrainer(params, "sgd", {"learning_rate": 1.0})
    for value in (1.0, 2.0):
        with autograd.record():
            loss = net(nd.full((1, 2), value * (hvd.rank() + 1))).sum()
        loss.backward()
    trainer.step(1)
    mean = 3.0 * (hvd.size() + 1) / 2
    np.testing.assert_allclose(net.weight.data().asnumpy(), [[-mean, -mean]])


def module() -> None:
    """The older interface: Module with DistributedOptimizer."""
    data = mx.sym.Variable("data")
    output = mx.sym.LinearRegressionOutput(mx.sym.FullyConnected(data, num_hidden=1, name="fc"), name="lro")
    x = np.random.default_rng(hvd.rank()).standard_normal((16, 3)).astype("float32")
    batches = mx.io.NDArrayIter(x, x.sum(1), batch_size=4, label_name="lro_label")
    mx.random.seed(hvd.rank())
    model = mx.mod.Module(output, label_names=["lro_label"])
    model.bind(batches.provide_data, batches.provide_label)
    model.init_params(mx.init.Normal(1.0))
    arguments, auxiliary = model.get_params()
    hvd.broadcast_parameters(arguments)
    model.set_params(arguments, auxiliary)
    inner = mx.optimizer.create("sgd", learning_rate=0.1, rescale_grad=0.25)
    optimizer = hvd.DistributedOptimizer(inner, num_groups=1)
    optimizer.set_learning_rate(0.2)
    assert inner.learning_rate == 0.2 and optimizer.lr == 0.2
    model.init_optimizer(kvstore=None, optimizer=optimizer)
    for _ in range(10):
        batches.reset()
        for batch in batches:
            model.forward_backward(batch)
            model.update()
    weights = everywhere(model.get_params()[0]["fc_weight"])
    assert (weights == weights[0]).all() and abs(weights - 1).max() < 0.1


def deferred_beside_known() -> None:
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(3, in_units=4), gluon.nn.Dense(2))
    net.initialize(mx.init.Constant(float(hvd.rank())))
    hvd.broadcast_parameters(net.collect_params(), root_rank=hvd.size() - 1, prefix="p.")
    assert (net[0].weight.data().asnumpy() == hvd.size() - 1).all()
    net(nd.ones((1, 4)))
    assert (net[1].weight.data().asnumpy() == hvd.size() - 1).all()
    net[1].weight.initialize(mx.init.Constant(7.0), force_reinit=True)  # is not broadcast once more
    assert (net[1].weight.data().asnumpy() == 7).all()


def arguments_that_are_refused() -> None:
    for call in (
        lambda: hvd.broadcast_parameters([nd.ones(1)]),
        lambda: hvd.broadcast_parameters({"a": 1}),
        lambda: hvd.DistributedTrainer({}, "sgd", num_groups=-1),
        lambda: hvd.DistributedTrainer({}, "sgd", gradient_predivide_factor=0),
        lambda: hvd.reducescatter(nd.array([1.0]).reshape((1,)), op=hvd.Max),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("nothing was raised")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        inner = mx.optimizer.SGD()
        trainer = hvd.DistributedTrainer(dense(1, in_units=1).collect_params(), hvd.DistributedOptimizer(inner))
    assert trainer._optimizer is inner
    assert any("DistributedTrainer reduces" in str(one.message) and one.filename == __file__ for one in caught)


def error_reaches_the_step() -> None:
    """The step that a failure belongs to raises it, and changes no parameter; the next one works."""
    net = dense(3, in_units=2)
    hvd.broadcast_parameters(net.collect_params())
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    weight, right = net[0].weight, net[0].weight._grad
    before = weight.data().asnumpy()
    if hvd.rank() == 1:
        weight._grad = [nd.zeros((5, 5))]
    try:
        trainer.step(1, ignore_stale_grad=True)
    except hvd.HorovodInternalError as error:
        assert type(error).__name__ == "MismatchError" and "rank 1 sent float32 [5, 5]" in str(error)
    else:
        raise AssertionError("nothing was raised")
    assert (weight.data().asnumpy() == before).all()
    weight._grad = right
    steps(net, trainer, width=2)
    require_equal(net)


def error_of_an_operation() -> None:
    """It is MXNet's, where the result is waited for; what depends on it is left out."""
    result = hvd.allreduce(nd.ones((2 + hvd.rank(),)), name="odd")
    twice = result * 2
    for array in (twice, hvd.allreduce(nd.ones((3,)), name="fine")):
        try:
            values = array.asnumpy()
        except MXNetError as error:
            assert array is twice and "Horovod MismatchError: allreduce 'odd': rank 1 sent" in str(error)
        else:
            assert array is not twice and (values == 1).all()


def poisoned_input_is_refused() -> None:
    """An operation that MXNet leaves out on one rank fails on the others, too, instead of waiting."""
    bad = hvd.allreduce(nd.ones((2 + hvd.rank(),)), name="odd.before")
    given = bad if hvd.rank() == 1 else nd.ones((3,))
    result = hvd.allreduce(given, name="behind")
    try:
        result.asnumpy()
    except MXNetError as error:
        elsewhere = "an operation of MXNet's that this one needs has failed on that rank"
        word = "odd.before" if hvd.rank() == 1 else elsewhere
        assert word in str(error), error
    else:
        raise AssertionError("nothing was raised")
    hvd.allgather_object(0)


def one_name_many_times() -> None:
    for number in range(20):
        result = hvd.allreduce(nd.array([float(number)]), name="same", op=hvd.Sum)
    assert result.asscalar() == 19 * hvd.size()


def many_at_once_in_any_order() -> None:
    numbers = list(range(40))
    if hvd.rank() % 2:
        numbers.reverse()
    results = {i: hvd.allreduce(nd.full((i + 1,), i), name=f"many.{i}", op=hvd.Sum, priority=-i) for i in numbers}
    for i, result in results.items():
        assert (result.asnumpy() == i * hvd.size()).all()


def views_of_one_memory() -> None:
    whole = nd.ones((4, 2)) * (hvd.rank() + 1)
    hvd.grouped_allreduce_([whole[0:1], whole[1:3]], op=hvd.Sum)
    total = hvd.size() * (hvd.size() + 1) / 2
    np.testing.assert_array_equal(whole.asnumpy()[:3], np.full((3, 2), total, "float32"))
    assert (whole[3].asnumpy() == hvd.rank() + 1).all()


def arrays_that_die_early() -> None:
    """Nobody holds input or result while the operation waits for a slow product."""
    for number in range(20):
        x = nd.random.normal(shape=(200, 200))
        hvd.allreduce(nd.dot(x, x), name=f"dies.{number}")
    assert hvd.allreduce(nd.ones((1,)), name="lives").asscalar() == 1
    with contextlib.suppress(MXNetError):  # MXNet tells here what nobody has waited for before
        nd.waitall()
    nd.waitall()


def other_layouts() -> None:
    """Convolutions leave their results, and in an evaluation their weights, in layouts of oneDNN's."""
    net = gluon.nn.Conv2D(32, 3, in_channels=16)
    net.initialize(mx.init.Constant((hvd.rank() + 1) / 144))
    ones = nd.ones((2, 16, 6, 6))
    for _ in range(2):  # not waited for
        scores = net(ones)
    own, mean = hvd.rank() + 1, (hvd.size() + 1) / 2
    np.testing.assert_allclose(hvd.allreduce(scores).asnumpy(), np.full(scores.shape, mean, "float32"), 1e-5)
    np.testing.assert_allclose(hvd.reducescatter(scores[0]).asnumpy(), mean, 1e-5)
    np.testing.assert_allclose((scores * 2).asnumpy(), 2 * own, 1e-5)
    hvd.allreduce_(scores[1:])
    np.testing.assert_allclose(scores[0].asnumpy(), own, 1e-5)
    np.testing.assert_allclose(scores[1].asnumpy(), mean, 1e-5)
    hvd.broadcast_parameters(net.collect_params(), root_rank=1)
    np.testing.assert_allclose(net(ones).asnumpy(), 2.0, 1e-5)
    hvd.broadcast_(net.weight.data(), root_rank=0, name="weight")
    np.testing.assert_allclose(net.weight.data().asnumpy(), 2 / 144, 1e-5)


def layouts_that_change_meanwhile() -> None:
    """Parameters are broadcast while a network runs, whose evaluation changes the layouts of its weights."""
    for turn in range(30):
        net = gluon.nn.HybridSequential()
        for _ in range(10):
            net.add(gluon.nn.Conv2D(16, 3, padding=1, in_channels=16))
        net.initialize(mx.init.Constant(hvd.rank() + 1.0))
        net(nd.ones((1, 16, 8, 8)))
        hvd.broadcast_parameters(net.collect_params(), root_rank=turn % hvd.size())
        for conv in net:
            assert (conv.weight.data().asnumpy() == turn % hvd.size() + 1).all()


FACTS: list[Callable[[], None]] = [
    plain, hybridized_in_groups, compressed_and_divided, average_by_the_trainer, multi_precision,
    sixteen_bits_of_the_other_kind, added_gradients, module, deferred_beside_known, arguments_that_are_refused,
    error_reaches_the_step, error_of_an_operation,
    poisoned_input_is_refused, one_name_many_times, many_at_once_in_any_order, views_of_one_memory,
    arrays_that_die_early, other_layouts, layouts_that_change_meanwhile,
]  # fmt: skip


def main() -> int:
    faulthandler.dump_traceback_later(100, exit=True)
    hvd.init()
    failures = []
    for fact in [one for one in FACTS if one.__name__ in sys.argv[1:]] or FACTS:
        try:
            fact()
        except Exception:
            failures.append(f"{fact.__name__}:\n{traceback.format_exc()}")
            break  # the ranks are no longer at the same place
    report("mxnet", rank=hvd.rank(), failures=failures, mxnet=mx.__version__)
    hvd.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
