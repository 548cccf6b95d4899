"""Gradients under way that the program shares, reads on a thread, or leaves behind in a pass that has failed."""

import threading
import time
import warnings

import torch
from cases import expect_raises, run_cases
from torch.utils.checkpoint import checkpoint
from training import F, batches, distributed, flat, make_model, own

import horovod.torch as hvd


class Heads(torch.nn.Module):
    """A body, and heads of which each rank uses one; the body's weight is joined from two parameters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.q, self.k = (torch.nn.Parameter(torch.randn(50, 100)) for _ in range(2))
        self.heads = torch.nn.ModuleList(torch.nn.Linear(100, 4, bias=False) for _ in range(hvd.size()))

    def body(self, x):
        return F.linear(x, torch.cat([self.q, self.k])).tanh()


def equal_on_all_ranks(model):
    ranks = hvd.allgather(flat(model)[None])
    assert all(torch.equal(ranks[0], row) for row in ranks), (ranks - ranks[0]).abs().max()


def quickly(backward):
    """A pass that ends at once, without a warning of gradients that the program holds."""
    begin = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FutureWarning)  # torch's, of itself
        backward()
    assert time.monotonic() - begin < 10


def case_parameters_that_are_joined_are_not_held_gradients():
    model = Heads()
    optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in own(batches()):
        optimizer.zero_grad()
        loss = F.mse_loss(model.heads[hvd.rank()](model.body(x)), y)
        quickly(loss.backward)
        optimizer.step()
    equal_on_all_ranks(model)


def case_a_gradient_that_an_inner_pass_computes_again_is_an_error():
    """In the first step, and in those that go the short way to the engine."""
    for overlaps in (True, False):
        layer = torch.nn.Linear(8, 8)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), 0.1), layer.named_parameters())
        optimizer._access.gathered.set_overlaps(overlaps)

        def compute(again, layer=layer):
            x = torch.ones(2, 8, requires_grad=True)
            hidden = checkpoint(layer, x, use_reentrant=True) if again else x
            layer(hidden).sum().backward()

        for again in (True, False, False, True):
            if again:
                expect_raises(AssertionError, lambda: compute(again=True), "computed twice in one backward pass")
            else:
                compute(again=False)
                optimizer.step()
            optimizer.zero_grad()


def case_a_transposed_gradient_is_not_held():
    """Ranks that leave out different gradients go on."""
    transposed = torch.nn.Parameter(torch.ones(300, 20).t())
    heads = [torch.nn.Parameter(torch.ones(20)) for _ in range(hvd.size())]
    named = [("transposed", transposed), *((f"head{rank}", head) for rank, head in enumerate(heads))]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter for _, parameter in named], 0.1), named)
    begin = time.monotonic()
    for _ in range(2):
        optimizer.zero_grad()
        ((torch.ones(4, 300) @ transposed.t()) * heads[hvd.rank()]).mean().backward()
        optimizer.step()
    assert time.monotonic() - begin < 20
    assert optimizer._access.waits_for_held


def case_reentrant_passes_do_not_hold_gradients():
    model = Heads()
    optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in own(batches()):
        optimizer.zero_grad()
        hidden = checkpoint(model.body, x.requires_grad_(True), use_reentrant=True)
        loss = F.mse_loss(checkpoint(model.heads[hvd.rank()], hidden, use_reentrant=True), y)
        quickly(loss.backward)
        optimizer.step()
    equal_on_all_ranks(model)


def case_passes_in_another_order_do_not_hold_gradients():
    model = torch.nn.ModuleList(torch.nn.Linear(100, 4) for _ in range(3))
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for x, y in own(batches(2)):
        optimizer.zero_grad()
        for index in (0, 1, 2) if hvd.rank() == 0 else (2, 1, 0):
            quickly(F.mse_loss(model[index](x), y).backward)
            hvd.allreduce(torch.ones(1), name="metric")
        optimizer.step()
    equal_on_all_ranks(model)


class Late(torch.autograd.Function):
    """Its backward pass sleeps, or fails."""

    @staticmethod
    def forward(ctx, x, sleep_s, fails):
        ctx.sleep_s, ctx.fails = sleep_s, fails
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.sleep_s)
        if ctx.fails:
            raise RuntimeError("boom")
        return gradient, None, None


def case_gradients_that_a_thread_reads():
    """Rank 0's thread reads them while the main thread steps; rank 1 is late, in its pass and to its step."""
    for uses_own_head in (False, True):
        model = Heads()
        optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
        errors, threads = [], []

        def read(model=model, errors=errors):
            try:
                for gradient in [p.grad for p in model.parameters()]:
                    gradient.norm()
            except Exception as error:
                errors.append(error)

        for x, y in own(batches()):
            optimizer.zero_grad()
            hidden = Late.apply(model.body(x), 0.05 * hvd.rank(), False)
            F.mse_loss(model.heads[hvd.rank() * uses_own_head](hidden), y).backward()
            if hvd.rank() == 0:
                threads.append(threading.Thread(target=read))
                threads[-1].start()
                time.sleep(0.02)
            time.sleep(0.2 * hvd.rank())
            optimizer.step()
            if hvd.rank() == 0:
                threads[-1].join(30)
                assert not threads[-1].is_alive()
        assert not errors, errors
        equal_on_all_ranks(model)


def case_a_failed_pass_and_what_it_has_computed():
    """The program clips and steps with that, or makes the pass once more."""
    for way in ("clip", "retry", "zero, then retry"):
        plain, ours = (make_model().to(torch.float64) for _ in range(2))
        optimizers = (
            torch.optim.SGD(plain.parameters(), lr=0.1),
            distributed(ours, torch.optim.SGD(ours.parameters(), 0.1)),
        )
        whole = [(x.double(), y.double()) for x, y in batches()]
        for step, (all_samples, mine) in enumerate(zip(whole, own(whole))):
            for model, optimizer, (x, y) in ((plain, optimizers[0], all_samples), (ours, optimizers[1], mine)):
                optimizer.zero_grad(set_to_none=False)
                if step % hvd.size() == hvd.rank():
                    time.sleep(0.02)
                for fails in (True, False) if way != "clip" else (step % 2 == 0,):
                    try:
                        F.mse_loss(model[1:](Late.apply(model[0](x), 0.0, fails)), y).backward()
                    except RuntimeError as error:
                        assert "boom" in str(error)
                        if way == "zero, then retry":
                            model.zero_grad(set_to_none=False)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.step()
        assert torch.allclose(flat(plain), flat(ours), rtol=1e-10, atol=1e-12), way
        equal_on_all_ranks(ours)


class Look(torch.autograd.Function):
    """Passes gradients on, and calls a function meanwhile."""

    @staticmethod
    def forward(ctx, x, look):
        ctx.look = look
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.look()
        return gradient, None


def case_small_gradients_of_a_pass_travel_together():
    """At its end, or when they are many; a large one does not wait for them, nor does one of a later pass. Where a
    reduction would only interrupt the pass, large ones and many do too."""
    small = [torch.nn.Linear(64, 64, bias=False) for _ in range(3)]  # 16 KB each
    large = torch.nn.Linear(64, 64 << 2, bias=False)
    many = [torch.nn.Linear(64, 64 * 3, bias=False) for _ in range(24)]  # 48 KB each, 1.1 MB
    model = torch.nn.ModuleList([*small, large, *many])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    under_way = []

    def submitted():
        under_way.append(len(optimizer._access.under_way.sent))

    def most_submitted(layers, passes=1):
        """At any time in the last pass of a step."""
        optimizer.zero_grad()
        for _ in range(passes):
            under_way.clear()
            x = torch.ones(2, 64, requires_grad=True)
            sum(layer(Look.apply(x, submitted)).sum() for layer in layers).backward()
        optimizer.step()
        return max(under_way)

    for overlaps in (True, False) * 3:  # the first steps take another way to the engine than the others
        optimizer._access.gathered.set_overlaps(overlaps)
        assert most_submitted(small) == 0
        assert most_submitted([*small, large]) == (1 if overlaps else 0)
        assert (most_submitted(many) >= 20) is overlaps
        assert most_submitted(small, passes=2) >= 1
    equal_on_all_ranks(model)


def check_clipped(change):
    """Ranks that clip, one of them late, end where one process does.

    Args:
        change: (when, layers, optimizer): what the program does "first", and "before" and "after" the second pass.
    """
    results = []
    for is_distributed in (False, True):
        torch.manual_seed(3)
        model = torch.nn.Sequential(*(torch.nn.Linear(100, 100) for _ in range(3)), torch.nn.Linear(100, 4)).double()
        change("first", model, None)
        optimizer = torch.optim.SGD([p for layer in model[1:] for p in layer.parameters()], lr=0.1)
        if is_distributed:
            optimizer = hvd.DistributedOptimizer(optimizer)
        data = [(x.double(), y.double()) for x, y in batches()]
        for step, (x, y) in enumerate(own(data) if is_distributed else data):
            if step == 1:
                change("before", model, optimizer)
            optimizer.zero_grad()
            if is_distributed and step % hvd.size() == hvd.rank():
                time.sleep(0.02)
            F.mse_loss(model(x), y).backward()
            if step == 1:
                change("after", model, optimizer)
            clipped = [p for group in optimizer.param_groups for p in group["params"]]
            torch.nn.utils.clip_grad_norm_(clipped, 0.05)
            optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in clipped]))
    assert torch.allclose(*results, rtol=1e-10, atol=1e-12), (results[0] - results[1]).abs().max()


def case_a_group_is_added_after_its_pass():
    def change(when, layers, optimizer):
        if when == "after":
            optimizer.add_param_group({"params": list(layers[0].parameters())})

    check_clipped(change)


def case_all_that_train_are_frozen_and_others_thawed():
    def change(when, layers, optimizer):
        if when in ("first", "before"):
            for index, layer in enumerate(layers):
                layer.requires_grad_((index < 2) == (when == "before"))

    check_clipped(change)


def case_an_optimizer_made_by_one_rank_alone():
    size, rank = hvd.size(), hvd.rank()
    hvd.shutdown()
    hvd.init(comm=[rank])
    assert hvd.size() == 1
    model = make_model()
    optimizer = distributed(model, torch.optim.SGD(model.parameters(), lr=0.1))
    hvd.shutdown()
    hvd.init()
    assert hvd.size() == size
    for x, y in own(batches()):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    equal_on_all_ranks(model)


if __name__ == "__main__":
    run_cases(globals())
