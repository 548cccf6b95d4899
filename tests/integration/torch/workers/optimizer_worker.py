"""Cases of DistributedOptimizer: the same training as one rank with the global batch, and its options."""

import copy
import pickle
import warnings

import torch
from cases import expect_raises, run_cases
from training import F, batches, close, distributed, flat, make_model, own, sgd, train

import horovod.torch as hvd
from horovod.torch import optimizer as horovod_optimizer


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


def case_parameters_may_be_given_one_gradient():
    mean = (hvd.size() + 1) / 2
    for options in ({}, {"op": hvd.Sum}, {"groups": 1}):
        one, other = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one, other], lr=1.0), **options)
        for step in range(1, 4):
            loss = ((one + other) * (1.0 + hvd.rank())).sum()
            one.grad, other.grad = torch.autograd.grad(loss, [one, other])
            assert one.grad.data_ptr() == other.grad.data_ptr()
            optimizer.step()
            expected = torch.full((3,), -mean * step * (hvd.size() if "op" in options else 1))
            assert torch.equal(one.detach(), expected) and torch.equal(other.detach(), expected), (options, one, other)
            optimizer.zero_grad()


def case_a_parameter_may_be_given_the_gradient_of_another():
    one, other = torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([one, other], lr=1.0), op=hvd.Sum)
    (one * (1.0 + hvd.rank())).sum().backward()
    total = one.grad.clone()
    other.grad = one.grad
    optimizer.step()
    assert torch.equal(one.detach(), -total) and torch.equal(other.detach(), -total), (one, other, total)


def case_class_and_name_stay():
    model = make_model()
    optimizer = distributed(model, torch.optim.AdamW(model.parameters()))
    assert isinstance(optimizer, torch.optim.AdamW) and type(optimizer).__name__ == "AdamW"
    assert "AdamW" in repr(optimizer)


def case_class_says_that_it_is_horovods():
    model = make_model()
    for op in (hvd.Average, hvd.Adasum) if hvd.size() == 2 else (hvd.Average,):
        optimizer = distributed(model, sgd(model), op=op)
        assert "horovod" in str(optimizer.__class__) and type(optimizer).__module__ == "horovod.torch.optimizer"
        assert isinstance(optimizer, horovod_optimizer._DistributedOptimizer)
        assert isinstance(optimizer, horovod_optimizer._DistributedAdasumOptimizer) == (op == hvd.Adasum)
        # What public trainers do: wrap only what is not wrapped yet.
        again = optimizer if "horovod" in str(optimizer.__class__) else distributed(model, optimizer)
        assert again is optimizer
        twin = pickle.loads(pickle.dumps(optimizer))
        assert isinstance(twin, torch.optim.SGD) and twin.param_groups[0]["lr"] == 0.1
        assert "horovod" in str(copy.deepcopy(optimizer).__class__)


def case_attributes_that_programs_read_and_set():
    model = make_model()
    optimizer = distributed(model, sgd(model), compression=hvd.Compression.fp16)
    assert optimizer._parameter_names == {p: name for name, p in model.named_parameters()}
    assert optimizer._compression is hvd.Compression.fp16
    optimizer.backward_passes_per_step = 3
    assert optimizer.backward_passes_per_step == 3
    x, y = own(batches())[0]
    for _ in range(3):
        F.mse_loss(model(x), y).backward()
    optimizer.step()
    assert len({r.numpy().tobytes() for r in hvd.allgather_object(flat(model))}) == 1


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


def case_more_backward_passes_than_announced():
    model = make_model()
    optimizer = distributed(model, sgd(model), op=hvd.Sum)  # an average may be averaged once more, a sum may not
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


def case_errors_name_a_parameter_as_the_user_does():
    earlier = make_model()
    kept = distributed(earlier, sgd(earlier))  # an optimizer of equal names: the next one's are negotiated as others
    model = make_model()
    optimizer = distributed(model, sgd(model), op=hvd.Sum)
    x, y = own(batches())[0]
    F.mse_loss(model(x), y).backward()
    try:
        F.mse_loss(model(x), y).backward()
    except AssertionError as error:
        named = str(error).split("'")[1]
    assert named in dict(model.named_parameters()), named
    optimizer.synchronize()
    del kept


def case_step_before_all_passes():
    model, reference = make_model(), make_model()
    optimizer = distributed(model, sgd(model), backward_passes_per_step=3)
    data = batches(count=2)
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_zero_grad_while_pending():
    model, reference = make_model(), make_model()
    data = batches(count=2)
    expected = train(reference, sgd(reference), data[1:])
    optimizer = distributed(model, sgd(model))
    x, y = own(data)[0]
    for _ in range(2):
        F.mse_loss(model(x), y).backward()
        optimizer.zero_grad()
    close(train(model, optimizer, own(data[1:])), expected)
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
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0)  # a further frame of torch around each step
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer.step()
    # Programs filter it by these words. It points at the script's line.
    expected = "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize()."
    told = [w for w in seen if str(w.message).startswith(expected)]
    assert len(told) == 1 and told[0].filename == __file__, [str(w) for w in seen]


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


def case_adasum_steps_after_discarded_ones():
    if hvd.size() & (hvd.size() - 1):
        return
    model, reference = make_model(), make_model()
    data = batches(per_rank=4)
    optimizer = distributed(model, sgd(model), op=hvd.Adasum)
    for inputs, targets in data[:2]:
        F.mse_loss(model(inputs), targets).backward()
        optimizer.zero_grad()  # as a GradScaler's loop does after a step that it has skipped
    close(train(model, optimizer, data), train(reference, sgd(reference), data), atol=1e-5)


def case_adasum_of_equal_ranks_is_the_plain_step():
    if hvd.size() & (hvd.size() - 1):
        return
    model, reference = make_model(), make_model()
    data = batches(per_rank=4)
    optimizer = distributed(model, sgd(model), op=hvd.Adasum)
    close(train(model, optimizer, data), train(reference, sgd(reference), data), atol=1e-5)


if __name__ == "__main__":
    run_cases(globals())
