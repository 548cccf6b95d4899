"""Cases of elastic training on one host: failures and host news are raised by the cases themselves."""

import os

import torch
from cases import expect_raises, run_cases

import horovod.torch as hvd
from horovod._core.errors import HostsUpdatedInterrupt
from horovod._core.training.elastic.snapshot import Snapshot, leaves, settle
from horovod._core.training.elastic.state import whole_or_not
from horovod.torch.elastic import copies

F = torch.nn.functional


def make(seed):
    torch.manual_seed(seed)
    model = torch.nn.Linear(300, 300)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, hvd.DistributedOptimizer(plain, model.named_parameters())


def inputs(step):
    return torch.randn(4, 300, generator=torch.Generator().manual_seed(100 * step + hvd.rank()))


def train_step(model, optimizer, step):
    optimizer.zero_grad()
    model(inputs(step)).square().mean().backward()
    optimizer.step()


def undisturbed(steps):
    model, optimizer = make(0)
    for step in range(steps):
        train_step(model, optimizer, step)
    return model


def case_gradients_that_nobody_completes_do_not_keep_a_failed_rank():
    first, second = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, second], lr=0.1), [("a", first), ("b", second)])
    failures = []

    @hvd.elastic.run
    def train(state):
        optimizer.zero_grad()
        (second if hvd.rank() and not failures else first).sum().backward()
        if not failures:
            failures.append(1)
            raise hvd.HorovodInternalError("a failure made by the test")
        optimizer.step()
        return first.tolist()

    assert train(hvd.elastic.TorchState(optimizer=optimizer)) == [torch.tensor(0.9).item()] * 3


def case_an_engine_that_cannot_start_is_an_error_on_all_ranks_and_tried_again():
    rank = hvd.rank()
    hvd.shutdown()
    for _ in range(2):
        if rank == 0:
            os.environ["HOROVOD_TIMELINE"] = "/nowhere/to/be/found"
        expect_raises((ValueError, hvd.HorovodInternalError), hvd.init, "cannot write the timeline")
        assert not hvd.is_initialized()
    os.environ.pop("HOROVOD_TIMELINE", None)
    hvd.init()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum, name="again").tolist() == [hvd.size()] * 2


def case_failure_in_the_middle_of_a_step_is_retried():
    expected = undisturbed(6)
    model, optimizer = make(hvd.rank())
    model.load_state_dict(make(0)[0].state_dict() if hvd.rank() == 0 else model.state_dict())
    state = hvd.elastic.TorchState(model, optimizer, step=0, log=[])
    failures = []

    @hvd.elastic.run
    def train(state, total):
        while state.step < total:
            if state.step == 3 and not failures:
                # The gradients are under way when the failure comes.
                state.model(inputs(state.step)).square().mean().backward()
                failures.append(state.step)
                state.log.append("lost")
                raise hvd.HorovodInternalError("a failure made by the test")
            train_step(state.model, state.optimizer, state.step)
            state.step += 1
            state.log.append(state.step)
            if state.step % 2 == 0:
                state.commit()
        return "done"

    assert train(state, 6) == "done" and failures == [3]
    # Back to the commit after step 2, then on.
    assert state.log == [1, 2, 3, 4, 5, 6]
    assert torch.allclose(model.weight, expected.weight, atol=1e-6)


def case_step_lost_by_a_shutdown_is_forgotten():
    model, optimizer = make(0)
    model(inputs(0)).square().mean().backward()
    hvd.shutdown()
    hvd.init()
    expected = undisturbed(2)
    for step in range(2):
        train_step(model, optimizer, step)
    assert torch.allclose(model.weight, expected.weight, atol=1e-6)


def case_host_news_resets_and_calls_back():
    model, optimizer = make(0)
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    called = []
    state.register_reset_callbacks([lambda: called.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        while state.step < 3:
            train_step(state.model, state.optimizer, state.step)
            state.step += 1
            if state.step == 2 and not called:
                raise HostsUpdatedInterrupt(skip_sync=False)
        return state.step

    assert train(state) == 3 and called == [hvd.size()]


def case_mismatch_is_never_retried():
    state = hvd.elastic.TorchState(step=0)
    calls = []

    @hvd.elastic.run
    def train(state):
        calls.append(1)
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="elastic.differs")

    expect_raises(hvd.HorovodInternalError, lambda: train(state), "elastic.differs")
    assert len(calls) == 1


def case_sync_takes_everything_from_rank_0():
    model, optimizer = make(hvd.rank() + 1)
    if hvd.rank() == 0:
        train_step_local = model(inputs(0)).square().mean()
        train_step_local.backward()
    optimizer.synchronize()
    with optimizer.skip_synchronize():
        optimizer.step()
    sampler = hvd.elastic.ElasticSampler(range(100), shuffle=True)
    sampler.epoch, sampler.processed_num = 3 + hvd.rank(), 10 * (1 - hvd.rank())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, batch=hvd.rank())
    state.sync()
    assert state.batch == 0 and (sampler.epoch, sampler.processed_num) == (3, 10)
    views = hvd.allgather_object((model.weight.detach(), optimizer.state_dict(), list(sampler)))
    assert all(torch.equal(views[0][0], view[0]) and repr(views[0][1]) == repr(view[1]) for view in views)
    shards = [set(view[2]) for view in views]
    assert len(set().union(*shards)) == 90 and sum(map(len, shards)) == 90


def case_restore_takes_back_models_optimizers_and_objects():
    model, optimizer = make(0)
    train_step(model, optimizer, 0)
    state = hvd.elastic.TorchState(model, optimizer, numbers=[1])
    state.save()
    weight, momentum = model.weight.detach().clone(), optimizer.state[model.weight]["momentum_buffer"].clone()
    for _ in range(2):
        train_step(model, optimizer, 1)
        state.numbers.append(2)
        state.restore()
        assert torch.equal(model.weight, weight) and state.numbers == [1]
        assert torch.equal(optimizer.state[model.weight]["momentum_buffer"], momentum)


def case_restore_drops_the_gradients_of_the_lost_step():
    model, optimizer = make(0)
    state = hvd.elastic.TorchState(model, optimizer)
    model(inputs(0)).square().mean().backward()
    state.restore()
    assert all(parameter.grad is None for parameter in model.parameters())
    optimizer.step()


def case_sync_reaches_state_that_is_no_tensor():
    class Counting(torch.nn.Linear):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    model = Counting(2, 2)
    model.count = hvd.rank() + 3
    hvd.elastic.TorchState(model).sync()
    assert model.count == 3


def case_a_reset_copies_nothing_twice_and_allocates_nothing():
    model, optimizer = make(hvd.rank())
    train_step(model, optimizer, 0)
    state = hvd.elastic.TorchState(model, optimizer, step=0)
    state.sync()
    state.save()
    momentum = optimizer.state[model.weight]["momentum_buffer"]

    def places():
        live = [model.weight, momentum, optimizer.state[model.weight]["momentum_buffer"]]
        return [tensor.data_ptr() for tensor in live]

    kept = [state._handlers[name]._saved for name in ("model", "optimizer")]
    memories = [{tensor.data_ptr() for _, tensor in leaves(each.value)} for each in kept]
    memories = [one | {t.data_ptr() for _, t in leaves(each._before.value)} for one, each in zip(memories, kept)]
    before = places()
    made, begin = [], Snapshot.__init__
    Snapshot.__init__ = lambda self, *args: made.append(self) or begin(self, *args)
    try:
        train_step(model, optimizer, 1)
        state.restore()
        state.on_reset()
        with whole_or_not(state):
            state.sync()
    finally:
        Snapshot.__init__ = begin
    assert len(made) == 3, "one of the model, one of the optimizer, one of the attributes"
    settle()  # to ask for the place of a tensor whose copy is under way is to change it: it would move
    assert places() == before
    for name, memory in zip(("model", "optimizer"), memories):
        assert {tensor.data_ptr() for _, tensor in leaves(state._handlers[name]._saved.value)} <= memory, name


def case_a_commit_in_the_usual_loop_is_made_in_the_background():
    copy_now, copied = copies._copy, []
    copies._copy = lambda *both: copied.append(both) or copy_now(*both)
    try:
        model, optimizer = make(hvd.rank())
        state = hvd.elastic.TorchState(model, optimizer, step=0)
        state.sync()
        for step in range(3):
            optimizer.zero_grad()
            loss = model(inputs(step)).square().mean()
            loss.backward()
            optimizer.step()
            settle()
            copied.clear()
            state.commit()
            settle()
            assert loss.grad_fn is not None and len(copied) == 2, "the weight and its momentum"
    finally:
        copies._copy = copy_now


def case_objects_that_hold_what_the_state_keeps_hold_their_ranks_own():
    model, _ = make(hvd.rank())
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    train_step(model, optimizer, 0)
    for _ in range(3 - hvd.rank()):
        scheduler.step()
    holder = {"model": [model], "optimizer": optimizer, "rank": hvd.rank(), "loss": model.weight.sum() * 0 + hvd.rank()}
    holder["plain"] = plain
    state = hvd.elastic.TorchState(model, optimizer, scheduler=scheduler, holder=holder)
    state.sync()
    for _ in range(2):
        assert state.holder["model"][0] is model and state.holder["optimizer"] is optimizer
        assert state.holder["plain"] is plain
        assert state.holder["rank"] == 0 and state.holder["loss"].item() == 0
        assert state.scheduler is scheduler and scheduler.optimizer is optimizer and scheduler.last_epoch == 3
        assert optimizer.param_groups[0]["lr"] == 0.1 / 8
        train_step(model, optimizer, 1)
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.1 / 16
        state.restore()
    state.holder["model"].append(1)
    state.sync()
    assert state.holder["model"] == [model, 1]


def case_own_handler_and_replaced_model():
    class Counter:
        value = 0

    class CounterHandler(hvd.elastic.state.StateHandler):
        def save(self):
            self.saved = self.value.value

        def restore(self):
            self.value.value = self.saved

        def sync(self):
            self.value.value = hvd.broadcast_object(self.value.value)
            self.save()

    registry = hvd.elastic.state.get_handler_registry()
    hvd.elastic.state.set_handler_registry([*registry, (Counter, CounterHandler)])
    try:
        counter = Counter()
        counter.value = hvd.rank() + 7
        state = hvd.elastic.TorchState(counter=counter)
        state.sync()
        assert counter.value == 7
        state.model = "any"
        first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
        state = hvd.elastic.TorchState(first)
        state.model = second
        state.sync()
        views = hvd.allgather_object(second.weight.detach())
        assert all(torch.equal(views[0], view) for view in views)
    finally:
        hvd.elastic.state.set_handler_registry(registry)


if __name__ == "__main__":
    run_cases(globals())
