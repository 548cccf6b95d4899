"""Cases of DistributedOptimizer with sparse gradients, reduced as such and as dense ones."""

import copy
from itertools import product

import torch
from cases import run_cases
from training import close, flat

import horovod.torch as hvd


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
