"""What a `TorchState` can keep: modules and optimizers of the user's own, schedulers, tensors with a graph, objects
that hold any of these; and what they are given at a restore."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
from only_rank import OnlyRank

torch = pytest.importorskip("torch")

from horovod._core.errors import InvalidArgumentError  # noqa: E402
from horovod.torch.elastic import state as elastic_state  # noqa: E402
from horovod.torch.elastic.state import ModelStateHandler, OptimizerStateHandler, TorchState  # noqa: E402
from horovod.torch.functions import broadcast_parameters  # noqa: E402


class Extra(torch.nn.Linear):
    """Has a tensor of its own, which it takes as it is given, a parameter and a buffer besides."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("seen", torch.zeros(2))
        self.table = torch.zeros(2)

    def get_extra_state(self) -> Any:
        return {"table": self.table, "seen": self.seen}

    def set_extra_state(self, state: Any) -> None:
        self.table, self.given = state["table"], state


class Keeping(torch.nn.Linear):
    """Remembers what was loaded, to measure how far it has come since."""

    def __init__(self) -> None:
        super().__init__(2, 2)

    def load_state_dict(self, state: Any, *args: Any, **kwargs: Any) -> Any:
        self.given = dict(state)
        return super().load_state_dict(state, *args, **kwargs)


class KeepingInside(torch.nn.Sequential):
    """A part of it does so."""

    class Part(torch.nn.Linear):
        def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
            self.given = {name: state[prefix + name] for name in ("weight", "bias")}
            super()._load_from_state_dict(state, prefix, *args)

    def __init__(self) -> None:
        super().__init__(self.Part(2, 2))

    @property
    def given(self) -> Any:
        return self[0].given


class Hooked(torch.nn.Linear):
    """By a hook."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_load_state_dict_pre_hook(lambda module, state, *_: setattr(module, "given", dict(state)))


@pytest.mark.skipif(
    not hasattr(torch.nn.Module, "register_load_state_dict_pre_hook"), reason="Not here: an older PyTorch."
)
@pytest.mark.parametrize("kind", [Extra, Keeping, KeepingInside, Hooked])
def test_what_a_module_keeps_of_a_restore_is_its_own(kind: Any) -> None:
    module = kind()
    handler = ModelStateHandler(module)
    handler.restore()
    given = module.given
    before = copy.deepcopy(given)
    for number in range(1, 4):
        with torch.no_grad():
            for value in [*module.parameters(), *module.buffers()]:
                value.fill_(number)
        module.table = torch.full((2,), float(number))
        handler.save()
        assert all(torch.equal(given[name], before[name]) for name in before), "a later commit shows in it"
    # Nor does what is done to it show in the commit.
    for value in given.values():
        value.fill_(9)
    handler.restore()
    assert all((value == 3).all() for value in [*module.parameters(), *module.buffers(), module.table])


class Cloning(torch.nn.Linear):
    """Gives copies of its tensors as its state."""

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {name: value.detach().clone() for name, value in super().state_dict(*args, **kwargs).items()}


def cloning_by_a_hook() -> Any:
    module = torch.nn.Linear(2, 2)
    module._register_state_dict_hook(
        lambda module, state, *_: state.update({name: value.clone() for name, value in state.items()})
    )
    return module


@pytest.mark.parametrize("make", [lambda: Cloning(2, 2), cloning_by_a_hook])
def test_a_module_that_gives_copies_of_its_tensors_gets_those_of_rank_0(
    monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    def of_rank_0(state: Any, root_rank: int) -> None:
        for value in state.values():
            value.fill_(5)

    monkeypatch.setattr(elastic_state, "broadcast_parameters", of_rank_0)
    module = make()
    handler = ModelStateHandler(module)
    handler.sync()
    assert all((value == 5).all() for value in module.parameters())
    with torch.no_grad():
        module.weight.fill_(9)
    handler.restore()
    assert all((value == 5).all() for value in module.parameters())


def test_a_plain_model_is_restored_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    module.append(module[0])
    handler = ModelStateHandler(module)
    given: list[Any] = []
    load = torch.nn.Module._load_from_state_dict
    monkeypatch.setattr(
        torch.nn.Module,
        "_load_from_state_dict",
        lambda self, state, *rest: given.append(state) or load(self, state, *rest),
    )
    monkeypatch.setattr(torch.nn.Module._load_from_state_dict, "__module__", "torch.nn.modules.module")
    handler.restore()
    assert {state[name].data_ptr() for state in given for name in state} <= {
        value.data_ptr() for value in handler._saved.value.values()
    }


class Wrapper(torch.optim.Optimizer):
    """Around another optimizer, as published ones are: Optimizer's __init__ is never called."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.steps = 0

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        return self.optimizer.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> Any:
        return {"inner": self.optimizer.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Any) -> None:
        self.optimizer.load_state_dict(state["inner"])
        self.steps = state["steps"]


def stepped(module: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    module(torch.ones(2, 2)).square().mean().backward()
    optimizer.step()


def test_an_optimizer_around_another() -> None:
    module = torch.nn.Linear(2, 2)
    inner = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    wrapper = Wrapper(inner)
    handler = OptimizerStateHandler(wrapper)
    stepped(module, wrapper)
    handler.save()
    momentum = inner.state[module.weight]["momentum_buffer"].clone()
    stepped(module, wrapper)
    handler.restore()
    assert wrapper.steps == 1 and torch.equal(inner.state[module.weight]["momentum_buffer"], momentum)


def test_tensors_with_a_graph_are_kept_without() -> None:
    weight = torch.nn.Parameter(torch.ones(300, 300))
    tiny, large = weight[0, 0] * 2, weight * 3
    leaf = torch.ones(2, requires_grad=True)
    state = TorchState(loss=tiny, history={"losses": [large, tiny]}, sparse=large.to_sparse(), leaf=leaf)
    with torch.no_grad():
        for tensor in (weight, tiny, large, leaf):
            tensor.zero_()
    for _ in range(3):
        state.restore()
        assert state.loss.item() == 2 and (state.history["losses"][0] == 3).all()
        assert state.history["losses"][1] is state.loss and (state.sparse.to_dense() == 3).all()
        assert (state.leaf == 1).all() and state.leaf.requires_grad
        assert not any(t.requires_grad for t in (state.loss, state.history["losses"][0], state.sparse))
        state.save()


class Trainer:
    """Holds whatever it is given."""

    def __init__(self, **things: Any) -> None:
        self.__dict__.update(things)


def test_an_object_that_holds_the_model_holds_it_after_a_restore(only_rank: OnlyRank) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    trainer = Trainer(module=module, optimizers=[optimizer], steps=[1])
    state = TorchState(module, optimizer, trainer=trainer)
    trainer.steps.append(2)
    before = module.weight.detach().clone()
    stepped(module, optimizer)
    state.restore()
    assert state.trainer.module is module and state.trainer.optimizers[0] is optimizer and state.trainer.steps == [1]
    assert torch.equal(module.weight, before)
    # Also where it was read from a file, or came from another rank.
    only_rank.commits(state)
    other = torch.nn.Linear(2, 2)
    rebuilt = TorchState(other, torch.optim.SGD(other.parameters(), lr=0.1), trainer=Trainer())
    only_rank.goes_on(rebuilt)
    assert rebuilt.trainer.module is other and rebuilt.trainer.steps == [1] and torch.equal(other.weight, before)


class Warming(torch.optim.lr_scheduler.LRScheduler):
    """With another scheduler inside, as published ones have."""

    def __init__(self, optimizer: Any, then: Any) -> None:
        self.then = then
        super().__init__(optimizer)

    def get_lr(self) -> Any:
        return [0.5 for _ in self.optimizer.param_groups]

    def step(self, epoch: Any = None) -> None:
        if self.last_epoch < 1:
            super().step()
        else:
            self.last_epoch += 1
            self.then.step()


def schedulers() -> list[Any]:
    from torch.optim import lr_scheduler

    return [
        lambda optimizer: lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch),
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=20),
        lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 0.5),
        lambda optimizer: lr_scheduler.SequentialLR(
            optimizer, [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.5)], [2]
        ),
        lambda optimizer: Warming(optimizer, lr_scheduler.ExponentialLR(optimizer, 0.5)),
    ]


@pytest.mark.parametrize("make", schedulers())
def test_a_scheduler_goes_on_with_its_optimizer(make: Any) -> None:
    module = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    state = TorchState(module, optimizer, scheduler=scheduler)
    rates: list[list[float]] = []
    for _ in range(2):
        for _ in range(2):
            stepped(module, optimizer)
            scheduler.step()
        state.save()
        rates.clear()
        for again in range(3):
            state.restore()
            assert state.scheduler is scheduler and scheduler.optimizer is optimizer
            rates.append([])
            for _ in range(3):
                stepped(module, optimizer)
                scheduler.step()
                rates[again].append(optimizer.param_groups[0]["lr"])
        assert rates[0] == rates[1] == rates[2] and len(set(rates[0])) > 1
        state.restore()


def test_what_cannot_be_copied_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match="Attribute 'lock' of a TorchState .* deep copy.*lock.*Keep in the"):
        TorchState(epoch=0, lock=threading.Lock())
    state = TorchState(epoch=0, trainer=Trainer())
    state.trainer.last = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(InvalidArgumentError, match="'trainer' of a TorchState .* of this Trainer fails"):
        state.save()
    state.trainer.last = None
    state.save()


@pytest.mark.parametrize("part", [torch.nn.LazyLinear, torch.nn.LazyBatchNorm1d, torch.nn.LazyInstanceNorm1d])
def test_modules_that_have_no_shape_yet(part: Any) -> None:
    arguments = (3,) if part is torch.nn.LazyLinear else ()
    module = torch.nn.Sequential(part(*arguments, **({} if arguments else {"affine": True})))
    module[0].track_running_stats = True
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    state = TorchState(module, optimizer, epoch=0)
    for _ in range(3):
        state.save()
        state.restore()
    assert any(torch.nn.parameter.is_lazy(value) for value in module.state_dict().values())
    with pytest.raises(InvalidArgumentError, match=r"'0\..*' has no shape.*Run one through the model"):
        broadcast_parameters(module.state_dict(), 0)
    # It gets its shapes in a step that fails: there are no values to go back to.
    module(torch.randn(2, 3, 4) if part is torch.nn.LazyInstanceNorm1d else torch.randn(2, 3))
    first = copy.deepcopy(module.state_dict())
    state.restore()
    had = {"0.num_batches_tracked"}
    assert all(torch.equal(value, first[name]) for name, value in module.state_dict().items() if name not in had)
    first = copy.deepcopy(module.state_dict())
    state.save()
    for value in module.state_dict().values():
        value.zero_()
    state.restore()
    assert all(torch.equal(value, first[name]) for name, value in module.state_dict().items())


def test_what_a_sampler_of_the_users_is_given_is_its_own() -> None:
    class Noting(elastic_state.ElasticSampler):
        def __init__(self) -> None:
            super().__init__(range(10))
            self.notes: list[int] = []

        def state_dict(self) -> Any:
            return {**super().state_dict(), "notes": self.notes}

        def load_state_dict(self, state: Any) -> None:
            super().load_state_dict(state)
            self.notes = state["notes"]

    sampler = Noting()
    state = TorchState(sampler=sampler)
    for _ in range(2):
        sampler.notes.append(1)
        state.restore()
        assert sampler.notes == []
