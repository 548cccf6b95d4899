"""Cases of gradients through the collectives."""

import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd


def weights(shape=(4, 2), rank=None):
    """Incoming gradients that differ between ranks."""
    generator = torch.Generator().manual_seed(hvd.rank() if rank is None else rank)
    return torch.rand(shape, generator=generator)


def all_weights(shape=(4, 2)):
    return torch.stack([weights(shape, rank) for rank in range(hvd.size())])


def gradient(function, x):
    x = x.clone().requires_grad_()
    output = function(x)
    (output * weights(tuple(output.shape))).sum().backward()
    return x.grad


def case_allreduce_gradient_is_the_same_allreduce():
    x = torch.rand(4, 2)
    everyone = all_weights()
    assert torch.allclose(gradient(lambda t: hvd.allreduce(t, name="a"), x), everyone.mean(0))
    assert torch.allclose(gradient(lambda t: hvd.allreduce(t, op=hvd.Sum), x), everyone.sum(0))
    scaled = gradient(lambda t: hvd.allreduce(t, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0), x)
    assert torch.allclose(scaled, 6 * everyone.sum(0))


def case_allreduce_gradient_through_compression():
    x = torch.rand(4, 2)
    result = gradient(lambda t: hvd.allreduce(t, compression=hvd.Compression.fp16), x)
    assert result.dtype == torch.float32 and torch.allclose(result, all_weights().mean(0), atol=1e-3)


def case_upstreams_autograd_functions():
    ops, x, everyone = hvd.mpi_ops, torch.rand(4, 2), all_weights()
    every = hvd.global_process_set
    assert torch.allclose(
        gradient(lambda t: ops.HorovodAllreduce.apply(t, None, "f", hvd.Sum, 1.0, 1.0, every), x), everyone.sum(0)
    )
    grouped = gradient(lambda t: ops.HorovodGroupedAllreduce.apply(None, "g", hvd.Sum, 1.0, 1.0, every, t, t)[1], x)
    assert torch.allclose(grouped, everyone.sum(0))
    same = x.clone().requires_grad_()
    rows = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    assert torch.equal(ops.HorovodAllgather.apply(same, "h", every)[rows], x)
    assert torch.equal(ops.HorovodGroupedAllgather.apply("i", every, same, same)[1][rows], x)
    assert torch.equal(ops.HorovodBroadcast.apply(same, 0, "j", every), hvd.broadcast(x, 0))
    assert (
        ops.HorovodAlltoall.apply(torch.ones(hvd.size(), 1, requires_grad=True), None, "k", every).sum() == hvd.size()
    )
    ones = torch.ones(hvd.size(), 3, requires_grad=True)
    assert ops.HorovodReducescatter.apply(ones, "l", hvd.Sum, every, 1.0, 2.0).tolist() == [[2.0 * hvd.size()] * 3]
    assert ops.HorovodGroupedReducescatter.apply("m", hvd.Sum, every, 1.0, 2.0, ones)[0].sum() == 6 * hvd.size()


def case_upstreams_functions_with_outputs():
    ops, mine = hvd.mpi_ops, torch.full((3,), hvd.rank() + 1.0)
    mean, total, first = (torch.zeros(3) for _ in range(3))
    handle = ops._allreduce_async(mine, mean, "outputs.a")
    assert handle in ops._handle_map
    assert ops.synchronize(handle) is not None and handle not in ops._handle_map
    ops.synchronize(
        ops._grouped_allreduce_async([mine], [total], "outputs.b", hvd.Sum, 1.0, 2.0, hvd.global_process_set)
    )
    ops.synchronize(ops._broadcast_async(mine, first, 0, "outputs.c"))
    size = hvd.size()
    assert mean.tolist() == [(size + 1) / 2] * 3 and total.tolist() == [size * (size + 1.0)] * 3
    assert first.tolist() == [1.0] * 3 and mine.tolist() == [hvd.rank() + 1.0] * 3


def case_max_gradient_goes_to_the_holder():
    x = torch.full((4, 2), float(hvd.rank()))
    result = gradient(lambda t: hvd.allreduce(t, op=hvd.Max), x)
    expected = all_weights().sum(0) if hvd.rank() == hvd.size() - 1 else torch.zeros(4, 2)
    assert torch.allclose(result, expected)
    tied = gradient(lambda t: hvd.allreduce(t, op=hvd.Min), torch.ones(4, 2))
    assert torch.allclose(tied, all_weights().mean(0))


def case_product_has_no_gradient():
    expect_raises(
        NotImplementedError, lambda: gradient(lambda t: hvd.allreduce(t, op=hvd.Product), torch.ones(4, 2)), "Product"
    )


def case_grouped_allreduce_gradients_and_unused_outputs():
    xs = [torch.rand(4, 2, requires_grad=True) for _ in range(3)]
    outputs = hvd.grouped_allreduce(xs, op=hvd.Sum, name="grouped")
    ((outputs[0] + 2 * outputs[2]) * weights()).sum().backward()
    total = all_weights().sum(0)
    assert torch.allclose(xs[0].grad, total) and torch.allclose(xs[2].grad, 2 * total)
    assert xs[1].grad is None or not xs[1].grad.any()


def case_allgather_gradient_is_own_rows_of_the_average():
    rows = hvd.rank() + 1
    x = torch.rand(rows, 2)
    total_rows = sum(range(1, hvd.size() + 1))
    start = sum(range(1, hvd.rank() + 1))
    expected = all_weights((total_rows, 2)).mean(0)[start : start + rows]
    assert torch.allclose(gradient(lambda t: hvd.allgather(t, name="g"), x), expected)
    grouped = gradient(lambda t: hvd.grouped_allgather([t, t.detach()])[0], x)
    assert torch.allclose(grouped, expected)


def case_broadcast_gradient_is_the_average_on_the_root():
    expected = all_weights().mean(0) if hvd.rank() == 1 else torch.zeros(4, 2)
    assert torch.allclose(gradient(lambda t: hvd.broadcast(t, 1, name="b"), torch.rand(4, 2)), expected)


def case_alltoall_gradient_goes_back():
    size, rank = hvd.size(), hvd.rank()
    splits = torch.tensor([1 + peer for peer in range(size)])
    rows = int(splits.sum()) + 1  # one row is not sent

    def received(tensor):
        return hvd.alltoall(tensor, splits=splits)[0]

    result = gradient(received, torch.rand(rows, 2))
    parts = [weights((size * (peer + 1), 2), peer)[rank * (peer + 1) : (rank + 1) * (peer + 1)] for peer in range(size)]
    assert torch.allclose(result, torch.cat([*parts, torch.zeros(1, 2)]))
    for equal_parts in (lambda t: hvd.alltoall(t), lambda t: hvd.alltoall(t, splits=[])[0]):
        even = gradient(equal_parts, torch.rand(size, 2))
        assert torch.allclose(even, torch.stack([weights((size, 2), peer)[rank] for peer in range(size)]))
    for wrong in ([1.0] * size, torch.tensor([])):
        rows = torch.rand(size, 2, requires_grad=True)
        expect_raises(ValueError, lambda: hvd.alltoall(rows, splits=wrong), "one-dimensional tensor of integers")  # noqa: B023


def case_reducescatter_gradient_is_an_allgather():
    size, rows = hvd.size(), 2 * hvd.size() + 1
    counts = [rows // size + (1 if r < rows % size else 0) for r in range(size)]
    gathered = torch.cat([weights((count, 2), rank) for rank, count in enumerate(counts)])
    x = torch.rand(rows, 2)
    assert torch.allclose(gradient(lambda t: hvd.reducescatter(t), x), gathered)
    assert torch.allclose(gradient(lambda t: hvd.reducescatter(t, op=hvd.Sum), x), gathered * size)
    grouped = gradient(lambda t: hvd.grouped_reducescatter([t], postscale_factor=0.5)[0], x)
    assert torch.allclose(grouped, gathered * 0.5)


def case_second_derivative():
    x = torch.rand(3, requires_grad=True)
    y = hvd.allreduce(x**3, op=hvd.Sum, name="twice")
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, 6 * x * hvd.size())
    z = torch.rand(2, 2, requires_grad=True)
    (first,) = torch.autograd.grad((hvd.allgather(z, name="z") ** 2).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z)
    # Each of the two derivatives averages over the ranks, as the gradient of allgather does.
    assert torch.allclose(second, torch.full((2, 2), 2.0 / hvd.size()))


def case_no_grad_stays_out_of_autograd():
    x = torch.rand(3, requires_grad=True)
    with torch.no_grad():
        assert not hvd.allreduce(x).requires_grad
    assert hvd.allreduce(x).requires_grad and not hvd.allreduce(x.detach()).requires_grad


if __name__ == "__main__":
    run_cases(globals())
