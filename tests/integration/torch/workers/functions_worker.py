"""Cases of the broadcasts of parameters and optimizer state, SyncBatchNorm, data loaders and process sets."""

import copy
import warnings

import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd

F = torch.nn.functional


def everywhere_equal(tensor):
    return len({t.double().numpy().tobytes() for t in hvd.allgather_object(tensor.detach().contiguous())}) == 1


def case_broadcast_parameters_of_a_state_dict():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Linear(4, 2).bfloat16())
    model.to(memory_format=torch.channels_last)
    model[1].running_mean.fill_(hvd.rank())
    model[1].num_batches_tracked.fill_(hvd.rank() + 5)
    root = copy.deepcopy(model) if hvd.rank() == 1 else None
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    assert all(everywhere_equal(t) for t in model.state_dict().values())
    if root is not None:
        assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), root.state_dict().values()))
    assert model[1].num_batches_tracked == 6 and model[0].weight.is_contiguous(memory_format=torch.channels_last)


def case_broadcast_parameters_whose_strides_differ_between_ranks():
    values = torch.arange(16.0)
    root = hvd.rank() == 0
    state = {
        "square": values.view(4, 4).t() if root else torch.zeros(4, 4),
        "oblong": values.view(2, 8).t() if root else torch.zeros(8, 2),
        "flat": values.clone() if root else torch.zeros(32)[::2],
    }
    hvd.broadcast_parameters(state, root_rank=0)
    assert torch.equal(state["square"], values.view(4, 4).t()) and torch.equal(state["oblong"], values.view(2, 8).t())
    assert torch.equal(state["flat"], values)


def case_broadcast_parameters_of_named_tuples():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 4)
    hvd.broadcast_parameters(model.named_parameters(), root_rank=0)
    assert everywhere_equal(model.weight) and model.weight.requires_grad
    expect_raises(ValueError, lambda: hvd.broadcast_parameters(model, root_rank=0), "dictionary")
    expect_raises(ValueError, lambda: hvd.broadcast_parameters([1.0], root_rank=0), "tuples")
    expect_raises(ValueError, lambda: hvd.broadcast_parameters(model.weight, root_rank=0), "tuples")


def case_broadcast_parameters_without_names():
    for listed in (
        lambda m: list(m.parameters()),
        lambda m: m.parameters(),
        lambda m: [(None, p) for p in m.parameters()],
    ):
        torch.manual_seed(hvd.rank())
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        hvd.broadcast_parameters(listed(model), 0)
        assert all(everywhere_equal(p) for p in model.parameters())


def case_broadcast_parameters_replaces_other_values():
    state = {"weight": torch.full((2,), float(hvd.rank())), "epoch": hvd.rank() + 3, "tied": torch.ones(2)[::2]}
    hvd.broadcast_parameters(state, root_rank=1)
    assert state["epoch"] == 4 and state["weight"].tolist() == [1.0, 1.0]


def case_broadcast_parameters_of_nested_containers():
    torch.manual_seed(hvd.rank())
    model, averages = torch.nn.Linear(4, 4), [torch.full((2,), float(hvd.rank())), (torch.full((3,), hvd.rank()),)]
    held = {"model": model.state_dict(), "ema": averages, "run": {"epoch": hvd.rank(), "best": [hvd.rank()]}}
    hvd.broadcast_parameters(held, root_rank=1)
    assert everywhere_equal(model.weight) and everywhere_equal(model.bias)
    assert averages[0].tolist() == [1.0, 1.0] and averages[1][0].tolist() == [1, 1, 1]
    assert held["run"] == {"epoch": 1, "best": [1]}
    torch.manual_seed(hvd.rank())
    model = torch.nn.Linear(4, 4)
    hvd.broadcast_parameters([("model", model.state_dict())], root_rank=0)
    assert everywhere_equal(model.weight)


def case_broadcast_parameters_refuses_what_holds_copies():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    if hvd.rank() == 0:
        step(optimizer, [parameter])  # as after loading a checkpoint there
    distributed = hvd.DistributedOptimizer(optimizer, [("parameter", parameter)])
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    chained = torch.optim.lr_scheduler.ChainedScheduler([scheduler])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    scaler = torch.amp.GradScaler("cpu")
    model = torch.nn.Linear(2, 2)
    for given, word in (
        (optimizer, "broadcast_optimizer_state"),
        (distributed, "broadcast_optimizer_state"),
        (optimizer.state_dict(), "broadcast_optimizer_state"),
        (distributed.state_dict(), "broadcast_optimizer_state"),
        ({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "'optimizer' is an optimizer's state"),
        ({"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "broadcast_optimizer_state"),
        ({"all": {"optimizer": [optimizer.state_dict()]}}, "'all.optimizer.0' is an optimizer's state"),
        ({"optimizer": optimizer}, "broadcast_optimizer_state"),
        (scheduler, "scheduler.load_state_dict"),
        (scheduler.state_dict(), "scheduler.load_state_dict"),
        (chained.state_dict(), "scheduler.load_state_dict"),
        (plateau.state_dict(), "scheduler.load_state_dict"),
        (scaler, "scaler.load_state_dict"),
        (scaler.state_dict(), "scaler.load_state_dict"),
        ({"model": model}, "'model' is a module"),
        ({"models": [model]}, "'models.0' is a module"),
        ([("epoch", 3)], "broadcast_object"),
        ({"epochs": (torch.ones(2), 3)}, "'epochs.1' is not a tensor"),
    ):
        expect_raises(ValueError, lambda given=given: hvd.broadcast_parameters(given, 0), word)


def case_broadcast_parameters_refuses_what_cannot_be_overwritten():
    module = torch.nn.Module()
    module.register_buffer("scale", torch.ones(1).expand(3))
    expect_raises(ValueError, lambda: hvd.broadcast_parameters(module.state_dict(), 0), "'scale' is expanded", "clone")
    for fine in (torch.zeros(1, 0).expand(4, 0), torch.zeros(1).expand(1), torch.full((2, 3), hvd.rank()).t()):
        hvd.broadcast_parameters({"fine": fine}, 0)
        assert not fine.any()


def case_broadcasts_that_one_rank_refuses():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    wrong = hvd.rank() == hvd.size() - 1
    kind = ValueError if wrong else hvd.HorovodInternalError
    told = [] if wrong else [f"rank {hvd.size() - 1} refused"]
    given = {"model": model} if wrong else model.state_dict()
    expect_raises(
        kind, lambda: hvd.broadcast_parameters(given, 0), "broadcast_parameters", "'model' is a module", *told
    )
    other = model if wrong else optimizer
    expect_raises(kind, lambda: hvd.broadcast_optimizer_state(other, 0), "Received: Linear", "state_dict()", *told)
    fewer = {"weight": model.weight} if wrong else model.state_dict()
    words = "rank 0 has 'bias'", f"which rank {hvd.size() - 1} does not have"
    expect_raises(hvd.HorovodInternalError, lambda: hvd.broadcast_parameters(fewer, 0), *words)
    hvd.broadcast_parameters(model.state_dict(), 0)


def case_broadcast_parameters_where_one_rank_has_a_tensor():
    best = torch.tensor(0.9) if hvd.rank() == hvd.size() - 1 else 0.0  # as after a resume there
    state = {"model": torch.nn.Linear(2, 2).state_dict(), "epoch": 3, "best": best}
    words = "'best' is no tensor on rank 0 and a tensor on rank", "hvd.broadcast_object"
    expect_raises(hvd.HorovodInternalError, lambda: hvd.broadcast_parameters(state, 0), *words)


def case_broadcast_parameters_refuses_equal_names():
    for given, name in (
        ({1: 5, "1": 7}, "'1'"),
        ({"opt.lr": 0.1, "opt": {"lr": 0.2, "t": torch.ones(1)}}, "'opt.lr'"),
        ({"a": {"b": torch.ones(2)}, "a.b": torch.ones(2)}, "'a.b'"),
        ([("w", torch.ones(2)), ("w", torch.ones(2))], "'w'"),
    ):
        words = "broadcast_parameters", f"{name} names two entries"
        expect_raises(ValueError, lambda given=given: hvd.broadcast_parameters(given, 0), *words)
        wrong = hvd.rank() == 0
        kind = ValueError if wrong else hvd.HorovodInternalError
        other = given if wrong else {"1": 5}
        expect_raises(kind, lambda other=other: hvd.broadcast_parameters(other, 0), *words)


def case_optimizer_state_needs_an_optimizer():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expect_raises(ValueError, lambda: hvd.broadcast_optimizer_state(model, 0), "optimizer", "hvd.broadcast_parameters")
    expect_raises(ValueError, lambda: hvd.broadcast_optimizer_state(optimizer.state_dict(), 0), "the optimizer itself")
    error = expect_raises(ValueError, lambda: hvd.DistributedOptimizer(optimizer, model.parameters()), "tuples")
    assert "a tensor of shape [2, 2] without a name" in str(error) and len(str(error)) < 250, error


def make_parameters(seed):
    torch.manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(6, 4)), torch.nn.Parameter(torch.randn(4, 4))]


def step(optimizer, parameters, sparse=False):
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter) * 0.1
        if sparse:
            parameter.grad = parameter.grad.to_sparse(1)
    optimizer.step()


def optimizer_makers():
    optim = torch.optim
    skip = {"Optimizer", "LBFGS"}
    kinds = [getattr(optim, n) for n in dir(optim) if isinstance(getattr(optim, n), type) and n not in skip]
    for kind in kinds:
        yield kind.__name__, lambda p, kind=kind: kind(p, lr=0.01)
    yield "SGD momentum", lambda p: optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True)
    yield "Adam amsgrad", lambda p: optim.Adam(p, lr=torch.tensor(0.01), amsgrad=True)
    yield "AdamW fused", lambda p: optim.AdamW(p, lr=0.01, fused=True)
    yield "RMSprop centered", lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.1)
    yield "two groups", lambda p: optim.Adam([{"params": p[:1], "lr": 0.1}, {"params": p[1:]}], lr=0.01)


def case_optimizer_state_of_every_class():
    seen = []
    for name, make in optimizer_makers():
        sparse = name == "SparseAdam"
        seen.append(name)
        parameters = make_parameters(0)
        optimizer = make(parameters)
        if hvd.rank() == 0:  # only the root has any state
            for _ in range(3):
                step(optimizer, parameters, sparse)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * (hvd.rank() + 1)
        weights_before = [p.detach().clone() for p in parameters]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert sparse or all(p.grad is not None for p in parameters), f"{name}: a missing gradient is one of zeros"
        assert all(torch.equal(a, b) for a, b in zip(weights_before, parameters)), f"{name}: no weight may change"
        hvd.broadcast_parameters([(str(i), p) for i, p in enumerate(parameters)], root_rank=0)
        states = hvd.allgather_object(optimizer.state_dict())
        assert repr(states[0]) == repr(states[-1]), name
        for _ in range(2):
            step(optimizer, parameters, sparse)
        assert all(everywhere_equal(p) for p in parameters), name
    assert {"SGD", "Adam", "AdamW", "SparseAdam", "Rprop"} <= set(seen)


def case_optimizer_state_keeps_dtypes_and_drops_extra_state():
    parameters = [p.bfloat16() for p in make_parameters(0)]
    parameters = [torch.nn.Parameter(p.detach()) for p in parameters]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    if hvd.rank() == 0:
        optimizer.state[parameters[0]] = {"wide": torch.ones(6, 4), "nested": [torch.arange(3), {"n": 7}]}
    else:
        step(optimizer, parameters)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    state = optimizer.state[parameters[0]]
    assert (
        state["wide"].dtype == torch.float32
        and state["nested"][0].tolist() == [0, 1, 2]
        and state["nested"][1] == {"n": 7}
    )
    assert list(optimizer.state) == [parameters[0]]


def case_optimizer_state_refuses_lbfgs_and_other_groups():
    parameters = make_parameters(0)
    expect_raises(ValueError, lambda: hvd.broadcast_optimizer_state(torch.optim.LBFGS(parameters), 0), "LBFGS")
    optimizer = torch.optim.SGD(parameters[: 1 + min(hvd.rank(), 1)], lr=0.1)
    # With state that the others would wait for.
    step(optimizer, parameters)
    expect_raises(ValueError, lambda: hvd.broadcast_optimizer_state(optimizer, root_rank=0), "groups")


# ---- SyncBatchNorm


def compare_batch_norm(shape, rows, dtype=torch.float64, **options):
    """SyncBatchNorm over the ranks' parts against BatchNorm over the whole."""
    torch.manual_seed(4)
    dims = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d, 5: torch.nn.BatchNorm3d}[
        len(shape) + 1
    ]
    reference, synced = dims(shape[0], **options).to(dtype), hvd.SyncBatchNorm(shape[0], **options).to(dtype)
    if reference.affine:
        with torch.no_grad():
            reference.weight.uniform_(0.5, 2)
            reference.bias.uniform_(-1, 1)
        synced.load_state_dict(reference.state_dict())
    whole = torch.randn(sum(rows), *shape, dtype=dtype) * 3 + 7
    grad = torch.randn(sum(rows), *shape, dtype=dtype)
    start = sum(rows[: hvd.rank()])
    mine = slice(start, start + rows[hvd.rank()])
    for _ in range(2):
        x, part = whole.clone().requires_grad_(), whole[mine].clone().requires_grad_()
        expected, result = reference(x), synced(part)
        reference.zero_grad()
        synced.zero_grad()
        expected.backward(grad)
        result.backward(grad[mine])
        tolerance = 1e-9 if dtype is torch.float64 else 2e-2
        assert result.dtype == dtype
        assert torch.allclose(result, expected[mine], atol=tolerance, rtol=tolerance)
        assert torch.allclose(part.grad, x.grad[mine], atol=tolerance, rtol=tolerance)
        if reference.affine:
            assert torch.allclose(
                hvd.allreduce(synced.weight.grad, op=hvd.Sum), reference.weight.grad, atol=tolerance, rtol=tolerance
            )
            assert torch.allclose(
                hvd.allreduce(synced.bias.grad, op=hvd.Sum), reference.bias.grad, atol=tolerance, rtol=tolerance
            )
        if reference.track_running_stats:
            assert torch.allclose(synced.running_mean, reference.running_mean, atol=tolerance)
            assert torch.allclose(synced.running_var, reference.running_var, atol=tolerance, rtol=tolerance)
            assert synced.num_batches_tracked == reference.num_batches_tracked
    if reference.track_running_stats:
        reference.eval()
        synced.eval()
        assert torch.allclose(synced(whole[mine]), reference(whole)[mine], atol=3 * tolerance, rtol=tolerance)


def even(n):
    return [n] * hvd.size()


def case_sync_batch_norm_equals_batch_norm_of_the_whole():
    for shape in ((5,), (5, 3), (5, 4, 4), (5, 2, 3, 2)):
        compare_batch_norm(shape, even(4))


def case_sync_batch_norm_with_uneven_and_empty_batches():
    compare_batch_norm((3, 4, 4), [2 * r + 1 for r in range(hvd.size())])
    compare_batch_norm((3,), [0 if r == 1 else 4 for r in range(hvd.size())])


def case_sync_batch_norm_options():
    compare_batch_norm((3,), even(4), affine=False)
    compare_batch_norm((3,), even(4), track_running_stats=False)
    compare_batch_norm((3,), even(4), momentum=None)
    compare_batch_norm((3, 4, 4), even(4), dtype=torch.bfloat16)


def case_sync_batch_norm_far_from_zero():
    layer = hvd.SyncBatchNorm(2)
    x = torch.randn(64, 2) + 10_000.0
    assert abs(layer(x).std().item() - 1) < 0.05


def case_sync_batch_norm_errors():
    layer = hvd.SyncBatchNorm(2)
    expect_raises(ValueError, lambda: layer(torch.ones(2)), "dimensions")
    one = torch.ones(1 if hvd.rank() == 0 else 0, 2)
    expect_raises(ValueError, lambda: layer(one), "more than one")
    layer.eval()
    assert layer(torch.ones(1, 2)).shape == (1, 2)


def case_sync_batch_norm_in_a_model_trains_like_the_whole_batch():
    def make(norm):
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(6, 8), norm(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).double()

    model, reference = make(hvd.SyncBatchNorm), make(torch.nn.BatchNorm1d)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        x, y = torch.randn(4 * hvd.size(), 6).double(), torch.randn(4 * hvd.size(), 2).double()
        plain.zero_grad()
        F.mse_loss(reference(x), y).backward()
        plain.step()
        optimizer.zero_grad()
        F.mse_loss(model(x[hvd.rank() :: hvd.size()]), y[hvd.rank() :: hvd.size()]).backward()
        optimizer.step()
    assert all(torch.allclose(a, b) for a, b in zip(model.state_dict().values(), reference.state_dict().values()))


# ---- data loaders, process sets


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.tensor([float(index), float(index) ** 2])


def case_data_loader_workers():
    sampler = torch.utils.data.distributed.DistributedSampler(
        Squares(), num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False
    )
    for start, workers in (("fork", 2), ("spawn", 1)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = torch.utils.data.DataLoader(
                Squares(), 4, sampler=sampler, num_workers=workers, multiprocessing_context=start
            )
            total = torch.zeros(2)
            for batch in loader:
                part = batch.sum(0)
                hvd.allreduce_(part, op=hvd.Sum, name=f"loader.{start}")
                total += part
        assert total.tolist() == [276.0, 4324.0], total
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


class Shard(torch.utils.data.IterableDataset):
    """The ordinary idiom: every rank reads its part, wherever the reading is done."""

    def __iter__(self):
        return iter(range(hvd.rank(), 8, hvd.size()))


def case_data_loader_worker_asks_for_the_rank():
    def begin(worker):
        if not (hvd.is_initialized() and hvd.local_size() == hvd.size() and hvd.global_process_set.included()):
            raise AssertionError("the worker does not know where it stands")

    loader = torch.utils.data.DataLoader(
        Shard(), batch_size=None, num_workers=1, multiprocessing_context="fork", worker_init_fn=begin
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(loader) == list(range(hvd.rank(), 8, hvd.size()))


def case_process_sets():
    hvd.shutdown()
    single = [hvd.ProcessSet([rank]) for rank in range(2)]
    hvd.init(process_sets=single)
    mine = single[hvd.rank()] if hvd.rank() < 2 else None
    if mine is not None:
        assert hvd.allreduce(torch.full((2,), 3.0), op=hvd.Sum, process_set=mine).tolist() == [3.0, 3.0]
        assert hvd.broadcast_object(hvd.rank(), root_rank=hvd.rank(), process_set=mine) == hvd.rank()
        assert hvd.allgather_object("a", process_set=mine) == ["a"]
        other = single[1 - hvd.rank()]
        expect_raises(ValueError, lambda: hvd.allreduce(torch.ones(1), process_set=other), "member")
        x = torch.ones(2, requires_grad=True)
        hvd.allreduce(x, op=hvd.Sum, process_set=mine).sum().backward()
        assert x.grad.tolist() == [1.0, 1.0]
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


def case_optimizer_of_a_process_set():
    size = hvd.size()
    hvd.shutdown()
    members = [0, size - 1] if size > 2 else [0]
    pair = hvd.ProcessSet(members)
    hvd.init(process_sets=[pair])
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), process_set=pair)
    (weight * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    alone = size == 2 or hvd.rank() not in members
    assert weight.tolist() == [-(hvd.rank() + 1) if alone else -(1 + size) / 2] * 2
    expect_raises(
        NotImplementedError, lambda: hvd.DistributedOptimizer(optimizer, op=hvd.Adasum, process_set=pair), "Adasum"
    )
    hvd.barrier()
    hvd.shutdown()
    hvd.init()


if __name__ == "__main__":
    run_cases(globals())
