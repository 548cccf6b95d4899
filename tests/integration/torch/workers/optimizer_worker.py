"""Cases of DistributedOptimizer: the same training as one rank with the global batch, and its options."""

import copy
import gc
import warnings

import torch
from cases import expect_raises, run_cases
from training import F, batches, close, distributed, flat, make_model, own, sgd, train

import horovod.torch as hvd


def case_equals_one_rank_with_the_global_batch():
    optim = torch.optim
    kinds = {
        "sgd": sgd,
        "sgd foreach": lambda m: sgd(m, foreach=True),
        "sgd fused": lambda m: sgd(m, fused=True),
        "sgd nesterov": lambda m: sgd(m, nesterov=True, weight_decay=0.01),
        "adam": lambda m: optim.Adam(m.parameters(), lr=1e-3),
        "adam amsgrad": lambda m: optim.Adam(m.parameters(), lr=1e-3, amsgrad=True, foreach=True),
        "adamw": lambda m: optim.AdamW(m.parameters(), lr=1e-3),
        "adamw fused": lambda m: optim.AdamW(m.parameters(), lr=1e-3, fused=True),
        "rmsprop": lambda m: optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.5),
        "adagrad": lambda m: optim.Adagrad(m.parameters(), lr=1e-2),
        "adadelta": lambda m: optim.Adadelta(m.parameters()),
        "two groups": lambda m: optim.SGD(
            [{"params": m[0].parameters(), "lr": 0.2}, {"params": m[2].parameters()}], lr=0.1
        ),
    }
    # In float64, because Adam and its like divide by roots of tiny numbers, which magnifies rounding.
    data = [(x.double(), y.double()) for x, y in batches()]
    for name, make in kinds.items():
        model, reference = make_model().double(), make_model().double()
        expected = train(reference, make(reference), data)
        optimizer = distributed(model, make(model))
        result = train(model, optimizer, own(data))
        assert torch.allclose(result, expected, atol=1e-9), (name, (result - expected).abs().max())
        del optimizer


def case_class_and_name_stay():
    model = make_model()
    optimizer = distributed(model, torch.optim.AdamW(model.parameters()))
    assert isinstance(optimizer, torch.optim.AdamW) and type(optimizer).__name__ == "AdamW"
    assert "AdamW" in repr(optimizer)


def case_ranks_stay_equal():
    model = make_model(seed=hvd.rank())
    optimizer = distributed(model, sgd(model))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    result = train(model, optimizer, own(batches()))
    assert len({r.numpy().tobytes() for r in hvd.allgather_object(result)}) == 1


def case_names_are_optional():
    model, reference = make_model(), make_model()
    data = batches()
    optimizer = hvd.DistributedOptimizer(sgd(model))
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_two_optimizers_with_equal_names():
    nets = [make_model(seed) for seed in (1, 2)]
    references = [make_model(seed) for seed in (1, 2)]
    data = batches()
    optimizers = [distributed(net, sgd(net)) for net in nets]
    plain = [sgd(net) for net in references]

    def gan_step(models, steps, x, y):
        for step in steps:
            step.zero_grad()
        # Both sets of gradients are in flight together.
        F.mse_loss(models[0](x) + models[1](x), y).backward()
        for step in steps:
            step.step()

    for (x, y), (own_x, own_y) in zip(data, own(data)):
        gan_step(references, plain, x, y)
        gan_step(nets, optimizers, own_x, own_y)
    for net, reference in zip(nets, references):
        close(flat(net), flat(reference))


def case_scope_of_names_follows_the_root():
    # Rank 1 has an optimizer more, so that its count differs.
    model = make_model()
    other = make_model()
    extra = hvd.DistributedOptimizer(sgd(other), named_parameters=other.named_parameters()) if hvd.rank() == 1 else None
    optimizer = distributed(model, sgd(model))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    reference = make_model()
    data = batches()
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))
    del extra


def case_dropped_optimizer_leaves_no_hook():
    model, reference = make_model(), make_model()
    distributed(model, sgd(model))
    gc.collect()
    optimizer = distributed(model, sgd(model))
    data = batches()
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_backward_passes_accumulate():
    data = batches(count=6)
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model), backward_passes_per_step=3)
    plain = sgd(reference)
    for start in (0, 3):
        plain.zero_grad()
        optimizer.zero_grad()
        for (x, y), (own_x, own_y) in list(zip(data, own(data)))[start : start + 3]:
            F.mse_loss(reference(x), y).backward()
            F.mse_loss(model(own_x), own_y).backward()
        plain.step()
        optimizer.step()
    close(flat(model), flat(reference))


def case_too_many_backward_passes():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    x, y = own(batches())[0]
    F.mse_loss(model(x), y).backward()
    expect_raises(AssertionError, lambda: F.mse_loss(model(x), y).backward(), "backward_passes_per_step")
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(2)
    assert optimizer.backward_passes_per_step == 2
    optimizer.zero_grad()
    for _ in range(2):
        F.mse_loss(model(x), y).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimizer.step()
    expect_raises(ValueError, lambda: optimizer.set_backward_passes_per_step(0))


def case_step_before_all_passes():
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model), backward_passes_per_step=3)
    data = batches(count=2)
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_zero_grad_while_pending():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    x, y = own(batches())[0]
    F.mse_loss(model(x), y).backward()
    expect_raises(AssertionError, optimizer.zero_grad, "zero_grad")
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(p.grad is None for p in model.parameters())


def case_zero_grad_without_none_trains_alike():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model))
    for x, y in own(data):
        optimizer.zero_grad(set_to_none=False)
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    close(flat(model), train(reference, sgd(reference), data))


def case_gradient_clipping():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer, plain = distributed(model, sgd(model)), sgd(reference)
    for (x, y), (own_x, own_y) in zip(data, own(data)):
        plain.zero_grad()
        F.mse_loss(reference(x), y).backward()
        torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.1)
        plain.step()
        optimizer.zero_grad()
        F.mse_loss(model(own_x), own_y).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    close(flat(model), flat(reference))


def case_second_synchronize_warns():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    x, y = own(batches())[0]
    F.mse_loss(model(x), y).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(w.message) for w in seen)


def case_parameter_without_gradient_gets_the_others_average():
    weights = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0))
    used = weights[0] if hvd.rank() == 0 else weights[1]
    used.sum().backward()
    optimizer.step()
    assert torch.allclose(weights[0].grad, torch.full((3,), 1.0 / hvd.size()))
    assert torch.allclose(weights[1].grad, torch.full((3,), (hvd.size() - 1.0) / hvd.size()))


def case_groups():
    data = batches()
    for make in (lambda m: 2, lambda m: [[m[0].weight, m[2].weight], [m[0].bias]], lambda m: [list(m.parameters())]):
        model, reference = make_model(), make_model()
        optimizer = distributed(model, sgd(model), groups=make(model))
        close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))
        del optimizer


def case_num_groups_is_deprecated():
    model, reference = make_model(), make_model()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer = distributed(model, sgd(model), num_groups=2)
    assert any(issubclass(w.category, DeprecationWarning) for w in seen)
    data = batches()
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_predivide_factor():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model), gradient_predivide_factor=3.0)
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data), atol=1e-5)


def case_sum_instead_of_average():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model, lr=0.1 / hvd.size()), op=hvd.Sum)
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data), atol=1e-5)


def case_compression():
    data = batches()
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        model, reference = make_model(), make_model()
        optimizer = distributed(model, sgd(model), compression=compression, groups=1)
        close(train(model, optimizer, own(data)), train(reference, sgd(reference), data), atol=1e-2)
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        del optimizer


def case_sparse_embedding():
    for as_dense in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(30, 4, sparse=True)
        reference = copy.deepcopy(table)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.5), table.named_parameters(), sparse_as_dense=as_dense
        )
        plain = torch.optim.SGD(reference.parameters(), lr=0.5)
        for step in range(3):
            words = torch.arange(hvd.size() * 4) * (step + 2) % 7
            plain.zero_grad()
            reference(words).square().mean().backward()
            plain.step()
            optimizer.zero_grad()
            table(words[hvd.rank() :: hvd.size()]).square().mean().backward()
            optimizer.step()
            assert table.weight.grad.is_sparse != as_dense
        close(table.weight, reference.weight)
        del optimizer


def case_sparse_adam_and_a_rank_without_words():
    torch.manual_seed(0)
    table = torch.nn.Embedding(20, 4, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(list(table.parameters())))
    for step in range(2):
        optimizer.zero_grad()
        if step == 0 or hvd.rank() == 0:
            table(torch.tensor([hvd.rank(), 5])).sum().backward()
        optimizer.step()
    assert len({t.numpy().tobytes() for t in hvd.allgather_object(table.weight.detach())}) == 1


def case_adasum_trains_and_keeps_ranks_equal():
    if hvd.size() & (hvd.size() - 1):
        return
    model = make_model()
    optimizer = distributed(model, sgd(model, lr=0.01), op=hvd.Adasum)
    data = batches(count=2)
    first = F.mse_loss(model(data[0][0]), data[0][1]).item()
    train(model, optimizer, own(data * 10))
    assert F.mse_loss(model(data[0][0]), data[0][1]).item() < 0.8 * first
    assert len({r.numpy().tobytes() for r in hvd.allgather_object(flat(model))}) == 1
    with_skip = optimizer.skip_synchronize()
    expect_raises(AssertionError, with_skip.__enter__, "Adasum")


def case_adasum_of_equal_ranks_is_the_plain_step():
    if hvd.size() & (hvd.size() - 1):
        return
    model, reference = make_model(), make_model()
    data = batches(per_rank=4)
    optimizer = distributed(model, sgd(model), op=hvd.Adasum)
    close(train(model, optimizer, data), train(reference, sgd(reference), data), atol=1e-5)


if __name__ == "__main__":
    run_cases(globals())
