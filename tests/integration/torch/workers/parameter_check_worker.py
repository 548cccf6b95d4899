"""Cases of --check-parameters 2: a forgotten broadcast, and steps of the plain optimizer, are told on every rank."""

import torch
from cases import expect_raises, run_cases
from training import F, batches, distributed, make_model, own, sgd, train

import horovod.torch as hvd
from horovod._core.errors import MismatchError


def case_what_is_done_right_is_left_alone():
    for options in ({}, {"op": hvd.Adasum}):
        model = make_model(seed=hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        train(model, distributed(model, sgd(model), **options), own(batches()))


def case_a_forgotten_broadcast_is_told_after_the_first_step():
    model = make_model(seed=hvd.rank())
    optimizer = distributed(model, sgd(model))
    expect_raises(
        MismatchError,
        lambda: train(model, optimizer, own(batches())),
        "After step 1 of an optimizer all 4 parameters differ",
        "'0.weight' of rank 1 differs",
    )


def case_a_plain_optimizer_that_steps_is_told():
    model = make_model()
    plain = sgd(model)
    distributed(model, plain)
    x, y = own(batches())[0]
    # Gradients that a distributed optimizer reduces in place would be equal everywhere.
    gradients = torch.autograd.grad(F.mse_loss(model(x), y), list(model.parameters()))
    for parameter, gradient in zip(model.parameters(), gradients):
        parameter.grad = gradient
    expect_raises(MismatchError, plain.step, "parameter 0 of SGD", "the optimizer that hvd.DistributedOptimizer")


def case_plain_optimizers_meet_whenever_others_have_gone():
    def stepped():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        for _ in range(2):
            optimizer.step()
        return optimizer

    first = stepped()
    if hvd.rank() == 0:
        del first
    stepped()


def case_later_steps_are_not_compared():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    data = own(batches())
    train(model, optimizer, data[:2])
    with torch.no_grad():
        next(model.parameters()).add_(hvd.rank())
    train(model, optimizer, data[2:])


run_cases(globals())
