"""Cases in which nobody has asked for a check of parameters: what differs is told all the same."""

import collections
import contextlib
import os
import sys
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
        assert "all 4 parameters differ" in text and "'0.weight' of rank 1 differs from rank 0's" in text, text
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


@contextlib.contextmanager
def session(check=None, **options):
    """Another session meanwhile, with HOROVOD_CHECK_PARAMETERS."""
    hvd.shutdown()
    if check is not None:
        os.environ["HOROVOD_CHECK_PARAMETERS"] = str(check)
    hvd.init(**options)
    try:
        yield
    finally:
        hvd.shutdown()
        os.environ.pop("HOROVOD_CHECK_PARAMETERS", None)
        hvd.init()


def case_zero_switches_values_off():
    with session(check=0):
        assert told(lambda: trained(make_model(seed=hvd.rank()), steps=6)) == []


def case_zero_switches_shapes_off():
    with session(check=0):
        model = torch.nn.Linear(4, 3 + hvd.rank())
        optimizer = hvd.DistributedOptimizer(sgd(model), named_parameters=model.named_parameters())
        model(torch.ones(2, 4)).sum().backward()
        error = expect_raises(MismatchError, optimizer.step)  # of the first gradient, and of that alone
        assert "All ranks must make the same model" not in str(error), error


def case_one_makes_it_an_error_after_the_first_step():
    with session(check=1):
        model = make_model(seed=hvd.rank())
        optimizer = distributed(model, sgd(model))
        words = "After step 1 of an optimizer all 4 parameters differ"
        texts = told(lambda: expect_raises(MismatchError, lambda: train(model, optimizer, own(batches())[:1]), words))
        assert texts == [], texts


def case_one_is_silent_where_parameters_are_equal():
    with session(check=1):
        assert told(lambda: trained(make_model(), steps=4)) == []


def case_what_process_sets_reduce_is_not_compared():
    """With three ranks: a set of two is not the global one."""
    pair = hvd.ProcessSet([0, 1])
    with session(process_sets=[pair]):
        # The third rank has another model, which it trains alone.
        model = make_model(seed=hvd.rank(), hidden=200 + hvd.rank() // 2)
        assert told(lambda: trained(model, steps=6 + hvd.rank() // 2, process_set=pair)) == []
        # It has made as many optimizers of the global set as the others, and these are compared.
        assert len(told(lambda: trained(make_model(seed=hvd.rank()), steps=8))) == (hvd.rank() == 0)


def case_a_graph_that_is_retained():
    for seed, texts in ((0, 0), (hvd.rank(), 1)):
        model = make_model(seed=seed)
        optimizer = distributed(model, sgd(model))

        def run(model=model, optimizer=optimizer):
            for x, y in own(batches()) * 2:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward(retain_graph=True)
                loss.backward()
                optimizer.step()

        assert len(told(run)) == texts * (hvd.rank() == 0)


def case_what_is_over_costs_a_few_comparisons():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    train(model, optimizer, own(batches()) * 2)
    calls = collections.Counter()

    def note(frame, event, argument):
        if event == "call" and "default_" in frame.f_code.co_filename:
            calls[frame.f_code.co_name] += 1

    steps = own(batches())
    sys.setprofile(note)
    try:
        train(model, optimizer, steps)
    finally:
        sys.setprofile(None)
    # Each looks at an attribute or two: nothing is read, sent or waited for.
    assert set(calls) <= {"begin", "confirm", "is_waited_for", "step_over"}, calls
    assert max(calls.values()) <= 2 * len(steps), calls


run_cases(globals())
