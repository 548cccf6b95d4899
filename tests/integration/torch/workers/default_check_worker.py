"""Cases in which nobody has asked for a check of parameters: what differs is told all the same."""

import warnings

import torch
from cases import expect_raises, run_cases
from training import batches, distributed, make_model, own, sgd, train

import horovod.torch as hvd
from horovod._core.errors import MismatchError


def told(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return [str(each.message) for each in caught if "of an optimizer" in str(each.message)]


def trained(model, steps=6, **options):
    optimizer = distributed(model, sgd(model), **options)
    data = own(batches())
    train(model, optimizer, [data[step % len(data)] for step in range(steps)])


def case_a_forgotten_broadcast_is_told_once():
    texts = told(lambda: trained(make_model(seed=hvd.rank()), steps=8))
    assert len(texts) == (hvd.rank() == 0), texts
    for text in texts:
        assert "all of 4 parameters differ" in text and "'0.weight' of rank 1 differs from rank 0's" in text, text
        assert "hvd.broadcast_parameters(model.state_dict(), root_rank=0)" in text, text


def case_what_is_right_is_silent():
    model = make_model(seed=hvd.rank())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    assert told(lambda: trained(model, steps=8)) == []


def case_a_broadcast_after_the_first_step_is_silent():
    model = make_model(seed=hvd.rank())
    optimizer = distributed(model, sgd(model))
    data = own(batches())

    def run():
        train(model, optimizer, data[:1])
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for _ in range(3):
            train(model, optimizer, data[1:])

    assert told(run) == []


def case_another_number_of_parameters_fails():
    layers = [torch.nn.Linear(4, 4) for _ in range(1 + hvd.rank())]
    model = torch.nn.Sequential(*layers)
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    model(torch.ones(2, 4)).sum().backward()
    expect_raises(MismatchError, optimizer.step, "Rank 1 has 4 parameters, rank 0 has 2")


def case_another_shape_fails():
    model = torch.nn.Linear(4, 3 + hvd.rank())
    optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
    model(torch.ones(2, 4)).sum().backward()
    expect_raises(MismatchError, optimizer.step, "'bias' is float32 [4] on rank 1 and float32 [3] on rank 0")


def case_ranks_with_fewer_steps_join():
    model = make_model()
    trained(model, steps=2 + hvd.rank())
    hvd.join()


def case_two_optimizers_and_two_passes_are_silent():
    def run():
        for passes in (1, 2):
            trained(make_model())
            second = make_model()
            optimizer = distributed(second, sgd(second), backward_passes_per_step=passes)
            for _ in range(4):
                optimizer.zero_grad()
                for x, y in own(batches())[:passes]:
                    torch.nn.functional.mse_loss(second(x), y).backward()
                optimizer.step()

    assert told(run) == []


def case_a_gradient_that_one_rank_lacks_is_silent():
    used, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    hvd.broadcast_parameters([*used.named_parameters("u"), *other.named_parameters("o")], root_rank=0)
    named = [*used.named_parameters("u"), *other.named_parameters("o")]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p for _, p in named], lr=0.1), named_parameters=named)

    def run():
        for _ in range(5):
            optimizer.zero_grad()
            (used if hvd.rank() else lambda x: used(other(x)))(torch.ones(1, 2)).sum().backward()
            optimizer.step()

    assert told(run) == []


run_cases(globals())
