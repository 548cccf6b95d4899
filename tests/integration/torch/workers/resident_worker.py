"""Cases of gradients that live in shared memory."""

import os
import sys
from multiprocessing.reduction import ForkingPickler

import torch
from cases import run_cases

import horovod.torch as hvd
from horovod._core.life import session

F = torch.nn.functional


def make(seed=3):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 64, 3),
        torch.nn.Flatten(),
        torch.nn.Linear(1024, 100),
    ).to(memory_format=torch.channels_last)


def trained(resident, **options):
    current = session.require()  # which holds the settings that init has read
    object.__setattr__(current, "settings", current.settings.replace("test", resident_gradients=resident))
    model = make()
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), **options)
    generator = torch.Generator().manual_seed(hvd.rank())
    passes = options.get("backward_passes_per_step", 1)
    for _ in range(4):
        optimizer.zero_grad()
        for _ in range(passes):
            x = torch.randn(4, 3, 8, 8, generator=generator)
            model(x).square().mean().backward()
        optimizer.step()
    return model, optimizer


def homes(optimizer):
    return {number: home for number, home in optimizer._access._homes.items() if home.view is not None}


def case_bits_equal_those_without():
    for options in ({}, {"backward_passes_per_step": 2}, {"groups": 1}, {"gradient_predivide_factor": 2.0}):
        model, optimizer = trained(True, **options)
        assert len(homes(optimizer)) == 2, "the two large weights live in shared memory"
        other, private = trained(False, **options)
        assert not homes(private)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters())), options
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters())), options
        del optimizer, private


def case_gradient_is_the_view_with_the_parameters_strides():
    model, optimizer = trained(True)
    for number, home in homes(optimizer).items():
        parameter = list(model.parameters())[number]
        assert parameter.grad is home.view and parameter.grad.stride() == parameter.stride()


def case_gradient_that_the_user_keeps_is_not_overwritten():
    model, optimizer = trained(True)
    kept = model[2].weight.grad
    row = model[4].weight.grad[0]
    copies = kept.clone(), row.clone()
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 8, 8)).square().sum().backward()
        optimizer.step()
    assert torch.equal(kept, copies[0]) and torch.equal(row, copies[1])
    assert model[2].weight.grad is not kept and len(homes(optimizer)) == 2


def case_address_stays_when_nobody_keeps_it():
    model, optimizer = trained(True)
    before = model[2].weight.grad.data_ptr()
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 8, 8)).square().mean().backward()
        optimizer.step()
    assert model[2].weight.grad.data_ptr() == before


def large():
    weight = torch.nn.Parameter(torch.zeros(64, 9, 8, 8))
    return weight, hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.0))


def reduced(weight, optimizer, factor, set_to_none=True):
    """Whether the gradients of a step, `factor` times the number of the rank, come out averaged."""
    optimizer.zero_grad(set_to_none=set_to_none)
    (weight * (factor * (hvd.rank() + 1))).sum().backward()
    optimizer.step()
    return bool((weight.grad == factor * (hvd.size() + 1) / 2).all())


def case_gradient_in_other_memory_is_reduced():
    def new_data(weight):
        weight.grad.data = weight.grad.data * 1.0

    def cast(weight):
        torch.nn.ParameterList([weight]).half().float()

    def reorder(weight):
        torch.nn.ParameterList([weight]).to(memory_format=torch.channels_last)

    def share(weight):
        weight.grad.share_memory_()

    for change in (new_data, cast, reorder, share):
        for set_to_none in (True, False):
            weight, optimizer = large()
            assert reduced(weight, optimizer, 1.0)
            change(weight)
            assert all(reduced(weight, optimizer, k, set_to_none) for k in (2.0, 3.0)), (change, set_to_none)
            # A gradient that is made anew lives in shared memory again.
            assert set_to_none == (weight.grad.data_ptr() == optimizer._access._homes[0].address), change


def case_gradient_for_another_process_is_not_overwritten():
    weight, optimizer = large()
    assert reduced(weight, optimizer, 1.0)
    sent = ForkingPickler.dumps(weight.grad)
    assert reduced(weight, optimizer, 2.0)
    assert torch.equal(ForkingPickler.loads(sent), torch.full_like(weight, (hvd.size() + 1) / 2))


def case_gradient_of_the_user_stays_where_it_is():
    weight, optimizer = large()
    weight.grad = held = torch.zeros_like(weight)
    assert all(reduced(weight, optimizer, k, set_to_none=False) and weight.grad is held for k in (1.0, 2.0))
    buffer = torch.zeros(weight.numel())
    weight.grad = buffer.view(weight.shape)
    assert reduced(weight, optimizer, 1.0, set_to_none=False)
    assert torch.equal(buffer, weight.grad.flatten()) and buffer.any()


def case_create_graph_stays_outside():
    weight = torch.nn.Parameter(torch.ones(200, 200))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1))
    (weight**3).sum().backward(create_graph=True)
    optimizer.synchronize()
    assert not homes(optimizer) and torch.allclose(weight.grad.detach(), torch.full((200, 200), 3.0))
    weight.grad = None


def case_memory_is_given_back():
    engine = session.current.engine
    freed = []
    real = engine.shared_free
    engine.shared_free = lambda address: (freed.append(address), real(address))
    try:
        model, optimizer = trained(True)
        addresses = {home.address for home in homes(optimizer).values()}
        kept = model[4].weight.grad[0, :3]
        del model, optimizer
        assert set(freed) <= addresses and len(set(freed)) == len(addresses) - 1, "a kept view keeps its memory"
        del kept
        assert set(freed) == addresses
    finally:
        engine.shared_free = real


def case_forked_child_writes_to_a_copy():
    model, optimizer = trained(True)
    grad = model[2].weight.grad
    copy = grad.clone()
    child = os.fork()
    if child == 0:
        same = torch.equal(grad, copy)
        grad.zero_()
        os._exit(0 if same and not grad.any() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(grad, copy)


def case_gradient_outlives_shutdown():
    model, optimizer = trained(True)
    kept = model[2].weight.grad
    copy = kept.clone()
    hvd.shutdown()
    assert torch.equal(kept, copy)
    kept.add_(1)
    hvd.init()
    # Training goes on in memory of the new session.
    optimizer.zero_grad()
    model(torch.randn(4, 3, 8, 8)).square().mean().backward()
    optimizer.step()
    assert torch.equal(kept, copy + 1) and len(homes(optimizer)) == 2
    del model, optimizer, kept
    assert "horovod.torch" in sys.modules


if __name__ == "__main__":
    run_cases(globals())
