"""Groups of gloo's beside the backend "horovod", and what is trained over both."""

import contextlib

import torch
import torch.distributed as dist

import horovod.torch.distributed


@contextlib.contextmanager
def gloo():
    group = dist.new_group(backend="gloo")
    try:
        yield group
    finally:
        dist.destroy_process_group(group)


def trained(make, wrap, loss=lambda model, x: model(x).square().mean()):
    """The parameters of a model after some steps."""
    torch.manual_seed(0)
    model = wrap(make())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for step in range(4):
        torch.manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        loss(model, torch.randn(8, 16)).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def small():
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))


def expect_as_gloo(wrap, make=small, whole=lambda parameter: parameter):
    """A model is trained to the same bits over both; on more than two ranks, where they add in another order, nearly.

    Args:
        wrap: a model and a group, None for the default one -> the model that is trained.
        make: the model.
        whole: a parameter of the trained model -> what is compared.
    """
    with gloo() as other:
        one, two = (
            [whole(parameter) for parameter in trained(make, lambda model, group=group: wrap(model, group))]
            for group in (None, other)
        )
    same = torch.equal if dist.get_world_size() == 2 else torch.testing.assert_close
    assert one and all(same(each, other) is not False for each, other in zip(one, two))


def join_group():
    if not dist.is_initialized():
        torch.set_num_threads(1)
        horovod.torch.distributed.init_process_group()
