"""Groups of gloo's beside the backend "horovod", and what is trained over both."""

import functools

import torch
import torch.distributed as dist

import horovod.torch.distributed


@functools.cache
def _gloo_beside(world):
    return dist.new_group(backend="gloo")


def gloo():
    """A group of gloo's; one for each default group, because freeing one may block in torch 2.4."""
    return _gloo_beside(dist.group.WORLD)


def both_ways(call, *tensors, gloo_as=None):
    """What a call leaves in copies of the tensors, done by this backend and by gloo.

    Args:
        gloo_as: a dtype as which gloo gets them, if it only moves them.
    """
    results = []
    other = gloo()
    for group in (None, other):
        given = [tensor.clone(memory_format=torch.preserve_format) for tensor in tensors]
        passed = given if group is None or gloo_as is None else [tensor.view(gloo_as) for tensor in given]
        for async_op in (False, True):
            work = call(*passed, group=group, async_op=async_op)
            if async_op:
                work.wait()
                assert group is not None or (work.is_completed() and work.exception() is None)
        results.append(given)
    return results


def expect_equal(call, *tensors, gloo_as=None):
    """On more than two ranks gloo adds in another order."""
    ours, theirs = both_ways(call, *tensors, gloo_as=gloo_as)
    same = torch.equal if dist.get_world_size() == 2 else torch.testing.assert_close
    for one, other in zip(ours, theirs):
        assert same(one, other) is not False, (call, one, other)


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
    other = gloo()
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
