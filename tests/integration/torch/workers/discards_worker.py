"""Cases of steps that end with `zero_grad()` instead of `step()`, on all ranks or on one."""

import copy
import pickle

import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd
from horovod._native import lane
from horovod.torch.adapter import adapter


def make(names=None):
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    named = list(zip(names or ("a", "b"), weights))
    return weights, hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), named)


def backward(weights):
    (sum(weights) * (hvd.rank() + 1.0)).sum().backward()


def stepped(weights, optimizer):
    """One step; how far it went, which is equal on all ranks."""
    before = weights[0].detach().clone()
    optimizer.zero_grad()
    backward(weights)
    optimizer.step()
    gone = before - weights[0].detach()
    assert torch.equal(gone, torch.full((3,), (hvd.size() + 1) / 2)), gone
    return gone


def case_all_ranks_discard_alike():
    weights, optimizer = make()
    calls = set()
    for _ in range(4):
        stepped(weights, optimizer)
        backward(weights)
        optimizer.zero_grad()
        stepped(weights, optimizer)
        (reducer,) = optimizer._access.reducers
        names = reducer.names
        calls.add(frozenset(map(id, [*names.lane_calls.values(), *names._kept.values()])))
        assert lane.missing or not adapter.lane_terms or len(names.lane_calls) == 2
    assert len(calls) == 1, calls  # made once for each name, and used again


def case_state_loaded_by_one_rank_in_a_discarded_step():
    weights, optimizer = make("cd")
    backward(weights)
    if hvd.rank() == 0:
        optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    stepped(weights, optimizer)


def case_steps_discarded_after_a_rank_has_joined():
    weights, optimizer = make("ef")
    if hvd.rank():
        backward(weights)
        optimizer.zero_grad()
    hvd.join()
    stepped(weights, optimizer)


def case_another_optimizer_of_the_parameters():
    weights, first = make("gh")
    second = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), list(zip("gh", weights)))
    stepped(weights, second)
    backward(weights)
    second.zero_grad()
    if hvd.rank() == 0:
        del second  # the other ranks keep it
    stepped(weights, first)
    backward(weights)
    first.zero_grad()
    third = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), list(zip("gh", weights)))
    stepped(weights, third)


def case_a_copy_on_the_other_ranks():
    weights, optimizer = make("ij")
    backward(weights)
    optimizer.zero_grad()
    sent = hvd.broadcast_object(pickle.dumps((weights, optimizer)) if hvd.rank() == 0 else None, 0)
    if hvd.rank():
        weights, optimizer = pickle.loads(sent)
    stepped(weights, optimizer)
    stepped(*copy.deepcopy((weights, optimizer)))


def case_another_session():
    weights, optimizer = make("kl")
    if hvd.rank() == 0:  # as if the others were new
        optimizer._names.discard([0, 1])
    hvd.shutdown()
    hvd.init()
    stepped(weights, optimizer)


def case_one_rank_alone_discards():
    weights, optimizer = make("mn")
    stepped(weights, optimizer)
    if hvd.rank() == 0:
        backward(weights)  # it evaluates
    optimizer.zero_grad()
    backward(weights)

    def go_on():
        for _ in range(3):
            optimizer.step()
            optimizer.zero_grad()
            backward(weights)

    expect_raises(hvd.HorovodInternalError, go_on, "did not submit it")


if __name__ == "__main__":
    run_cases(globals())
