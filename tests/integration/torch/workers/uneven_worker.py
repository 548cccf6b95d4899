"""Cases of steps in which ranks make different passes, or none."""

import warnings

import torch
from cases import run_cases
from torch.nn.utils import clip_grad_norm_

import horovod.torch as hvd


def make(passes=1):
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), backward_passes_per_step=passes)
    return weights, optimizer


def is_last():
    return hvd.rank() == hvd.size() - 1


def remarks_of(run):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in seen if "synchronize() before" in str(one.message)]


def case_announced_passes_that_complete_nothing():
    """The last rank's passes use one parameter each, the others' the first one twice."""
    weights, optimizer = make(passes=2)
    for _ in range(3):
        before = [weight.detach().clone() for weight in weights]
        optimizer.zero_grad()
        for number in (0, 1) if is_last() else (0, 0):
            (weights[number] * 3.0).sum().backward()
        clip_grad_norm_(weights, 1.0)
        optimizer.step()
        gone = torch.cat([b - w.detach() for b, w in zip(before, weights)])
        expected = torch.tensor([3.0 * (2 * hvd.size() - 1)] * 3 + [3.0] * 3)
        assert torch.allclose(gone, expected / expected.norm()), gone


def case_clipping_after_fewer_passes_than_announced():
    def step(passes, clips):
        optimizer.zero_grad()
        for _ in range(passes):
            sum(weights).sum().backward()
        if clips:
            clip_grad_norm_(weights, 0.1)
        optimizer.step()

    weights, optimizer = make(passes=2)
    assert not remarks_of(lambda: step(2, True)) and not remarks_of(lambda: step(1, False))
    found = remarks_of(lambda: step(1, True))
    assert len(found) == 1 and "after 1 of backward_passes_per_step=2 passes" in found[0], found
    assert not remarks_of(lambda: step(1, True))  # once


def case_a_rank_without_a_batch():
    def step(computes):
        optimizer.zero_grad()
        if computes:
            sum(weights).sum().backward()
        optimizer.step()

    weights, optimizer = make()
    assert not remarks_of(lambda: step(not is_last()))  # it may never compute any
    assert not remarks_of(lambda: step(True))
    found = remarks_of(lambda: step(not is_last()))
    assert len(found) == is_last() and all("no gradient in this step" in each for each in found), found
    assert not remarks_of(lambda: step(not is_last()))  # once


def case_no_remark_on_gradients_set_by_hand():
    weights, optimizer = make()
    sum(weights).sum().backward()
    optimizer.step()

    def by_hand():
        for weight in weights:
            weight.grad = torch.ones(3)
        optimizer.step()

    assert not remarks_of(by_hand)


if __name__ == "__main__":
    run_cases(globals())
