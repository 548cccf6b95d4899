"""Cases of several DistributedOptimizers, copies among them: whose names are whose, whatever is alive on which rank."""

import contextlib
import copy
import gc
import io
import time
import warnings
import weakref
from itertools import product

import torch
from cases import expect_raises, run_cases
from training import F, batches, close, distributed, flat, make_model, own, sgd, train

import horovod.torch as hvd


def case_two_optimizers_with_equal_names():
    nets = [make_model(seed) for seed in (1, 2)]
    references = [make_model(seed) for seed in (1, 2)]
    data = batches()
    optimizers = [distributed(net, sgd(net)) for net in nets]
    plain = [sgd(net) for net in references]

    def gan_step(models, steps, x, y):
        for step in steps:
            step.zero_grad()
        # Both sets of gradients are in flight together.
        F.mse_loss(models[0](x) + models[1](x), y).backward()
        for step in steps:
            step.step()

    for (x, y), (own_x, own_y) in zip(data, own(data)):
        gan_step(references, plain, x, y)
        gan_step(nets, optimizers, own_x, own_y)
    for net, reference in zip(nets, references):
        close(flat(net), flat(reference))


def case_scope_of_names_follows_the_root():
    # Rank 1 has an optimizer more, so that its count differs.
    model = make_model()
    other = make_model()
    extra = hvd.DistributedOptimizer(sgd(other), named_parameters=other.named_parameters()) if hvd.rank() == 1 else None
    optimizer = distributed(model, sgd(model))
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    reference = make_model()
    data = batches()
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))
    del extra


def collected_on_rank_1_only(optimizer):
    optimizer.itself = optimizer  # only the collector frees it
    del optimizer
    if hvd.rank() == 1:
        gc.collect()


def case_names_do_not_depend_on_what_is_alive():
    gc.disable()
    collected_on_rank_1_only(hvd.DistributedOptimizer(sgd(make_model())))
    model, reference = make_model(), make_model()
    data = batches()
    close(train(model, hvd.DistributedOptimizer(sgd(model)), own(data)), train(reference, sgd(reference), data))
    gc.enable()


def case_hooks_do_not_depend_on_what_is_alive():
    gc.disable()
    model, reference = make_model(), make_model()
    collected_on_rank_1_only(distributed(model, sgd(model)))
    data = batches()
    close(train(model, distributed(model, sgd(model)), own(data)), train(reference, sgd(reference), data))
    gc.enable()


def case_an_earlier_optimizer_of_the_same_parameters_still_works():
    data = batches()
    model, reference = make_model(), make_model()
    earlier, plain = distributed(model, sgd(model)), sgd(reference)
    train(model, earlier, own(data[:1]))
    distributed(model, sgd(model))
    train(reference, plain, data[:1])
    close(train(model, earlier, own(data[1:])), train(reference, plain, data[1:]))


def case_two_optimizers_of_the_same_parameters_reduce_once():
    size = hvd.size()
    for n, op, names in product((3, 300, 1500), (hvd.Average, hvd.Sum), ("ww", "wv")):
        right = (size + 1) / 2 * (size if op == hvd.Sum else 1)
        weight = torch.nn.Parameter(torch.zeros(n, n))
        made = [hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [(x, weight)], op=op) for x in names]
        steps = 0
        # The older one, both with the same gradient, the recipe of a synchronize for the others, alternately.
        for using in ((0,), (0, 1), (1, 0), (0, "s1"), (1, "s0"), (1,), (0,)):
            weight.grad = None
            (weight.sum() * (hvd.rank() + 1)).backward()
            for which in using:
                if isinstance(which, str):
                    made[int(which[1])].synchronize()
                else:
                    made[which].step()
                    steps += 1
            assert torch.equal(weight.detach(), torch.full((n, n), -right * steps)), (n, op, names, using)
        del made


def case_an_optimizer_goes_on_after_one_that_was_dropped():
    for kept, passes in product((False, True), (1, 2)):
        weight = torch.nn.Parameter(torch.zeros(3))
        older, newer = (
            hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), backward_passes_per_step=passes)
            for _ in range(2)
        )
        mean = (hvd.size() + 1) / 2
        for number in range(6):
            if number == 3 and not kept:
                newer = None
            optimizer = newer if number < 3 else older
            weight.grad = None
            (weight.sum() * (hvd.rank() + 1)).backward()  # one pass, also where two are announced
            optimizer.step()
            assert weight.tolist() == [-mean * (number + 1)] * 3, (kept, passes, number)


def case_an_optimizer_of_other_terms_of_the_same_parameters():
    weight = torch.nn.Parameter(torch.zeros(3))
    older = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)])
    newer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)], op=hvd.Sum)
    weight.sum().backward()
    expect_raises(ValueError, older.step, "'w'", "another DistributedOptimizer", "op")
    newer.step()
    assert weight.tolist() == [-float(hvd.size())] * 3


def case_optimizers_that_share_some_parameters_step_in_turn():
    for groups in (None, 1):
        step_in_turn(groups)


def step_in_turn(groups):
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    both, first, second = optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(chosen, lr=1.0), list(zip("ab", chosen)), groups=groups)
        for chosen in (weights, weights[:1], weights[1:])
    ]
    mean = (hvd.size() + 1) / 2
    turns = ((both, (mean, mean)), (second, (0, mean)), (first, (mean, 0)))
    # What ranks that are not late have computed is under way when their pass ends.
    for late, order, settled, passes in product(range(hvd.size()), (1, -1), (False, True), (1, 2)):
        for used, steps in turns[::order]:
            before = [weight.detach().clone() for weight in weights]
            for weight in weights:
                weight.grad = None
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(passes):
                    time.sleep(0.03 if hvd.rank() == late else 0)
                    sum(((hvd.rank() + 1.0) * weight).sum() for weight in weights).backward()
                used.step()
                for other in optimizers:
                    if settled and other is not used:
                        other.synchronize()
            for weight, was, step in zip(weights, before, steps):
                assert (was - weight).tolist() == [step * passes] * 3, (late, order, settled, passes, steps)


def case_what_a_dropped_optimizer_leaves_is_reduced_when_it_is_used():
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), list(zip("ab", weights)))
    later = hvd.DistributedOptimizer(torch.optim.SGD(weights[:1], lr=1.0), [("a", weights[0])])
    del later
    gc.collect()
    sum(((hvd.rank() + 1.0) * weight).sum() for weight in weights).backward()
    mean = (hvd.size() + 1) / 2
    assert [weight.grad.mul(1).tolist() for weight in weights] == [[mean] * 3] * 2
    optimizer.step()
    assert [weight.tolist() for weight in weights] == [[-mean] * 3] * 2


def case_a_parameter_that_one_rank_leaves_out_of_two_optimizers():
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(2)]
    older, newer = (hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0)) for _ in range(2))
    for number, optimizer in enumerate((older, newer, newer, older, older), 1):
        optimizer.zero_grad()
        (weights[0].sum() + (weights[1].sum() if hvd.rank() else 0)).backward()
        optimizer.step()
        expected = -number * (hvd.size() - 1) / hvd.size()
        assert weights[0].tolist() == [-number] * 3 and torch.allclose(weights[1], torch.full((3,), expected))


class Mistake(Exception):
    """In a cell of a notebook."""


def case_a_cell_that_fails_after_backward_runs_again():
    model = make_model()
    (x, y), *_ = own(batches(1))

    def cell(is_wrong, zeroes):
        optimizer = distributed(model, sgd(model))
        for _ in range(2):
            if zeroes:
                optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if is_wrong:
                raise Mistake
            optimizer.step()

    for turn, zeroes in product(range(4), (True, False)):
        for _ in range(1 + turn % 2):
            with contextlib.suppress(Mistake):
                cell(True, zeroes)
            if turn > 1 and hvd.rank() == 0:
                gc.collect()
        cell(False, zeroes)
        model.zero_grad()
        assert len({t.numpy().tobytes() for t in hvd.allgather_object(flat(model))}) == 1


def case_a_new_optimizer_has_what_the_one_before_has_submitted():
    for op in (hvd.Average, hvd.Sum):
        weight = torch.nn.Parameter(torch.zeros(3))
        for dropped in (False, True):
            first = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)], op=op)
            (weight * (hvd.rank() + 1)).sum().backward()
            if dropped:
                del first
            second = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)], op=op)
            before = weight.detach().clone()
            second.step()
            total = hvd.size() * (hvd.size() + 1) / 2
            close(before - weight, torch.full((3,), total / (hvd.size() if op is hvd.Average else 1)))
            second.zero_grad()


def case_ranks_left_out_other_gradients_of_a_step_that_another_optimizer_ends():
    a, b = weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]

    def wrapped():
        return hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=0.1), list(zip("ab", weights)))

    optimizer = wrapped()
    (a if hvd.rank() == 0 else b).sum().backward()
    if hvd.rank() == 0:
        del optimizer
    gc.collect()
    optimizer = wrapped()
    for _ in range(2):
        optimizer.zero_grad()
        (a.sum() * (hvd.rank() + 1) + b.sum()).backward()
        optimizer.step()
    assert len({(tuple(x), tuple(y)) for x, y in hvd.allgather_object([w.tolist() for w in weights])}) == 1


def case_what_is_dropped_in_the_middle_of_a_step_goes():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    model(torch.ones(1, 100)).sum().backward()
    del optimizer
    gc.collect()
    if hvd.rank() == 0:  # alone: without an optimizer nothing is reduced
        model.zero_grad()
        for _ in range(2):
            model(torch.ones(1, 100)).sum().backward()
    weak = [weakref.ref(parameter) for parameter in model.parameters()]
    del model
    gc.collect()
    assert not any(reference() is not None for reference in weak)


def case_names_of_many_optimizers_are_bounded():
    seen = set()
    for _ in range(3000):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0))
        seen.add(optimizer._names.engine_name("bounded"))
    assert 2 < len(seen) <= 1024, len(seen)
    assert hvd.allgather_object(optimizer._names.scope) == [optimizer._names.scope] * hvd.size()


def case_names_begin_anew_with_a_session():
    # A rank that joins later has made no optimizer before.
    for _ in range(2 if hvd.rank() == 0 else 1):
        hvd.DistributedOptimizer(sgd(make_model()))
    hvd.shutdown()
    hvd.init()
    model, reference = make_model(), make_model()
    data = batches()
    close(train(model, hvd.DistributedOptimizer(sgd(model)), own(data)), train(reference, sgd(reference), data))


def case_counts_of_names_follow_the_root():
    if hvd.rank() == 1:
        make = [hvd.DistributedOptimizer(sgd(make_model())) for _ in range(2)]
        del make
    model = make_model()
    hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(sgd(model)), root_rank=0)
    # The next one agrees without a broadcast of its own.
    model, reference = make_model(), make_model()
    data = batches()
    close(train(model, hvd.DistributedOptimizer(sgd(model)), own(data)), train(reference, sgd(reference), data))


def case_parameters_added_to_two_optimizers():
    weights = [torch.nn.Parameter(torch.zeros(2)) for _ in range(4)]
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [(name, weight)])
        for name, weight in zip("ab", weights)
    ]
    for optimizer, weight in zip(optimizers, weights[2:]):
        optimizer.add_param_group({"params": [weight]})
    sum(((hvd.rank() + 1.0) * weight).sum() for weight in weights).backward()
    for optimizer in optimizers:
        optimizer.step()
    assert all(weight.tolist() == [-(hvd.size() + 1) / 2] * 2 for weight in weights)


def case_dropped_optimizer_leaves_no_hook():
    model, reference = make_model(), make_model()
    distributed(model, sgd(model))
    gc.collect()
    optimizer = distributed(model, sgd(model))
    data = batches()
    close(train(model, optimizer, own(data)), train(reference, sgd(reference), data))


def case_private_names_of_upstream():
    model = make_model()
    unused = torch.nn.Parameter(torch.ones(3))
    named = [*model.named_parameters(), ("unused", unused)]
    parameters = [parameter for _, parameter in named]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0, weight_decay=0.1), named)
    assert optimizer._parameter_names == {parameter: name for name, parameter in named}
    assert optimizer._requires_update == set(parameters) and not optimizer._handles
    optimizer._requires_update = set()
    x, y = own(batches())[0]
    for _ in range(2):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    assert optimizer._requires_update == set() and unused.grad is None and unused.tolist() == [1.0] * 3
    assert len({r.numpy().tobytes() for r in hvd.allgather_object(flat(model))}) == 1

    optimizer._allreduce_delay = dict.fromkeys(parameters, 3)
    assert set(optimizer._allreduce_delay.values()) == {3}
    optimizer.zero_grad()
    for gradient in (2.0, 5.0):
        unused.grad = torch.full((3,), gradient * (hvd.rank() + 1))
        handle, _ = optimizer._allreduce_grad_async(unused)
        assert set(optimizer._handles) == {unused}
        mean = gradient * (hvd.size() + 1) / 2
        assert (hvd.synchronize(handle) + 0).tolist() == unused.grad.tolist() == [mean] * 3
        optimizer.synchronize()
        assert not optimizer._handles
        optimizer.zero_grad()


def case_copies_stay_distributed():
    data = batches(count=6)

    def saved_and_loaded(pair):
        file = io.BytesIO()
        torch.save(pair, file)
        file.seek(0)
        return torch.load(file, weights_only=False)

    ways = {
        "deepcopy": copy.deepcopy,
        "copy": lambda pair: (pair[0], copy.copy(pair[1])),
        "file": saved_and_loaded,
        "broadcast": lambda pair: hvd.broadcast_object(pair, root_rank=0),
    }
    for name, way in ways.items():
        for options in ({}, {"groups": 1, "op": hvd.Sum}, {"compression": hvd.Compression.bf16}):
            model, reference = make_model(), make_model()
            optimizer = distributed(model, sgd(model), **options)
            plain = sgd(reference)
            train(model, optimizer, own(data[:2]))
            if hvd.rank() == 0:
                spare = copy.deepcopy(optimizer)  # that nobody steps, and the other ranks do not have
                assert spare.state_dict() and not hasattr(spare, "nothing")
            model_2, optimizer_2 = way((model, optimizer))
            model_2, optimizer_2 = way((model_2, optimizer_2))
            assert isinstance(optimizer_2, torch.optim.SGD) and optimizer_2.param_groups[0]["lr"] == 0.1
            train(model_2, optimizer_2, own(data[2:4]))
            if name in ("deepcopy", "file"):
                train(model, optimizer, own(data[2:4]))  # the original goes on
                assert torch.equal(flat(model), flat(model_2)), (name, options)
            result = train(model_2, optimizer_2, own(data[4:]))
            assert len({r.numpy().tobytes() for r in hvd.allgather_object(result)}) == 1, (name, options)
            if not options:
                close(result, train(reference, plain, data))
            assert optimizer_2.op == options.get("op", hvd.Average)


def case_gradients_that_one_rank_lays_out_otherwise():
    mean = (hvd.size() + 1) / 2
    values = torch.arange(120.0).view(2, 3, 4, 5)
    layouts = {
        "rows": lambda t: t.contiguous(),
        "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
        "turned": lambda t: t.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        "with gaps": lambda t: torch.stack([t, t], -1)[..., 0],
    }
    for of_parameter, of_gradient in product(layouts, layouts):
        weight = torch.nn.Parameter(layouts[of_parameter](torch.zeros(2, 3, 4, 5)))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
        for _ in range(3):
            if hvd.rank() == 1:
                weight.grad = layouts[of_gradient](torch.zeros(2, 3, 4, 5))  # a buffer of the program's own
            else:
                weight.grad = None
            (weight * values * (hvd.rank() + 1)).sum().backward()
            optimizer.step()
            assert torch.allclose(weight.grad, values * mean), (of_parameter, of_gradient)
        assert torch.allclose(weight, -3 * mean * values)


def case_copy_in_a_process_that_is_no_rank():
    model = make_model()
    optimizer = distributed(model, sgd(model))
    file = io.BytesIO()
    torch.save(optimizer, file)
    hvd.shutdown()
    file.seek(0)
    assert type(torch.load(file, weights_only=False)) is torch.optim.SGD
    hvd.init()


def case_newer_optimizer_gone_on_one_rank():
    model, reference = make_model(), make_model()
    older, newer, plain = distributed(model, sgd(model)), distributed(model, sgd(model)), sgd(reference)
    if hvd.rank() == 0:
        del newer
        gc.collect()
    for (x, y), (whole_x, whole_y) in zip(own(batches()), batches()):
        for net, optimizer, data in ((model, older, (x, y)), (reference, plain, (whole_x, whole_y))):
            optimizer.zero_grad()
            F.mse_loss(net(data[0]), data[1]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
    close(flat(model), flat(reference))


def case_what_an_optimizer_left_under_way_goes_with_the_model():
    for _ in range(3):
        model = make_model()
        kept = weakref.ref(model[0].weight)
        optimizer = distributed(model, sgd(model))
        hvd.barrier()
        if hvd.rank() == 1:
            time.sleep(0.3)  # the others' gradients are under way when their passes end
        model(torch.ones(1, model[0].in_features)).sum().backward()
        del optimizer
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 0  # and are used then
        del model
        gc.collect()
        assert kept() is None


def case_optimizers_in_turn_with_gradients_set_by_hand():
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("byhand", weight)]) for _ in range(2)]
    for turn in range(4):
        weight.grad = torch.full((3,), hvd.rank() + 1.0)
        optimizers[turn % 2].step()
        assert torch.equal(weight, torch.full((3,), (turn + 1) * (hvd.size() + 1) / -2)), (turn, weight)


if __name__ == "__main__":
    run_cases(globals())
