"""Cases of gradients that live in shared memory."""

import os
import sys

import torch
from cases import run_cases

import horovod.torch as hvd
from horovod._core import session

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
    os.environ["HOROVOD_RESIDENT_GRADIENTS"] = "1" if resident else "0"
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
        addresses = {home.flat.data_ptr() for home in homes(optimizer).values()}
        kept = model[4].weight.grad[0, :3]
        del model, optimizer
        assert set(freed) <= addresses and len(set(freed)) == len(addresses) - 1, "a kept view keeps its memory"
        del kept
        assert set(freed) == addresses
    finally:
        engine.shared_free = real


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
