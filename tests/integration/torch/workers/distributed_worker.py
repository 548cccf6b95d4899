"""Cases of the backend of torch.distributed. Where the same can be had from gloo, the results must be the same."""

import datetime
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from beside_gloo import expect_equal, gloo, join_group, small, trained
from cases import expect_raises
from jobs.case_runner import run_cases
from jobs.names_of_torch import (
    Replicate,
    Shard,
    all_gather_single,
    distribute_tensor,
    fully_shard,
    reduce_scatter_single,
)
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod._core.errors import CollectiveTimeoutError, InvalidArgumentError, MismatchError, UnsupportedError
from horovod.torch.distributed.call_names import TURNS

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.complex64]


def own(*shape, dtype=torch.float32):
    """This rank's tensor."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    return (torch.rand(*shape, generator=generator) * 8).to(dtype)


def case_reductions_as_gloo():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in DTYPES:
        expect_equal(dist.all_reduce, own(5, 3, dtype=dtype))
        at_root, everywhere = own(4, dtype=dtype), own(4, dtype=dtype)
        dist.reduce(at_root, 1)
        dist.all_reduce(everywhere)
        assert torch.equal(at_root, everywhere if dist.get_rank() == 1 else own(4, dtype=dtype))
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        expect_equal(lambda t, op=op, **to: dist.all_reduce(t, op, **to), own(7))
        whole, part = own(3 * ranks), torch.zeros(3)
        dist.reduce_scatter_tensor(part, whole, op)  # gloo of torch 2.4 adds whatever the operation is
        dist.all_reduce(whole, op)
        assert torch.equal(part, whole[3 * rank :][:3])
    for odd in (torch.zeros(0), own(4, 6).t(), own(6)[::2]):
        expect_equal(dist.all_reduce, odd)
    expect_equal(lambda out, t, **to: dist.reduce_scatter_tensor(out, t, **to), torch.zeros(2, 3), own(2 * ranks, 3))
    out = torch.zeros(2 + rank)
    dist.reduce_scatter(out, [torch.ones(2 + each) for each in range(ranks)])
    assert out.tolist() == [float(ranks)] * (2 + rank)
    mean, part = own(4), torch.zeros(1)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert torch.equal(mean, hvd.allreduce(own(4)))
    reduce_scatter_single(part, torch.full((ranks,), float(rank)), dist.ReduceOp.AVG)
    assert part.item() == (ranks - 1) / 2


def case_movements_as_gloo():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in [*DTYPES, torch.bool]:
        gloo_as = torch.float64 if dtype is torch.complex64 else None  # in older versions gloo broadcasts no complex64
        for tensor in (own(5, 3, dtype=dtype), own(6, dtype=dtype)[::2]):
            expect_equal(lambda t, **to: dist.broadcast(t, 1, **to), tensor, gloo_as=gloo_as)
        expect_equal(
            lambda *parts, **to: dist.all_gather(list(parts[:-1]), parts[-1], **to),
            *(torch.zeros(2, 3, dtype=dtype) for _ in range(size)),
            own(2, 3, dtype=dtype),
        )
        for rows in (2, 0):
            out, whole = torch.zeros(rows * size, 3, dtype=dtype), own(rows * size, 3, dtype=dtype)
            expect_equal(lambda out, t, **to: all_gather_single(out, t, **to), out, own(rows, 3, dtype=dtype))
            expect_equal(lambda out, t, **to: dist.all_to_all_single(out, t, **to), out, whole)
            expect_equal(lambda out, t, **to: all_gather_single(out, t, **to), out.t().contiguous().t(), whole[:rows])
    expect_equal(
        lambda out, t, **to: dist.scatter(out, [t + to_rank for to_rank in range(size)] if rank == 0 else None, **to),
        torch.zeros(3),
        own(3),
    )
    gathered = [torch.zeros(3) for _ in range(size)]
    dist.gather(own(3), gathered if rank == 1 else None, 1)
    assert rank != 1 or torch.equal(gathered[rank], own(3))
    together = torch.zeros(size, 3)
    if hasattr(dist, "gather_single"):
        dist.gather_single(own(3), together if rank == 1 else None, 1)
        assert rank != 1 or torch.equal(together, torch.stack(gathered))
    uneven = [torch.zeros(1 + 3 * each) for each in range(size)]
    dist.all_gather(uneven, torch.full((1 + 3 * rank,), float(rank)))
    assert [one.tolist() for one in uneven] == [[float(each)] * (1 + 3 * each) for each in range(size)]
    # Rank r sends r + 1 rows of its number to rank 0, and one to each other.
    numbers, rest = [float(each) for each in range(size)], [1] * (size - 1)
    expected = [each for each in range(size) for _ in range(each + 1)] if rank == 0 else list(range(size))
    received, sent = torch.zeros(len(expected)), torch.full((rank + size,), float(rank))
    come = list(range(1, size + 1)) if rank == 0 else [1] * size
    for _ in range(3):
        dist.all_to_all_single(received.zero_(), sent, come, [rank + 1, *rest])
        assert received.tolist() == expected
    lists = [torch.zeros(rank + each + 1) for each in range(size)]
    dist.all_to_all(lists, [torch.full((rank + each + 1,), numbers[rank]) for each in range(size)])
    assert [one.tolist() for one in lists] == [[numbers[each]] * (rank + each + 1) for each in range(size)]
    dist.barrier()
    dist.barrier(async_op=True).wait()


def case_outputs_that_share_memory_with_inputs():
    """As FSDP2 gathers; and neither may be of another dtype."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for step in range(3):
        whole = torch.full((ranks * 1000,), -1.0)
        own_part = whole[rank * 1000 :][:1000].fill_(rank + step)
        all_gather_single(whole, own_part)
        assert whole.view(ranks, 1000).tolist() == [[float(each + step)] * 1000 for each in range(ranks)]
        all_gather_single(whole, whole[:1000].fill_(rank))
        assert whole[::1000].tolist() == list(range(ranks))
        reduce_scatter_single(own_part, whole)
        assert own_part.tolist() == [float(ranks * rank)] * 1000
        dist.all_to_all_single(whole, whole.fill_(rank))
        assert whole[::1000].tolist() == list(range(ranks))
    for call in (all_gather_single, reduce_scatter_single):
        expect_raises(InvalidArgumentError, lambda call=call: call(torch.zeros(1), torch.ones(1).int()), "one dtype")


def case_objects():
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, {"rank": dist.get_rank()})
    assert [entry["rank"] for entry in gathered] == list(range(dist.get_world_size()))
    sent = [{"from": dist.get_rank()}]
    dist.broadcast_object_list(sent, 1)
    assert sent == [{"from": 1}]


def case_coalesced():
    with dist._coalescing_manager():
        tensors = [own(3), own(4, 2)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    ranks = dist.get_world_size()
    outputs = [torch.zeros(2 * ranks), torch.zeros(3 * ranks)]
    with dist._coalescing_manager(async_ops=True) as works:
        for output, given in zip(outputs, (own(2), own(3))):
            all_gather_single(output, given)
    works.wait()
    parts = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager():
        for part, given in zip(parts, (torch.ones(ranks), torch.ones(2 * ranks))):
            reduce_scatter_single(part, given)
    group = gloo()
    for tensor, given in zip(tensors, (own(3), own(4, 2))):
        dist.all_reduce(given, group=group)
        torch.testing.assert_close(tensor, given)
    assert torch.equal(outputs[0][2 * dist.get_rank() :][:2], own(2)) and parts[1].tolist() == [float(ranks)] * 2


def case_works_that_only_cpp_has():
    """As it broadcasts a model's state: calls that have ended before it waits for them."""
    kinds = [torch.float32, torch.float64] * 8
    tensors = [torch.full((4,), dist.get_rank() + step, dtype=kind) for step, kind in enumerate(kinds)]
    dist._broadcast_coalesced(dist.group.WORLD, tensors, 1, 0)
    assert [tensor[0].item() for tensor in tensors] == list(range(16))


def case_send_and_recv():
    other = dist.get_rank() ^ 1
    received = torch.zeros(4)
    dist.send(own(4), other)  # small: both may send first
    dist.recv(received, other)
    assert received.any() and not torch.equal(received, own(4))
    large, into = torch.full((1 << 18,), float(dist.get_rank())), torch.zeros(1 << 18)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, large, other), dist.P2POp(dist.irecv, into, other)]):
        work.wait()
    assert into[-1] == other
    strided = torch.zeros(4, 2).t()
    work = dist.isend(own(4, 2).t().to(torch.complex64), other)
    taken = torch.zeros(2, 4, dtype=torch.complex64)
    dist.recv(taken, other)
    work.wait()
    dist.send(strided + 1, other)
    dist.recv(strided, other)
    assert strided.tolist() == [[1.0] * 4] * 2
    expect_raises(InvalidArgumentError, lambda: dist.send(own(1), other, tag=3), "tag=3", "in the order")
    expect_raises(UnsupportedError, lambda: dist.recv(own(1)), "src=RANK")


def case_more_small_sends_than_are_copied():
    """Both ranks begin theirs before either receives; 256 of them fill the room for copies."""
    other = dist.get_rank() ^ 1
    sent = [torch.full((1 << 14,), float(number)) for number in range(300)]
    works = [dist.isend(tensor, other) for tensor in sent]
    dist.barrier()
    assert works[0].is_completed() and not works[-1].is_completed()
    received = torch.zeros(1 << 14)
    for tensor in sent:
        dist.recv(received, other)
        assert torch.equal(received, tensor)
    for work in works:
        work.wait()


def case_ddp_with_hooks_and_uneven_inputs():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    with model.join():
        for _ in range(3 + dist.get_rank()):
            model(torch.randn(2, 4)).sum().backward()
    model = DistributedDataParallel(torch.nn.Linear(64, 64), gradient_as_bucket_view=True)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    with model.no_sync():
        model(torch.randn(2, 64)).sum().backward()
    model(torch.randn(2, 64)).sum().backward()
    total = model.module.weight.grad.clone()
    dist.broadcast(total, 0)
    assert torch.equal(total, model.module.weight.grad)


def case_ddp_with_a_hook_whose_callbacks_wait_for_futures():
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    def wrap(model):
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook)
        return wrapped

    for parameter in trained(small, wrap):
        other = parameter.clone()
        dist.broadcast(other, 0)
        assert torch.equal(parameter, other)


def case_tensors_over_a_mesh():
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
    assert sharded.redistribute(mesh, [Replicate()]).to_local().sum() == 28
    assert functional.all_reduce(torch.ones(3), "sum", mesh.get_group()).tolist() == [float(mesh.size())] * 3

    @torch.compile(backend="aot_eager")
    def compiled(tensor):
        return functional.all_reduce(tensor * 2, "sum", dist.group.WORLD) + 1

    assert compiled(torch.ones(3)).tolist() == [2.0 * mesh.size() + 1] * 3


def case_checkpoints_and_sharded_optimizers():
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = torch.nn.Linear(8, 8)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    with tempfile.TemporaryDirectory() as own_folder:
        folder = [own_folder]
        dist.broadcast_object_list(folder, 0)
        state = {"weight": model.weight.detach()}
        checkpoint.save(state, checkpoint_id=folder[0])
        read = {"weight": torch.zeros(8, 8)}
        checkpoint.load(read, checkpoint_id=folder[0])
        dist.barrier()
    assert torch.equal(read["weight"], model.weight)


def case_what_ranks_disagree_about_fails_and_the_group_goes_on():
    def disagree():
        dist.all_reduce(torch.ones(3 + dist.get_rank()))

    for _ in range(20):  # one rank's next call is one that it knows, the other's is not
        dist.all_reduce(torch.ones(3))

    expect_raises(MismatchError, disagree, "rank 1 sent float32 [4]", "rank 0 sent float32 [3]")
    work = dist.all_reduce(torch.ones(3 + dist.get_rank()), async_op=True)
    expect_raises(MismatchError, work.wait, "float32 [4]")
    assert isinstance(work.exception(), MismatchError)
    expect_raises(
        UnsupportedError, lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR), "SUM, AVG"
    )
    for _ in range(20):
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2.0] * 3


def case_what_one_rank_cannot_do_the_others_learn():
    """They would wait otherwise."""
    first = dist.get_rank() == 0

    def scatter():
        # Rank 0 has an element too many.
        reduce_scatter_single(torch.zeros(2), torch.ones(5 if first else 4))

    def exchange():
        dist.all_to_all_single(torch.zeros(4), torch.ones(4), [2, 2], [4, 4] if first else [2, 2])

    def combine():
        dist.all_reduce(torch.ones(4, dtype=torch.int32), dist.ReduceOp.BXOR if first else dist.ReduceOp.SUM)

    kinds = (InvalidArgumentError, InvalidArgumentError, UnsupportedError)
    for call, kind, words in zip((scatter, exchange, combine), kinds, ("5 elements", "[4, 4]", "BXOR")):
        begun = time.monotonic()
        expect_raises(kind if first else MismatchError, call, words)
        assert time.monotonic() - begun < 10
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [2.0] * 3


def case_a_full_group_lets_other_threads_end_calls():
    """Rank 0 has as many calls under way as there may be; the other rank comes later."""
    tensors = [torch.ones(1) for _ in range(2 * TURNS)]
    if dist.get_rank():
        time.sleep(0.3)
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    for future, tensor in zip(futures, tensors):
        future.wait()
        assert tensor.item() == 2.0
    # A call that must wait for its turn leaves the lock to them.
    group = dist.group.WORLD
    if dist.get_rank() == 0:
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[:TURNS]]
        caller = threading.Thread(target=lambda: works.append(dist.all_reduce(torch.ones(1), async_op=True)))
        caller.start()
        caller.join(0.2)
        assert caller.is_alive() and group._lock.acquire(timeout=5)
        group._lock.release()
        dist.send(torch.ones(1), 1)
        caller.join()
    else:
        dist.recv(torch.ones(1), 0)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[: TURNS + 1]]
    for work in works:
        work.wait()


def case_calls_whose_work_is_dropped_have_their_results_before_later_ones():
    if dist.get_rank():
        time.sleep(0.3)
    tensors = [torch.ones(4, 3).t() for _ in range(2 * TURNS + 1)]
    ranks = dist.get_world_size()
    gathered = torch.zeros(ranks << 18)
    all_gather_single(gathered, torch.ones(1 << 18), async_op=True)
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    assert gathered.sum() == ranks << 18 and all(tensor.sum() == 12.0 * ranks for tensor in tensors)
    assert not dist.group.WORLD._kept


def case_inference_tensors():
    ranks = dist.get_world_size()
    with torch.inference_mode():
        for tensor in (torch.ones(3, 2), torch.ones(2, 3).t(), torch.ones(2, 3, dtype=torch.complex64).t()):
            dist.all_reduce(tensor, async_op=True).get_future().wait()
            assert tensor.sum().item() == 6.0 * ranks
        parts = [torch.zeros(2) for _ in range(ranks)]
        future = dist.all_gather(parts, torch.full((2,), float(dist.get_rank())), async_op=True).get_future()
    future.wait()  # also outside of the mode
    assert [part.tolist() for part in parts] == [[float(rank)] * 2 for rank in range(ranks)]


def case_torch_asks_for_a_backend():
    group = dist.group.WORLD
    assert group._get_backend(torch.device("cpu")) is group
    expect_raises(UnsupportedError, lambda: group._get_backend(torch.device("cuda")), "main memory", "nccl")
    elsewhere = torch.empty(2 * dist.get_world_size(), device="meta")
    expect_raises(UnsupportedError, lambda: group.all_gather_single(elsewhere, torch.ones(2)), "main memory")
    before = group._timeout_s
    dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=before), group)
    group._set_default_timeout(datetime.timedelta(seconds=1.5))
    assert group._timeout_s == 1.5
    group.set_timeout(datetime.timedelta(seconds=before))


def case_parts_of_other_sizes_than_expected_are_refused():
    sent = torch.ones(3)
    # Each rank sends 1 row to rank 0 and 2 to rank 1; what they expect is as much in all.
    received, expected = (torch.zeros(4), [1, 3]) if dist.get_rank() else (torch.zeros(2), [2, 0])
    expect_raises(
        InvalidArgumentError,
        lambda: dist.all_to_all_single(received, sent, expected, [1, 2]),
        "all_to_all_single: parts of",
    )
    expect_raises(
        InvalidArgumentError,
        lambda: all_gather_single(torch.zeros(4), torch.ones(1 + 2 * dist.get_rank())),
        "all_gather_single: parts of",
    )

    def coalesced():
        with dist._coalescing_manager():
            for _ in range(2):
                all_gather_single(torch.zeros(4), torch.ones(1 + 2 * dist.get_rank()))

    expect_raises(InvalidArgumentError, coalesced, "all_gather_single: parts of")
    dist.all_reduce(sent)
    assert sent.tolist() == [2.0] * 3


def case_a_call_that_other_ranks_do_not_make_times_out():
    token = torch.ones(1)
    if dist.get_rank() == 0:
        work = dist.all_reduce(token, async_op=True)
        expect_raises(CollectiveTimeoutError, lambda: work.wait(datetime.timedelta(seconds=0.2)), "within 0.2 s")
        hvd.barrier()
        work.wait()
    else:
        hvd.barrier()
        dist.all_reduce(token)
    assert token.item() == dist.get_world_size()


def case_more_calls_under_way_than_names():
    tensors = [torch.full((2,), float(step)) for step in range(150)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    for step, (tensor, future) in enumerate(zip(tensors, futures)):
        assert future.wait() and tensor.tolist() == [dist.get_world_size() * float(step)] * 2


def case_groups():
    ranks = dist.get_world_size()
    same = dist.new_group(list(range(ranks)))
    token = torch.ones(1)
    dist.all_reduce(token, group=same)
    assert token.item() == ranks and dist.get_backend(same) == "horovod"
    for rank in range(ranks):
        lone = dist.new_group([rank])
        if dist.get_rank() == rank:
            dist.all_reduce(token, group=lone)
            assert token.item() == ranks
        else:
            assert lone == dist.GroupMember.NON_GROUP_MEMBER


def case_on_four_ranks_meshes_of_two_dimensions():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    rank = dist.get_rank()
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=mesh["shard"].get_group())
    assert total.item() == (1.0 if rank < 2 else 5.0)
    dist.broadcast(total, group=mesh["replicate"].get_group(), src=rank % 2)
    assert total.item() == 1.0

    def shard(model):
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    one = [parameter.full_tensor() for parameter in trained(small, shard)]
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, one)
    assert all(all(map(torch.equal, one, other)) for other in gathered)


def case_on_four_ranks_new_groups():
    sent = torch.tensor([float(dist.get_rank())])
    for ranks in ([1, 3], [0, 2], [0, 1, 3]):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            parts = [torch.zeros(1) for _ in ranks]
            dist.all_gather(parts, sent, group=group)
            assert [part.item() for part in parts] == ranks
            dist.broadcast(total := sent.clone(), ranks[1], group=group)
            assert total.item() == ranks[1]
    parts = [torch.zeros(rank + 1) for rank in range(4)]
    dist.all_gather(parts, torch.full((dist.get_rank() + 1,), float(dist.get_rank())))
    assert [part.tolist() for part in parts] == [[float(rank)] * (rank + 1) for rank in range(4)]
    # Members that make theirs alone, and not all ranks.
    if dist.get_rank() in (1, 2):
        group = dist.new_group([1, 2], use_local_synchronization=True)
        dist.all_reduce(sent, group=group)
        assert sent.item() == 3.0
    dist.barrier()


def case_a_second_life():
    dist.destroy_process_group()
    assert hvd.is_initialized()  # by the runner of the cases, not by the group
    join_group()
    dist.barrier()


run_cases(globals(), hvd, join_group, process_sets="dynamic")
