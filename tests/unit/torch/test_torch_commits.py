"""Commits of PyTorch tensors: of the values of their moment, whoever changes them while the background copies."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from only_rank import OnlyRank

torch = pytest.importorskip("torch")

from horovod._core.errors import HorovodInternalError  # noqa: E402
from horovod._core.life import session  # noqa: E402
from horovod._core.life.planes import gpu_plane  # noqa: E402
from horovod._core.settings import Settings  # noqa: E402
from horovod._core.training.elastic import snapshot  # noqa: E402
from horovod._core.training.elastic.snapshot import Snapshot, settle  # noqa: E402
from horovod.torch.elastic import copies  # noqa: E402
from horovod.torch.elastic import state as elastic_state  # noqa: E402
from horovod.torch.elastic.state import ModelStateHandler, OptimizerStateHandler, TorchState  # noqa: E402

COPIES_LATER = pytest.mark.skipif(
    not hasattr(torch, "_lazy_clone"), reason="Not here: this PyTorch has no copy on write."
)


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The tensors that the background has copied something into."""
    found: list[Any] = []
    copy = torch.Tensor.copy_

    def noted(tensor: Any, *arguments: Any, **more: Any) -> Any:
        if threading.current_thread().name == "horovod-commit":
            found.append(tensor)
        return copy(tensor, *arguments, **more)

    monkeypatch.setattr(torch.Tensor, "copy_", noted)
    return found


class Gate:
    """In a snapshot: what was begun after it waits behind it, in the background."""

    def __init__(self) -> None:
        self.opened = threading.Event()


snapshot.register(Gate, lambda gate, old: (gate, gate.opened.wait))


class Held:
    """The background, which does its work when the test says so."""

    def __init__(self, copied: list[Any]) -> None:
        self._copied = copied
        self.hold()

    def hold(self) -> None:
        self._gate = Gate()
        Snapshot(self._gate)

    def let_go(self) -> int:
        """How many tensors it has copied then."""
        before = len(self._copied)
        self._gate.opened.set()
        settle()
        return len(self._copied) - before

    def do(self) -> int:
        """What there is to do, and no more."""
        done = self.let_go()
        self.hold()
        return done


@pytest.fixture
def held(copied: list[Any]) -> Iterator[Held]:
    background = Held(copied)
    yield background
    background.let_go()


def model() -> Any:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(200, 200), torch.nn.BatchNorm1d(200), torch.nn.Linear(200, 200))


def values(module: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


def trained(module: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    module(torch.randn(8, 200)).square().mean().backward()
    optimizer.step()


def zeroed(module: Any) -> None:
    with torch.no_grad():
        for value in module.state_dict().values():
            value.zero_()


def through_data(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data.mul_(3).clamp_(-1, 1)


def through_numpy(module: Any) -> None:
    for parameter in module.parameters():
        parameter.detach().numpy()[:] = 5


def replaced(module: Any) -> None:
    for parameter in module.parameters():
        parameter.data = torch.zeros_like(parameter)


def loaded(module: Any) -> None:
    module.load_state_dict(values(torch.nn.Sequential(*[type(part)(200, 200) for part in module[:1]], *module[1:])))


def by_a_step(module: Any) -> None:
    trained(module, torch.optim.Adam(module.parameters(), lr=0.1, foreach=True))


def by_a_fused_step(module: Any) -> None:
    trained(module, torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, fused=True))


@COPIES_LATER
@pytest.mark.parametrize("change", [zeroed, through_data, through_numpy, replaced, loaded, by_a_step, by_a_fused_step])
def test_a_model_that_is_changed_meanwhile(change: Callable[[Any], None], held: Held) -> None:
    module = model()
    handler = ModelStateHandler(module)
    held.do()
    for _ in range(3):
        before = values(module)
        handler.save()
        change(module)
        assert not same(values(module), before)
        assert held.do() == 2, "the two weights were not left to the background"
        handler.restore()
        assert same(values(module), before)
        through_data(module)


def test_a_buffer_that_has_a_graph() -> None:
    module = torch.nn.Linear(4, 4)
    module.register_buffer("average", torch.zeros(4))
    handler = ModelStateHandler(module)
    module.average = module(torch.ones(2, 4)).mean(0)
    before = values(module)
    handler.save()
    module.average = torch.zeros(4)
    handler.restore()
    assert same(values(module), before) and not handler._saved.value["average"].requires_grad


def test_a_model_whose_shapes_are_not_known_yet() -> None:
    module = torch.nn.Sequential(torch.nn.LazyLinear(3))
    handler = ModelStateHandler(module)
    handler.save()
    handler.restore()
    assert torch.nn.parameter.is_lazy(module[0].weight)
    module(torch.ones(2, 5))
    before = values(module)
    handler.save()
    through_data(module)
    handler.restore()
    assert same(values(module), before)


def test_the_dictionary_that_a_model_works_with_stays_its_own() -> None:
    class Shadow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__["shadow"] = {"weight": torch.nn.Parameter(torch.ones(3))}

        def state_dict(self, **_: Any) -> Any:
            return self.shadow

    module = Shadow()
    weight = module.shadow["weight"]
    ModelStateHandler(module).save()
    assert module.shadow["weight"] is weight


def test_the_versions_of_modules_are_kept() -> None:
    class Versioned(torch.nn.BatchNorm1d):
        _version = 7

        def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, *more: Any) -> None:
            told.append(metadata["version"])
            super()._load_from_state_dict(state, prefix, metadata, *more)

    told: list[int] = []
    ModelStateHandler(Versioned(3)).restore()
    assert told == [7]


@COPIES_LATER
def test_an_array_that_shares_memory_makes_it_a_copy_at_once(held: Held) -> None:
    weights = torch.zeros(300, 300)
    array = weights.numpy()
    taken = Snapshot({"weights": weights})
    array[:] = 1
    assert held.do() == 0 and not taken.value["weights"].any() and weights.all()
    shared = torch.zeros(300, 300).share_memory_()
    view = shared.view(-1)
    taken = Snapshot([shared, torch.from_numpy(array), torch.nn.Parameter(weights)])
    view.fill_(2)
    array[:] = 2
    assert held.do() == 0 and not taken.value[0].any() and (taken.value[1] == 1).all()
    assert isinstance(taken.value[2], torch.nn.Parameter)


def viewed(tensor: Any) -> Any:
    """NumPy's view where it may be written through, else another of the same kind."""
    numpy = pytest.importorskip("numpy")
    view = None if tensor.requires_grad else numpy.from_dlpack(tensor)
    if view is None or not view.flags.writeable:
        return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(tensor))
    return view


@COPIES_LATER
@pytest.mark.parametrize("kind", ["values", "parameter", "with a graph", "frozen, with a graph"])
def test_a_dlpack_view_makes_it_a_copy_at_once(kind: str, held: Held) -> None:
    weights = torch.zeros(300, 300) if kind == "values" else torch.nn.Parameter(torch.zeros(300, 300))
    loss = weights.sum() if "graph" in kind else None
    if kind.startswith("frozen"):
        weights.requires_grad_(False)
    view = viewed(weights)
    taken = Snapshot({"weights": copies.held(weights)})
    view[:] = 1
    assert held.do() == 0, "a write through the view would tear it"
    assert not taken.value["weights"].any() and (weights == 1).all()
    with torch.no_grad():
        weights.add_(1)
    assert (view == 2).all(), "the view was left behind on old memory"
    # And at once only as long as there is a view.
    del view
    taken = Snapshot({"weights": copies.held(weights)}, taken)
    assert held.do() == (0 if kind.startswith("frozen") else 1) and (taken.value["weights"] == 2).all()
    assert loss is None or loss.item() == 0


@COPIES_LATER
def test_a_training_loop_is_copied_in_the_background(held: Held) -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: None)
    node = module[0].weight.expand_as(module[0].weight).grad_fn.next_functions[0][0]
    loss = module(torch.randn(8, 200)).square().mean()
    loss.backward()
    optimizer.step()
    before = values(module)
    state = TorchState(module, optimizer)
    zeroed(module)
    assert held.do() == 6, "two weights and their two moments each"
    state.restore()
    assert same(values(module), before)
    assert loss.grad_fn is not None and node is not None


@COPIES_LATER
@pytest.mark.parametrize("missing", ["_tensor_use_count", "_gradient_edge", "_storage_use_count", "_lazy_clone"])
def test_where_torch_cannot_tell_it_is_a_copy_at_once(
    missing: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, missing, None)
    module = model()
    before = values(module)
    handler = ModelStateHandler(module)
    zeroed(module)
    assert held.do() == 0
    handler.restore()
    assert same(values(module), before)


@COPIES_LATER
def test_a_step_waits_for_the_copy_and_so_nothing_gets_new_memory(copied: list[Any]) -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    trained(module, optimizer)
    state = TorchState(module, optimizer)
    settle()
    copied.clear()
    large = 6  # two weights and their two moments each; what is small is copied at once
    places = [value.data_ptr() for value in optimizer.state[module[0].weight].values()]
    for step in range(1, 4):
        gate = Gate()
        Snapshot(gate)
        state.save()
        threading.Timer(0.2, gate.opened.set).start()  # the background is late
        optimizer.zero_grad()
        module(torch.randn(8, 200)).square().mean().backward()
        kept = []
        optimizer.register_step_pre_hook(lambda *_, kept=kept: kept.append(len(copied)))
        optimizer.step()
        assert kept[0] == large * step
    assert [value.data_ptr() for value in optimizer.state[module[0].weight].values()] == places
    settle()


def test_an_optimizer_is_restored_in_its_own_memory() -> None:
    module = model()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    trained(module, optimizer)
    handler = OptimizerStateHandler(optimizer)
    first = module[0].weight
    kept = {name: value.clone() for name, value in optimizer.state[first].items()}
    places = {name: value.data_ptr() for name, value in optimizer.state[first].items()}
    for _ in range(2):
        trained(module, optimizer)
        optimizer.param_groups[0]["lr"] = 7.0
        handler.restore()
        assert same(optimizer.state[first], kept) and optimizer.param_groups[0]["lr"] == 0.1
        assert {name: value.data_ptr() for name, value in optimizer.state[first].items()} == places
    # Nor is what was saved the optimizer's now, where that had none.
    handler.value = torch.optim.Adam(module.parameters(), lr=0.1)
    handler.restore()
    trained(module, handler.value)
    handler.value = optimizer
    handler.restore()
    assert same(optimizer.state[first], kept)


def test_commits_use_two_memories_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Snapshot] = []

    def noted(*arguments: Any) -> Snapshot:
        made.append(Snapshot(*arguments))
        return made[-1]

    monkeypatch.setattr(elastic_state, "Snapshot", noted)
    module = model()
    handler = ModelStateHandler(module)
    places = []
    for _ in range(6):
        through_data(module)
        handler.save()
        places.append(made[-1].value["0.weight"].data_ptr())
    assert len(set(places)) == 2 and len({parameter.data_ptr() for parameter in module.parameters()}) == 6


def test_tensors_of_every_kind() -> None:
    kinds = {
        "whole": torch.arange(40_000).reshape(200, 200),
        "turned": torch.randn(200, 300).t(),
        "part": torch.randn(400, 400)[::2, 5:205],
        "one for many": torch.ones(1, 200).expand(200, 200),
        "half": torch.randn(200, 200).to(torch.bfloat16),
        "yes or no": torch.rand(300, 300) > 0.5,
        "complex": torch.randn(200, 200, dtype=torch.complex64),
        "one": torch.tensor(3.5),
        "none": torch.empty(0, 5),
        "sparse": torch.eye(5).to_sparse(),
    }
    taken = Snapshot(kinds).value
    for name, tensor in kinds.items():
        dense, kept = (each.to_dense() if name == "sparse" else each for each in (tensor, taken[name]))
        assert kept.dtype is dense.dtype and torch.equal(kept, dense), name


def test_a_durable_commit_has_every_kind() -> None:
    from horovod._core.training.elastic import commit_file

    kinds = [torch.randn(3, 4).t(), torch.randn(200, 200).to(torch.bfloat16), torch.tensor(True), torch.empty(0, 5)]
    data = bytearray(b"".join(commit_file.written({"kinds": kinds, "sparse": torch.eye(5).to_sparse()}, None, None)))
    read = commit_file.read(data, None).content
    assert all(one.dtype is two.dtype and torch.equal(one, two) for one, two in zip(kinds, read["kinds"]))
    assert torch.equal(read["sparse"].to_dense(), torch.eye(5))


def test_a_state_goes_on_from_what_another_process_has_written(only_rank: OnlyRank) -> None:
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    state = TorchState(module, optimizer, epoch=1)
    trained(module, optimizer)
    state.epoch = 4
    only_rank.commits(state)
    before = values(module)
    other = model()
    through_data(other)
    rebuilt = TorchState(other, torch.optim.SGD(other.parameters(), lr=0.5, momentum=0.9), epoch=0)
    only_rank.goes_on(rebuilt)
    assert same(values(other), before) and rebuilt.epoch == 4
    assert rebuilt.optimizer.param_groups[0]["lr"] == 0.1
    momentum = rebuilt.optimizer.state[other[0].weight]["momentum_buffer"]
    assert torch.equal(momentum, optimizer.state[module[0].weight]["momentum_buffer"])


def test_a_state_of_attributes_alone_goes_on(only_rank: OnlyRank) -> None:
    only_rank.commits(TorchState(epoch=5))
    rebuilt = TorchState(epoch=0)
    only_rank.goes_on(rebuilt)
    assert rebuilt.epoch == 5


def test_a_handler_of_the_users_is_written_by_its_attributes(only_rank: OnlyRank) -> None:
    class Counter:
        count = 0

    class CounterHandler(elastic_state.StateHandler[Any]):
        def save(self) -> None:
            self.kept = [self.value.count]

        def restore(self) -> None:
            self.value.count = self.kept[0]

    registry = elastic_state.get_handler_registry()
    elastic_state.set_handler_registry([*registry, (Counter, CounterHandler)])
    try:
        counter, other = Counter(), Counter()
        state, rebuilt = TorchState(counter=counter), TorchState(counter=other)
    finally:
        elastic_state.set_handler_registry(registry)
    counter.count = 3
    only_rank.commits(state)
    counter.count = 4
    state.save()
    only_rank.goes_on(rebuilt)
    assert other.count == 3


class _Gpu:
    """What `await_collectives` asks: a device that may be waited for, and an engine that may fail meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waits: list[int] = []
        self.fails = False  # while the device is waited for
        self.failed = False
        self.engine = self.gpu = self
        self.rank, self.settings = 0, Settings()
        monkeypatch.setattr(session, "current", self)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", self._synchronize)

    def use(self, device: int, *libraries: Any) -> None:
        """The core is told of a device."""

    def _synchronize(self, device: int) -> None:
        self.waits.append(device)
        self.failed = self.fails

    def describe(self) -> str:
        return json.dumps({"failed": self.failed})


def test_what_was_aborted_on_the_gpu_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank dies while the device still works on what was done for the host: its results are anything."""
    gpu = _Gpu(monkeypatch)
    assert gpu_plane.use(cast("Any", gpu), 3)
    module = model()
    state = TorchState(model=module, step=1)
    state.save()
    good = values(module)
    assert gpu.waits == [3]
    zeroed(module)
    state.step = 2
    gpu.fails = True
    with pytest.raises(HorovodInternalError, match="was not saved"):
        state.save()
    state.restore()
    assert same(values(module), good)
    assert state.step == 1


def test_no_device_is_waited_for_where_the_core_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = _Gpu(monkeypatch)
    TorchState(model=model()).save()
    assert gpu.waits == []
