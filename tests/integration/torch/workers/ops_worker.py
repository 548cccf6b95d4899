"""Cases of the operations on torch tensors."""

from itertools import product

import numpy as np
import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError, MismatchError

REDUCIBLE = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


def ranks():
    return range(hvd.size())


def of_rank(rank, shape=(5, 3), dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randint(0, 5, shape, generator=generator).to(dtype)


def own(**kind):
    return of_rank(hvd.rank(), **kind)


def total(**kind):
    return sum(of_rank(rank, **kind).double() for rank in ranks())


def case_allreduce_sums_every_dtype():
    for dtype in REDUCIBLE:
        tensor = own(dtype=dtype)
        before = tensor.clone()
        result = hvd.allreduce(tensor, op=hvd.Sum, name=f"sum.{dtype}")
        assert result.dtype == dtype and torch.equal(result.double(), total(dtype=dtype)), dtype
        assert torch.equal(tensor, before)


def case_eight_bit_floats():
    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = torch.full((2 * size, 3), rank + 1.0).to(dtype)
        group = hvd.grouped_allreduce([tensor, tensor], op=hvd.Max)
        assert all(t.dtype == dtype and t.float().eq(size).all() for t in group)
        state = {"w": tensor.clone()}
        hvd.broadcast_parameters(state, size - 1)
        assert state["w"].float().eq(size).all()
        average = torch.compile(lambda t: hvd.allreduce(t, op=hvd.Average), backend="eager")(tensor)
        assert average.float().eq((size + 1) / 2).all()


def case_gradients_of_eight_bit_floats():
    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        for call, expected in (
            (lambda t: hvd.allreduce(t, op=hvd.Sum), size),
            (lambda t: hvd.allreduce(t, op=hvd.Average, prescale_factor=0.5), 0.5),
            (lambda t: hvd.allreduce(t, op=hvd.Max), size * (rank == size - 1)),
            (lambda t: hvd.allgather(t), 1),
            (lambda t: hvd.grouped_allgather([t])[0], 1),
            (lambda t: hvd.broadcast(t, 0), rank == 0),
            (lambda t: hvd.alltoall(t), 1),
            (lambda t: hvd.reducescatter(t, op=hvd.Sum), size),
            (lambda t: hvd.grouped_reducescatter([t], op=hvd.Sum)[0], size),
        ):
            leaf = torch.full((2 * size, 3), rank + 1.0, requires_grad=True)
            call(leaf.to(dtype)).float().sum().backward()
            assert leaf.grad.eq(float(expected)).all(), (dtype, leaf.grad, expected)


def case_allreduce_min_max_product():
    everyone = torch.stack([of_rank(rank) for rank in ranks()])
    assert torch.equal(hvd.allreduce(own(), op=hvd.Min), everyone.amin(0))
    assert torch.equal(hvd.allreduce(own(), op=hvd.Max), everyone.amax(0))
    assert torch.equal(hvd.allreduce(own(), op=hvd.Product), everyone.prod(0))


def case_allreduce_of_bool_is_or_and_and():
    mine = torch.tensor([hvd.rank() == 0, True, False])
    assert hvd.allreduce(mine, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(mine, op=hvd.Min).tolist() == [hvd.size() == 1, True, False]
    expect_raises(ValueError, lambda: hvd.allreduce(mine, op=hvd.Average), "bool")


def case_allreduce_averages_by_default():
    assert torch.allclose(hvd.allreduce(own()), (total() / hvd.size()).float())


def case_average_argument_is_deprecated_but_works():
    import warnings

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert torch.equal(hvd.allreduce(own(), average=False), total().float())
    assert any(issubclass(w.category, DeprecationWarning) for w in seen)
    expect_raises(ValueError, lambda: hvd.allreduce(own(), average=True, op=hvd.Sum))


def case_factors_multiply_before_and_after():
    result = hvd.allreduce(own(), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.allclose(result, (total() * 1.5).float())


def case_in_place_changes_the_tensor_and_its_version():
    tensor = own()
    version = tensor._version
    assert hvd.allreduce_(tensor, op=hvd.Sum, name="in.place") is tensor
    assert torch.equal(tensor, total().float()) and tensor._version > version


def case_in_place_after_forward_is_noticed_by_autograd():
    weight = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    y = (weight * x).sum()
    hvd.allreduce_(x, name="noticed")
    expect_raises(RuntimeError, y.backward, "modified by an inplace operation")


def case_repeated_named_call_takes_other_dtypes_and_shapes():
    for tensor in (own(), own(), own(dtype=torch.float64), own(shape=(2,)), own(shape=(2,))):
        expected = total(shape=tuple(tensor.shape), dtype=tensor.dtype)
        assert torch.equal(hvd.allreduce_(tensor, op=hvd.Sum, name="again").double(), expected)


def case_scalars_and_empty_tensors():
    assert hvd.allreduce(torch.tensor(float(hvd.rank())), op=hvd.Sum).item() == sum(ranks())
    assert hvd.allreduce(torch.empty(0, 3)).shape == (0, 3)
    assert hvd.broadcast(torch.tensor(hvd.rank()), 0).item() == 0


def case_out_of_place_takes_any_strides():
    base = own(shape=(4, 6))
    for view in (base.t(), base[:, ::2], base[:, 1:4]):
        assert torch.allclose(hvd.allreduce(view, op=hvd.Sum), sum(
            {0: b.t(), 1: b[:, ::2], 2: b[:, 1:4]}[i] for b in (of_rank(r, shape=(4, 6)) for r in ranks())
            for i in [0 if view.shape == (6, 4) else 1 if view.stride(1) == 2 else 2]))  # fmt: skip
    assert torch.equal(hvd.allgather(base.t()), torch.cat([of_rank(r, shape=(4, 6)).t() for r in ranks()]))


def case_in_place_refuses_gaps():
    expect_raises(ValueError, lambda: hvd.allreduce_(own(shape=(4, 6)).t(), name="gaps"), "contiguous")
    assert hvd.allreduce_(torch.ones(2), name="gaps", op=hvd.Sum).tolist() == [hvd.size()] * 2


def case_lazily_negated_tensor_is_resolved():
    value = torch._neg_view(own())
    assert value.is_neg()
    assert torch.equal(hvd.allreduce(value, op=hvd.Sum), -total().float())


def case_unsupported_dtype_is_a_value_error():
    expect_raises(ValueError, lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64)), "complex64", "view_as_real")
    expect_raises(ValueError, lambda: hvd.allreduce([1.0, 2.0]), "torch tensor")


def sharded():
    """A DTensor of a job of one process."""
    import torch.distributed as dist
    from jobs.names_of_torch import Replicate, distribute_tensor
    from torch.distributed.device_mesh import init_device_mesh

    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return distribute_tensor(torch.ones(2), init_device_mesh("cpu", (1,)), [Replicate()])


def case_tensors_without_values_of_their_own_are_refused_everywhere():
    last = hvd.size() - 1
    for make, word in (
        (lambda: torch.ones(2, device="meta"), "'meta'"),
        (lambda: torch.ones(2, device="meta", requires_grad=True), "'meta'"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested"),
        (lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "nested"),
        (sharded, "DTensor"),
    ):
        tensor = make() if hvd.rank() == last else torch.zeros(hvd.size())
        kind = ValueError if hvd.rank() == last else hvd.HorovodInternalError
        words = [word] if hvd.rank() == last else [word, f"rank {last} refused"]
        for function in (hvd.allreduce, hvd.allreduce_, hvd.allgather, hvd.alltoall, hvd.reducescatter):
            for _ in range(2):
                function(torch.zeros(hvd.size()))  # a call of this kind is prepared now
            expect_raises(kind, lambda function=function, tensor=tensor: function(tensor), *words)
        expect_raises(kind, lambda tensor=tensor: hvd.grouped_allreduce([tensor, torch.zeros(2)]), *words)
        expect_raises(kind, lambda tensor=tensor: hvd.broadcast_(tensor, 0), *words)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    parameter = torch.nn.Parameter(sharded())
    plain = torch.optim.SGD([parameter], lr=0.1)
    expect_raises(ValueError, lambda: hvd.DistributedOptimizer(plain, [("w", parameter)]), "'w' is a DTensor", "FSDP2")


def case_async_and_poll():
    handle = hvd.allreduce_async(own(), op=hvd.Sum, name="later")
    result = hvd.synchronize(handle)
    assert torch.equal(result, total().float())
    assert hvd.poll(handle) and hvd.synchronize(handle) is None
    tensor = own()
    assert hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Sum)) is tensor
    assert torch.equal(tensor, total().float())


def case_different_submission_orders():
    order = list(range(10))[:: 1 if hvd.rank() % 2 == 0 else -1]
    handles = {i: hvd.allreduce_async(torch.full((3,), float(i)), op=hvd.Sum, name=f"order.{i}") for i in order}
    for i, handle in handles.items():
        assert torch.equal(hvd.synchronize(handle), torch.full((3,), float(i * hvd.size())))


def case_duplicate_name_in_flight():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
        expect_raises(ValueError, lambda: hvd.allreduce_async(torch.ones(2), name="twice"), "twice")
        hvd.barrier()
        hvd.synchronize(first)
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name="twice")


def case_grouped_allreduce():
    shapes = [(2,), (3, 3), ()]
    results = hvd.grouped_allreduce([own(shape=s) for s in shapes], op=hvd.Sum, name="group")
    for result, shape in zip(results, shapes):
        assert torch.equal(result, total(shape=shape).float())
    tensors = [own(shape=s) for s in shapes]
    again = hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="group")
    assert all(a is b and torch.equal(a, r) for a, b, r in zip(again, tensors, results))
    handle = hvd.grouped_allreduce_async([own(shape=s) for s in shapes], op=hvd.Sum)
    assert all(torch.equal(a, b) for a, b in zip(hvd.synchronize(handle), results))
    assert hvd.grouped_allreduce([]) == []


def case_allgather_with_different_rows():
    for dtype in [*REDUCIBLE, torch.bool]:
        mine = torch.full((hvd.rank() + 1, 2), hvd.rank() % 2).to(dtype)
        expected = torch.cat([torch.full((r + 1, 2), r % 2) for r in ranks()]).to(dtype)
        result = hvd.allgather(mine, name=f"gather.{dtype}")
        assert result.dtype == dtype and torch.equal(result, expected), dtype
    assert hvd.allgather(torch.empty(0, 4)).shape == (0, 4)
    expect_raises(ValueError, lambda: hvd.allgather(torch.tensor(1.0)), "dimension")


def case_allgather_result_outlives_its_operation():
    result = hvd.allgather(torch.full((1000,), float(hvd.rank())))
    part = result[:10]
    del result
    for _ in range(20):
        hvd.allgather(torch.full((1000,), 99.0))
    assert torch.equal(part, torch.zeros(10))


def case_grouped_allgather():
    results = hvd.grouped_allgather([torch.full((1, 2), hvd.rank()), torch.full((hvd.rank(), 1), 7.0)])
    assert results[0][:, 0].tolist() == list(ranks()) and results[1].shape == (sum(ranks()), 1)


def case_broadcast():
    root = hvd.size() - 1
    for dtype in [*REDUCIBLE, torch.bool]:
        tensor = own(dtype=dtype)
        expected = of_rank(root, dtype=dtype)
        assert torch.equal(hvd.broadcast(tensor, root, name=f"cast.{dtype}"), expected)
        assert hvd.broadcast_(tensor, root) is tensor and torch.equal(tensor, expected)
    handle = hvd.broadcast_async_(tensor := own(), 0)
    assert hvd.synchronize(handle) is tensor and torch.equal(tensor, of_rank(0))


def case_alltoall():
    size, rank = hvd.size(), hvd.rank()
    received = hvd.alltoall(torch.tensor([[rank, peer] for peer in ranks()]))
    assert received.tolist() == [[peer, rank] for peer in ranks()]
    splits = [peer + 1 for peer in ranks()]
    sent = torch.tensor([rank * 100 + peer for peer in ranks() for _ in range(peer + 1)])
    expected = [peer * 100 + rank for peer in ranks() for _ in range(rank + 1)]
    for given in (splits, torch.tensor(splits, dtype=torch.int32), np.array(splits)):
        rows, counts = hvd.alltoall(sent, splits=given)
        assert rows.tolist() == expected and counts.tolist() == [rank + 1] * size and counts.dtype == torch.int32
    rows, counts = hvd.synchronize(hvd.alltoall_async(torch.zeros(size)))
    assert rows.tolist() == [0.0] * size and counts.tolist() == [1] * size


def case_reducescatter_uneven_rows():
    rows = hvd.size() * 2 + 1
    full = total(shape=(rows, 2)).float()
    start = sum(rows // hvd.size() + (1 if r < rows % hvd.size() else 0) for r in range(hvd.rank()))
    count = rows // hvd.size() + (1 if hvd.rank() < rows % hvd.size() else 0)
    result = hvd.reducescatter(own(shape=(rows, 2)), op=hvd.Sum)
    assert torch.equal(result, full[start : start + count])
    first, second = hvd.grouped_reducescatter([own(shape=(rows, 2)), own(shape=(rows, 2))])
    assert torch.allclose(first, full[start : start + count] / hvd.size()) and torch.equal(first, second)
    assert torch.equal(hvd.synchronize(hvd.reducescatter_async(own(shape=(rows, 2)), op=hvd.Sum)), result)
    expect_raises(ValueError, lambda: hvd.reducescatter(own(), op=hvd.Max))


def case_compression_keeps_the_dtype():
    for compression, tolerance in ((hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)):
        tensor = torch.rand(50) + hvd.rank()
        exact = hvd.allreduce(tensor)
        result = hvd.allreduce(tensor, compression=compression)
        assert result.dtype == torch.float32 and torch.allclose(result, exact, rtol=tolerance)
        assert not torch.equal(result, exact)
        assert hvd.allreduce(torch.ones(2, dtype=torch.int32), compression=compression, op=hvd.Sum).dtype == torch.int32


def case_sparse_allreduce():
    size = hvd.size()
    indices = torch.tensor([[0, hvd.rank() + 1, 0]])
    tensor = torch.sparse_coo_tensor(indices, torch.ones(3, 2), (10, 2))
    for op, share in ((hvd.Sum, 1.0), (hvd.Average, 1.0 / size)):
        finish = hvd.sparse_allreduce_async(tensor, name="sparse", op=op)
        assert callable(finish)
        dense = finish().to_dense()
        expected = torch.zeros(10, 2)
        expected[0] = 2 * size * share
        expected[1 : size + 1] = share
        assert torch.allclose(dense, expected)
    whole = torch.sparse_coo_tensor([[hvd.rank()]], torch.tensor([-5]), (hvd.size(),))
    assert hvd.sparse_allreduce_async(whole, "integers", hvd.Average)().to_dense().tolist() == [-(5 // size)] * size
    met = torch.sparse_coo_tensor([[1]], torch.tensor([3]), (2,))
    assert hvd.sparse_allreduce_async(met, "integers", hvd.Average)().to_dense().tolist() == [0, 3]
    expect_raises(NotImplementedError, lambda: hvd.sparse_allreduce_async(tensor, "sparse", hvd.Max))


def case_mismatch_names_the_ranks():
    error = expect_raises(
        hvd.HorovodInternalError, lambda: hvd.allreduce(torch.ones(2 + hvd.rank()), name="differs"), "differs", "rank"
    )
    assert isinstance(error, MismatchError)
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def case_bad_argument_on_one_rank_reaches_the_others():
    bad = hvd.rank() == 1
    tensor = torch.ones(2, dtype=torch.complex64) if bad else torch.ones(2)
    expect_raises(
        InvalidArgumentError if bad else MismatchError, lambda: hvd.allreduce(tensor, name="refused"), "refused"
    )


def case_what_is_no_compressor_is_refused():
    calls = (
        lambda tensor, how: hvd.allreduce(tensor, name="packed", compression=how),
        lambda tensor, how: hvd.grouped_allreduce([tensor], name="packed", compression=how)[0],
        lambda tensor, how: hvd.reducescatter(tensor, name="packed", compression=how, op=hvd.Sum),
        lambda tensor, how: hvd.grouped_reducescatter([tensor], name="packed", compression=how, op=hvd.Sum)[0],
    )
    words = "compression must be hvd.Compression.none", "Received: None"
    for call, needs_gradient in product(calls, (False, True)):
        tensor = torch.ones(hvd.size(), requires_grad=needs_gradient)
        expect_raises(InvalidArgumentError, lambda call=call, tensor=tensor: call(tensor, None), *words)
    for call in calls:  # of one rank
        bad = hvd.rank() == 1
        kind, how = (InvalidArgumentError, None) if bad else (MismatchError, hvd.Compression.none)
        more = [] if bad else ["packed"]
        expect_raises(kind, lambda call=call, how=how: call(torch.ones(hvd.size()), how), words[0], *more)
    hvd.barrier()


def case_join_supplies_zeros():
    for step in range(1 + hvd.rank()):
        result = hvd.allreduce(torch.ones(2), op=hvd.Sum, name="uneven")
        assert result.tolist() == [hvd.size() - step] * 2
    assert hvd.join() == hvd.size() - 1


def case_adasum_of_equal_vectors_is_their_value():
    if hvd.size() & (hvd.size() - 1):
        expect_raises(NotImplementedError, lambda: hvd.allreduce(torch.ones(4), op=hvd.Adasum))
        return
    assert torch.allclose(hvd.allreduce(torch.tensor([1.0, 2.0, 3.0]), op=hvd.Adasum), torch.tensor([1.0, 2.0, 3.0]))
    apart = torch.zeros(hvd.size())
    apart[hvd.rank()] = 1.0
    assert torch.allclose(hvd.allreduce(apart, op=hvd.Adasum), torch.ones(hvd.size()))


def case_objects():
    assert hvd.broadcast_object({"a": [hvd.rank()], "f": len}, root_rank=1) == {"a": [1], "f": len}
    assert hvd.allgather_object("x" * hvd.rank()) == ["x" * r for r in ranks()]


def case_user_sees_process_sets():
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: list(ranks())}
    assert hvd.mpi_ops._basics.size() == hvd.size() and hvd.mpi_ops.is_homogeneous()


if __name__ == "__main__":
    run_cases(globals())
