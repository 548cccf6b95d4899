"""Cases of DistributedOptimizer in company: closures, schedulers, mixed precision, checkpoints, hooks, mistakes."""

import copy
import gc
import io
import time
import warnings
from itertools import product

import torch
from cases import expect_raises, run_cases
from training import F, batches, close, distributed, flat, make_model, own, sgd, train

import horovod.torch as hvd


def case_closure():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer, plain = distributed(model, sgd(model)), sgd(reference)

    def closure_of(net, step, x, y):
        def closure():
            step.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            return loss

        return closure

    for (x, y), (own_x, own_y) in zip(data, own(data)):
        plain.step(closure_of(reference, plain, x, y))
        assert optimizer.step(closure_of(model, optimizer, own_x, own_y)).ndim == 0
    close(flat(model), flat(reference))


def case_lbfgs_with_closure_equals_one_rank():
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 1).double()
    reference = copy.deepcopy(model)
    x = torch.randn(8 * hvd.size(), 6, dtype=torch.float64)
    y = x.sum(1, keepdim=True).sin()

    def fit(net, optimizer, inputs, targets):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(net(inputs), targets)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return flat(net)

    plain = torch.optim.LBFGS(reference.parameters(), line_search_fn="strong_wolfe")
    optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe"))
    rank, size = hvd.rank(), hvd.size()
    close(fit(model, optimizer, x[rank::size], y[rank::size]), fit(reference, plain, x, y), atol=1e-6)


def case_lr_scheduler_made_before_and_after():
    data = batches()

    def run(model, plain, wrap, before, used):
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5) if before else None
        optimizer = distributed(model, plain) if wrap else plain
        scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for x, y in used:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            scheduler.step()
        assert abs(optimizer.param_groups[0]["lr"] - 0.1 * 0.5**4) < 1e-9
        return flat(model)

    reference = make_model()
    expected = run(reference, sgd(reference), False, False, data)
    for before in (True, False):
        model = make_model()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            close(run(model, sgd(model), True, before, own(data)), expected)
        gc.collect()


def case_amp_with_grad_scaler():
    for fused in (False, True):
        data = batches()
        model, reference = make_model(), make_model()

        def run(net, optimizer, used, wrapped):  # one mixed-precision training
            scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
            for x, y in used:
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.mse_loss(net(x).float(), y)
                scaler.scale(loss).backward()
                if wrapped:
                    optimizer.synchronize()
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                if wrapped:
                    with optimizer.skip_synchronize():
                        scaler.step(optimizer)
                else:
                    scaler.step(optimizer)
                scaler.update()
            return flat(net)

        optimizer = distributed(model, sgd(model, lr=0.02, fused=fused))
        expected = run(reference, sgd(reference, lr=0.02, fused=fused), data, False)
        close(run(model, optimizer, own(data), True), expected, atol=1e-3)
        del optimizer


def case_grad_scaler_skips_infinite_steps_on_all_ranks():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    before = flat(model)
    x, y = own(batches())[0]
    for scale in (2.0, 1.0, 0.5):
        optimizer.zero_grad()
        if hvd.rank() == 0:
            time.sleep(0.01)
        loss = F.mse_loss(model(x), y) * (float("inf") if hvd.rank() == 1 else 1.0)
        scaler.scale(loss).backward()
        if scale == 2.0:
            optimizer.synchronize()
        if scale >= 1.0:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(flat(model), before) and scaler.get_scale() == scale


def case_checkpoints_fit_a_plain_optimizer_and_back():
    data = batches(count=6)
    model, reference = make_model(), make_model()
    expected = train(reference, sgd(reference), data)
    optimizer = distributed(model, sgd(model))
    train(model, optimizer, own(data[:2]))
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=True)
    plain_model = make_model(seed=8)
    plain = sgd(plain_model, lr=0.7)
    plain_model.load_state_dict(loaded["model"])
    plain.load_state_dict(loaded["optimizer"])
    assert plain.param_groups[0]["lr"] == 0.1
    train(plain_model, plain, data[2:4])
    model_2 = make_model(seed=7)
    optimizer_2 = distributed(model_2, sgd(model_2, lr=0.7))
    model_2.load_state_dict(plain_model.state_dict())
    optimizer_2.load_state_dict(plain.state_dict())
    close(train(model_2, optimizer_2, own(data[4:])), expected)


def case_state_loaded_into_the_wrapped_optimizer():
    model = make_model()
    plain = sgd(model)
    optimizer = distributed(model, plain)
    train(model, optimizer, own(batches()))
    saved = copy.deepcopy(plain.state_dict())
    saved["param_groups"][0]["lr"] = 0.25
    for loading in (plain, optimizer):
        loading.load_state_dict(copy.deepcopy(saved))
        assert optimizer.param_groups is plain.param_groups and optimizer.param_groups[0]["lr"] == 0.25
        assert optimizer.state is plain.state
        train(model, optimizer, own(batches()))
        assert len({r.numpy().tobytes() for r in hvd.allgather_object(flat(model))}) == 1


def case_step_hooks_run_once_with_reduced_gradients():
    model = make_model()
    seen = []
    plain = sgd(model)
    plain.register_step_pre_hook(lambda o, a, k: seen.append(model[0].weight.grad.clone()))
    optimizer = distributed(model, plain)
    x, y = own(batches())[0]
    F.mse_loss(model(x), y).backward()
    optimizer.step()
    assert len(seen) == 1
    assert all(torch.equal(seen[0], other) for other in hvd.allgather_object(seen[0]))


def case_parameters_unfrozen_later():
    model, reference = make_model(), make_model()
    for net in (model, reference):
        net[0].requires_grad_(False)
    optimizer, plain = distributed(model, sgd(model)), sgd(reference)
    data = batches()
    train(model, optimizer, own(data[:2]))
    train(reference, plain, data[:2])
    for net in (model, reference):
        net[0].requires_grad_(True)
    close(train(model, optimizer, own(data[2:])), train(reference, plain, data[2:]))


def case_parameter_group_added_later():
    model, reference = make_model(), make_model()
    data = batches()

    def run(net, wrap, used):
        optimizer = torch.optim.SGD(net[2].parameters(), lr=0.1)
        if wrap:
            optimizer = hvd.DistributedOptimizer(optimizer, net[2].named_parameters())
        train(net, optimizer, used[:2])
        net.zero_grad()
        optimizer.add_param_group({"params": list(net[0].parameters()), "lr": 0.05})
        return train(net, optimizer, used[2:])

    close(run(model, True, own(data)), run(reference, False, data))


def case_parameters_added_behind_its_back():
    a, b, c = (torch.nn.Parameter(torch.zeros(3)) for _ in range(3))
    plain = torch.optim.SGD([a], lr=1.0)
    optimizer = hvd.DistributedOptimizer(plain)
    plain.add_param_group({"params": [b]})
    optimizer.param_groups[0]["params"].append(c)
    for _ in range(2):
        optimizer.zero_grad()
        ((a + b + c) * (hvd.rank() + 1.0)).sum().backward()
        optimizer.step()
    assert all(weight.tolist() == [-1.0 - hvd.size()] * 3 for weight in (a, b, c))


def case_state_loaded_while_gradients_are_under_way():
    weights = [torch.nn.Parameter(torch.zeros(300, 300)), torch.nn.Parameter(torch.zeros(3))]

    def backward():
        (weights[0].sum() * (hvd.rank() + 1.0)).backward()  # the other one has no gradient yet

    for compression, op in product((hvd.Compression.none, hvd.Compression.fp16), (hvd.Sum, hvd.Average)):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.0), op=op, compression=compression)
        optimizer.zero_grad()
        backward()
        for _ in range(2):
            optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        expected = (hvd.size() + 1) / 2 * (hvd.size() if op == hvd.Sum else 1)
        assert torch.equal(weights[0].grad, torch.full((300, 300), expected)) and not weights[1].grad.any()
        # A step that is begun anew reduces everything, whichever parameters take part in it on this rank.
        optimizer.zero_grad()
        backward()
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.zero_grad()
        if hvd.rank() == 0:
            backward()
        optimizer.step()
        views = hvd.allgather_object(weights[0].grad)
        assert all(torch.equal(views[0], view) and view.any() for view in views)
        del optimizer


def case_step_that_skips_what_was_never_synchronized():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    weight.sum().backward()
    with optimizer.skip_synchronize():
        expect_raises(AssertionError, optimizer.step, "optimizer.synchronize()")
    optimizer.step()
    assert weight.tolist() == [-1.0] * 3


def case_bfloat16_model():
    model = make_model().bfloat16()
    optimizer = distributed(model, sgd(model))
    data = [(x.bfloat16(), y.bfloat16()) for x, y in own(batches())]
    train(model, optimizer, data, F.l1_loss)
    assert len({r.float().numpy().tobytes() for r in hvd.allgather_object(flat(model))}) == 1


def case_channels_last_weights():
    def make():
        torch.manual_seed(2)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 64, 5), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3)).to(
            memory_format=torch.channels_last
        )

    model, reference = make(), make()
    x = torch.randn(2 * hvd.size(), 3, 8, 8).contiguous(memory_format=torch.channels_last)
    optimizer, plain = distributed(model, sgd(model)), sgd(reference)
    for _ in range(2):
        plain.zero_grad()
        reference(x).square().mean().backward()
        plain.step()
        optimizer.zero_grad()
        model(x[hvd.rank() :: hvd.size()]).square().mean().backward()
        optimizer.step()
    close(flat(model), flat(reference))
    assert model[2].weight.grad.is_contiguous(memory_format=torch.channels_last)


def case_square_weight_that_one_rank_holds_column_by_column():
    values = torch.arange(9.0).view(3, 3)
    weight = torch.nn.Parameter(values.t().contiguous().t() if hvd.rank() == 0 else values.clone())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    (weight * values).sum().backward()
    optimizer.step()
    close(weight, torch.zeros(3, 3))


def case_replaced_gradient_is_reduced():
    weight = torch.nn.Parameter(torch.ones(300, 300))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), backward_passes_per_step=2)
    (weight * (hvd.rank() + 1.0)).sum().backward()
    weight.grad = torch.full((300, 300), 10.0 * (hvd.rank() + 1))
    optimizer.step()
    mean = sum(10.0 * (r + 1) for r in range(hvd.size())) / hvd.size()
    assert torch.allclose(weight, torch.full((300, 300), 1.0 - mean))


def case_autograd_is_told_that_gradients_have_changed():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    for x, y in own(batches()):  # the first step and later ones take different ways
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.synchronize()
        assert all(p.grad._version > 0 for p in model.parameters())
        with optimizer.skip_synchronize():
            optimizer.step()


def case_gradients_that_are_not_like_the_ones_before():
    weight = torch.nn.Parameter(torch.zeros(4, 6))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)], op=hvd.Sum)
    values = torch.arange(24.0).reshape(4, 6) * (hvd.rank() + 1)
    factor = hvd.size() * (hvd.size() + 1) / 2
    forms = {
        "plain": lambda: values.clone(),
        "plain again": lambda: values.clone(),
        "other strides": lambda: values.t().contiguous().t(),
        "with gaps": lambda: torch.stack([values, values], 2)[:, :, 0],
        "plain once more": lambda: values.clone(),
    }
    for name, make in forms.items():
        for _ in range(2):
            weight.grad = make()
            (hook,) = weight._post_accumulate_grad_hooks.values()
            hook(weight)
            optimizer.synchronize()
            assert torch.equal(weight.grad, torch.arange(24.0).reshape(4, 6) * factor), name


def case_gradient_replaced_after_the_pass():
    mean = (hvd.size() + 1) / 2
    ramp = torch.arange(90000.0).view(300, 300)

    def new_data(weight):
        weight.grad.data = weight.grad * 1.0

    def assigned(value):
        return lambda weight: setattr(weight, "grad", value(weight.grad))

    ways = new_data, *map(assigned, (torch.clone, lambda _: None, lambda grad: grad.t().clone().t(), torch.zeros_like))
    for way, compression in product(ways, (hvd.Compression.none, hvd.Compression.bf16)):
        for transposed in (False, True):
            weight = torch.nn.Parameter(torch.zeros(300, 300).t() if transposed else torch.zeros(300, 300))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), compression=compression)
            if hvd.rank() == 1:
                time.sleep(0.01)  # on the other ranks it is under way when the pass ends
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                (weight * ramp * (hvd.rank() + 1.0)).sum().backward()
                way(weight)
                given = weight.grad
                optimizer.step()
            if given is None:
                assert weight.grad is None and not weight.any()
                continue
            expected = torch.zeros_like(ramp) if way is ways[-1] else ramp * mean
            assert torch.allclose(weight.grad, expected, rtol=2e-2)
            assert torch.equal(weight, -weight.grad)


def case_gradient_with_gaps_stays_the_users():
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    buffer = torch.zeros(4, 6)
    weight.grad = view = buffer[:, ::2]
    (weight * (hvd.rank() + 1.0)).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert weight.grad is view and torch.equal(buffer[:, ::2], torch.full((4, 3), (hvd.size() + 1) / 2))


class Wrapper(torch.optim.Optimizer):
    """As wrappers in programs are: without Optimizer.__init__."""

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)

    def __init__(self, inner):
        self.inner = inner

    def step(self, closure=None):
        return self.inner.step(closure)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict)


def case_a_class_that_does_not_call_the_constructor_of_optimizers():
    data = batches()
    model, reference = make_model(), make_model()
    optimizer = distributed(model, Wrapper(sgd(model)))
    plain = Wrapper(sgd(reference))
    train(model, optimizer, own(data[:2]))
    train(reference, plain, data[:2])
    optimizer.load_state_dict(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, 0)
    close(train(model, optimizer, own(data[2:])), train(reference, plain, data[2:]))


def case_bad_arguments():
    model = make_model()
    named = list(model.named_parameters())
    make = hvd.DistributedOptimizer
    plain = sgd(model)
    expect_raises(ValueError, lambda: make(plain, named_parameters=[p for _, p in named]), "tuples")
    expect_raises(ValueError, lambda: make(plain, named_parameters=[("a", p) for _, p in named]), "a")
    expect_raises(ValueError, lambda: make(plain, named_parameters=named[:1]), "named_parameters lacks 3 of")
    copies = model.state_dict().items()
    expect_raises(ValueError, lambda: make(plain, named_parameters=copies), "None of the 4 tensors", "same model")
    expect_raises(ValueError, lambda: make(plain, gradient_predivide_factor=2.0, op=hvd.Sum), "predivide")
    expect_raises(ValueError, lambda: make(plain, backward_passes_per_step=0), "backward_passes_per_step")
    expect_raises(ValueError, lambda: make(plain, groups="two"), "groups")
    expect_raises(ValueError, lambda: make(plain, groups=[named]), "groups")
    expect_raises(ValueError, lambda: make(plain, groups=-1), "groups")
    expect_raises(ValueError, lambda: make(plain, groups=[[named[0][1]], [named[0][1]]]), "groups")
    expect_raises(ValueError, lambda: make(make(plain)), "already")
    assert make(plain, groups=0).find_duplicates(["a", "b", "a"]) == {"a"}


def case_mismatch_of_shapes_is_raised_by_step():
    weight = torch.nn.Parameter(torch.ones(2 + hvd.rank()))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("differs", weight)])
    weight.sum().backward()
    expect_raises(hvd.HorovodInternalError, optimizer.step, "differs")
    # The engine and the optimizer stay usable.
    other = torch.nn.Parameter(torch.ones(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([other], lr=1.0), [("agrees", other)])
    other.sum().backward()
    optimizer.step()
    assert other.tolist() == [0.0, 0.0]


if __name__ == "__main__":
    run_cases(globals())
