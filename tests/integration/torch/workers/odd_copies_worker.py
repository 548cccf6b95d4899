"""Cases of copies of a distributed optimizer: of process sets that are gone, of earlier sessions, of no session."""

import copy
import io

import torch
from cases import expect_raises, run_cases
from training import batches, close, distributed, flat, make_model, own, sgd, train

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError, NotInitializedError
from horovod.torch.optimizer import _DistributedOptimizer


def saved(value):
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def loaded(data):
    return torch.load(io.BytesIO(data), weights_only=False)


def equal_everywhere(*values):
    return len({value.numpy().tobytes() for value in hvd.allgather_object(torch.cat(values))}) == 1


def case_a_copy_is_not_wrapped_again():
    model = make_model()
    both = copy.deepcopy((model, distributed(model, sgd(model))))
    for _ in range(2):  # before it has begun, and after
        expect_raises(InvalidArgumentError, lambda: hvd.DistributedOptimizer(both[1]), "a DistributedOptimizer already")
        train(*both, own(batches()))
        assert equal_everywhere(flat(both[0]))


def case_a_copy_of_no_session_is_plain_and_can_be_wrapped():
    model = make_model()
    data = saved((model, distributed(model, sgd(model))))
    hvd.shutdown()
    model, optimizer = loaded(data)
    assert type(optimizer) is torch.optim.SGD
    hvd.init()
    train(model, hvd.DistributedOptimizer(optimizer, model.named_parameters()), own(batches()))
    assert equal_everywhere(flat(model))


def case_copying_after_a_shutdown():
    hvd.shutdown()
    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    for options in ({}, {"process_set": pair}):
        model = make_model()
        optimizer = distributed(model, sgd(model), **options)
        unused = copy.deepcopy((model, optimizer))
        hvd.shutdown()
        for way in (copy.deepcopy, lambda both: loaded(saved(both))):
            assert type(way((model, optimizer))[1]) is torch.optim.SGD
            assert type(way(unused)[1]) is torch.optim.SGD
        hvd.init(process_sets=[pair])


def case_a_copy_used_after_a_shutdown_says_so_each_time():
    model = make_model()
    both = copy.deepcopy((model, distributed(model, sgd(model))))
    hvd.shutdown()
    for _ in range(2):
        expect_raises(NotInitializedError, both[1].step, "hvd.init()")
    hvd.init()
    train(*both, own(batches()))
    assert isinstance(both[1], _DistributedOptimizer) and equal_everywhere(flat(both[0]))


def case_a_file_of_an_earlier_session():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    train(model, optimizer, own(batches()))
    data = saved((model, optimizer))
    hvd.shutdown()
    hvd.init()
    first, second = loaded(data), loaded(data)
    train(*first, own(batches()))
    train(*second, own(batches()))
    assert torch.equal(flat(first[0]), flat(second[0])) and equal_everywhere(flat(first[0]))


def case_a_set_that_is_gone():
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    pair = hvd.add_process_set([0, 1])
    model = make_model()
    optimizer = distributed(model, sgd(model), process_set=pair)
    data, early = saved((model, optimizer)), copy.deepcopy((model, optimizer))
    hvd.remove_process_set(pair)
    other = hvd.add_process_set([1, 2])
    pairs = early, copy.deepcopy((model, optimizer)), loaded(data)
    for both in (*pairs, *pairs):
        expect_raises(InvalidArgumentError, both[1].step, "The process set of ranks 0, 1 is not registered")
    again = hvd.add_process_set([0, 1])
    for both in pairs:
        assert both[1].process_set.ranks == [0, 1]
        if hvd.rank() < 2:
            train(*both, own(batches()))
        assert len({each.numpy().tobytes() for each in hvd.allgather_object(flat(both[0]))[:2]}) == 1
    hvd.remove_process_set(other)
    hvd.remove_process_set(again)


def case_a_file_of_a_session_with_other_sets():
    hvd.shutdown()
    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    model = make_model()
    data = saved((model, distributed(model, sgd(model), process_set=pair)))
    hvd.shutdown()
    hvd.init(process_sets=[hvd.ProcessSet([1, 2]), hvd.ProcessSet([0, 1])])
    model, optimizer = loaded(data)
    assert optimizer.process_set.ranks == [0, 1] and optimizer.process_set.process_set_id == 2
    if hvd.rank() < 2:
        train(model, optimizer, own(batches()))


def case_a_copy_between_two_passes_begins_a_step():
    model = make_model()
    optimizer = distributed(model, sgd(model), backward_passes_per_step=2)
    data = own(batches())
    x, y = data[0]
    torch.nn.functional.mse_loss(model(x), y).backward()
    model_2, optimizer_2 = copy.deepcopy((model, optimizer))
    passes = {model: 1, model_2: 2}  # PyTorch copies no gradients
    for each, optimizer_of_it in ((model, optimizer), (model_2, optimizer_2)):
        for _ in range(passes[each]):
            torch.nn.functional.mse_loss(each(x), y).backward()
        optimizer_of_it.step()
        assert equal_everywhere(flat(each))
    close(flat(model), flat(model_2))


def case_a_copy_while_gradients_are_under_way():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    x, y = own(batches())[0]
    torch.nn.functional.mse_loss(model(x), y).backward()
    model_2, optimizer_2 = copy.deepcopy((model, optimizer))
    torch.nn.functional.mse_loss(model_2(x), y).backward()
    optimizer.step()
    optimizer_2.step()
    assert equal_everywhere(flat(model)) and equal_everywhere(flat(model_2))
    close(flat(model), flat(model_2))


run_cases(globals())
