"""Models, data and loops that the optimizer's cases share."""

import torch

import horovod.torch as hvd

F = torch.nn.functional


def make_model(seed=3, hidden=200):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(100, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, 4))


def batches(count=4, per_rank=4, seed=9, features=100):
    generator = torch.Generator().manual_seed(seed)
    n = per_rank * hvd.size()
    return [
        (torch.randn(n, features, generator=generator), torch.randn(n, 4, generator=generator)) for _ in range(count)
    ]


def own(data):
    return [(x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]) for x, y in data]


def train(model, optimizer, data, loss=F.mse_loss):
    for x, y in data:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    return flat(model)


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def distributed(model, plain, **options):
    return hvd.DistributedOptimizer(plain, named_parameters=model.named_parameters(), **options)


def sgd(model, lr=0.1, **more):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, **more)


def close(a, b, atol=2e-6):
    assert torch.allclose(a, b, atol=atol), (a - b).abs().max()
