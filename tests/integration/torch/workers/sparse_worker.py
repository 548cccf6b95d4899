"""Cases of DistributedOptimizer with sparse gradients, reduced as such and as dense ones."""

import copy
import time
import warnings
from itertools import product

import torch
from cases import run_cases
from training import close, flat

import horovod.torch as hvd
from horovod.torch.gradients import after_pass


def case_sparse_embedding():
    for as_dense, compression in product((False, True), (hvd.Compression.none, hvd.Compression.fp16)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(30, 4, sparse=True)
        reference = copy.deepcopy(table)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.5),
            table.named_parameters(),
            compression=compression,
            sparse_as_dense=as_dense,
        )
        plain = torch.optim.SGD(reference.parameters(), lr=0.5)
        for step in range(3):
            words = torch.arange(hvd.size() * 4) * (step + 2) % 7
            plain.zero_grad()
            reference(words).square().mean().backward()
            plain.step()
            optimizer.zero_grad()
            table(words[hvd.rank() :: hvd.size()]).square().mean().backward()
            optimizer.step()
            assert table.weight.grad.is_sparse
        close(table.weight, reference.weight, atol=2e-6 if compression is hvd.Compression.none else 1e-3)


def case_a_sparse_gradient_that_nobody_holds_is_not_taken_for_one():
    table, layer = torch.nn.Embedding(50, 8, sparse=True), torch.nn.Linear(8, 2)
    model = torch.nn.ModuleList([table, layer])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "The program holds")
        for step in range(4):
            optimizer.zero_grad()
            if step % hvd.size() == hvd.rank():
                time.sleep(0.1)  # the gradients of the others are under way meanwhile
            layer(table(torch.tensor([hvd.rank(), 7, 7]))).sum().backward()
            assert optimizer._access.waits_for_held
            optimizer.step()


def case_a_sparse_gradient_that_is_held_is_reduced_where_it_is():
    held = []
    table = torch.nn.Embedding(4, 1, sparse=True)
    table.weight.register_post_accumulate_grad_hook(lambda weight: held.append(weight.grad))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters())
    mean = torch.zeros(4, 1)
    for rank in range(hvd.size()):
        mean[rank % 4] += (rank + 1) / hvd.size()
    for step in range(4):
        optimizer.zero_grad()
        if step % hvd.size() == hvd.rank():
            time.sleep(0.2)
        (table(torch.tensor([hvd.rank() % 4])) * (hvd.rank() + 1)).sum().backward()
        close(held[-1].to_dense(), mean)
        assert table.weight.grad is held[-1] and optimizer._access.waits_for_held
        optimizer.step()


def case_a_sparse_gradient_that_is_held_is_waited_for_with_a_limit():
    limit, after_pass._HELD_S = after_pass._HELD_S, 0.3
    held = []
    table = torch.nn.Embedding(4, 1, sparse=True)
    table.weight.register_post_accumulate_grad_hook(lambda weight: held.append(weight.grad))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters())
    hvd.barrier()
    late = hvd.rank() == hvd.size() - 1
    if late:
        time.sleep(1.5)
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table(torch.tensor([1])).sum().backward()
    assert late or time.monotonic() - start >= 0.3
    assert ["After 0.3 s" in str(each.message) for each in caught] == ([] if late else [True]), caught
    optimizer.step()
    after_pass._HELD_S = limit


def case_sparse_adam_equals_one_rank():
    for as_dense in (False, True):
        torch.manual_seed(0)
        table = torch.nn.Embedding(30, 4, sparse=True)
        reference = copy.deepcopy(table)
        plain = torch.optim.SparseAdam(list(reference.parameters()))
        optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(list(table.parameters())), sparse_as_dense=as_dense)
        for step in range(3):
            words = torch.arange(hvd.size() * 4) * (step + 2) % 7
            for net, used, it in ((reference, words, plain), (table, words[hvd.rank() :: hvd.size()], optimizer)):
                it.zero_grad()
                net(used).square().mean().backward()
                it.step()
        close(table.weight, reference.weight)


def case_sparse_adam_and_a_rank_without_words():
    for as_dense, first in product((False, True), (0, 1)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 4, sparse=True)
        optimizer = hvd.DistributedOptimizer(torch.optim.SparseAdam(list(table.parameters())), sparse_as_dense=as_dense)
        for step in range(3):
            optimizer.zero_grad()
            # With first = 1 the others have never seen that this table has sparse gradients.
            if step == 1 - first or hvd.rank() == 0:
                table(torch.tensor([hvd.rank(), 5])).sum().backward()
            optimizer.step()
        assert len({t.numpy().tobytes() for t in hvd.allgather_object(table.weight.detach())}) == 1


def case_sparse_after_the_state_was_broadcast():
    for kind, as_dense in product((torch.optim.SGD, torch.optim.Adagrad), (False, True)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(20, 4, sparse=True)
        optimizer = hvd.DistributedOptimizer(kind(table.parameters(), lr=0.5), sparse_as_dense=as_dense)
        hvd.broadcast_optimizer_state(optimizer, 0)
        assert not table.weight.grad.any()
        for step in range(3):
            # In the second step a rank has no words, and so no gradient.
            if step != 1 or hvd.rank() == 0:
                table(torch.tensor([hvd.rank(), 5])).sum().backward()
            optimizer.step()
            assert table.weight.grad.is_sparse
            optimizer.zero_grad()
        assert len({t.numpy().tobytes() for t in hvd.allgather_object(table.weight.detach())}) == 1


def case_gradients_of_ones_own_stay_when_sparse_ones_come():
    table = torch.nn.Embedding(3, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.5)
    hvd.broadcast_optimizer_state(optimizer, 0)
    table.weight.grad += 1.0
    table(torch.tensor([1])).sum().backward()
    assert table.weight.grad.tolist() == [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]


def case_dense_and_sparse_tables_in_groups():
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Embedding(9, 3, sparse=sparse) for sparse in (True, False)])
    reference = copy.deepcopy(model)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), model.named_parameters(), sparse_as_dense=True, groups=1
    )
    plain = torch.optim.SGD(reference.parameters(), lr=0.5)
    words = torch.arange(hvd.size() * 4) % 9
    for net, used, it in ((reference, words, plain), (model, words[hvd.rank() :: hvd.size()], optimizer)):
        for _ in range(2):
            it.zero_grad()
            sum(table(used).square().mean() for table in net).backward()
            it.step()
    assert [table.weight.grad.is_sparse for table in model] == [True, False]
    close(flat(model), flat(reference))


if __name__ == "__main__":
    run_cases(globals())
