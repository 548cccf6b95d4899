"""State and the retry loop, without ranks: the broadcast is a function that the test gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.engine import FakeJob
from fakes.ranks import session_of

from horovod._core.errors import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    InvalidArgumentError,
    MismatchError,
    NotInitializedError,
    PeerLostError,
    ResourceError,
)
from horovod._core.life import context, session
from horovod._core.training.elastic.loop import run_fn
from horovod._core.training.elastic.notification import HostUpdateResult, NotificationManager, notification_manager
from horovod._core.training.elastic.state import ObjectState


def same(value: Any) -> Any:
    return value


def state(**values: Any) -> Any:
    return ObjectState(same, lambda: 0, **values)


def test_changes_inside_a_value_are_rolled_back() -> None:
    one = state(epoch=1, losses=[1.0], table={"a": [1]})
    one.epoch = 2
    one.losses.append(2.0)
    one.table["a"].append(2)
    one.restore()
    assert (one.epoch, one.losses, one.table) == (1, [1.0], {"a": [1]})
    # What was saved can be restored again.
    one.losses.append(3.0)
    one.restore()
    assert one.losses == [1.0]
    one.epoch = 5
    one.save()
    one.epoch = 6
    one.restore()
    assert one.epoch == 5


def test_sync_takes_the_roots_values() -> None:
    one = ObjectState(lambda value: {"epoch": 9}, lambda: 1, epoch=1)
    one.sync()
    assert one.epoch == 9
    one.epoch = 10
    one.restore()
    assert one.epoch == 9


class OfOld(ObjectState):
    """Saves and restores by the documented dictionary, as classes of existing scripts do."""

    def save(self) -> None:
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)

    def sync(self) -> None:
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self.restore()


def test_a_derived_class_has_what_was_saved_as_a_dictionary() -> None:
    one = OfOld(same, lambda: 0, epoch=1, step=2)
    one.epoch = 3
    assert one._saved_state == {"epoch": 1, "step": 2}
    one.restore()
    assert one.epoch == 1
    one.epoch = 4
    one.commit()
    one.epoch = 5
    one.sync()
    assert one.epoch == 4
    # With the methods of its base, too.
    other = state(epoch=1)
    other._saved_state["step"] = 7
    other.restore()
    assert other.step == 7
    other.step = 8
    other.save()
    assert other._saved_state == {"epoch": 1, "step": 8}


def test_what_a_derived_class_takes_out_of_the_dictionary_is_its_own() -> None:
    numpy = pytest.importorskip("numpy")
    import horovod.numpy.elastic as _  # noqa: F401 - arrays are copied into memory that is used again

    one = state(weights=numpy.zeros(3))
    for number in range(1, 5):
        one.weights = one._saved_state["weights"]
        taken = one.weights.copy()
        one.save()
        one.weights[:] = number
        one.save()
        one.weights[:] = 99
        one.restore()
        assert (one.weights == number).all() and (taken == number - 1).all()


def test_a_state_without_values_needs_no_broadcast() -> None:
    ObjectState(lambda value: pytest.fail("broadcast"), lambda: 0).sync()


@pytest.mark.parametrize(
    ("kinds", "skip_sync"),
    [
        ([HostUpdateResult.removed], True),
        ([HostUpdateResult.added], False),
        ([HostUpdateResult.removed, HostUpdateResult.added], False),
        ([HostUpdateResult.added, HostUpdateResult.removed], False),
        ([HostUpdateResult.mixed], False),
    ],
)
def test_commit_raises_when_hosts_have_changed(kinds: list[int], skip_sync: bool) -> None:
    one = state(epoch=1)
    one.commit()
    for time, kind in enumerate(kinds, 1):
        one.on_hosts_updated(time, kind)
    one.epoch = 2
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        one.commit()
    assert caught.value.skip_sync is skip_sync
    one.restore()
    assert one.epoch == 2
    # Told once.
    one.commit()


def test_the_roots_news_reach_all() -> None:
    one = ObjectState(lambda value: (0.0, 5.0, HostUpdateResult.removed), lambda: 1, epoch=1)
    with pytest.raises(HostsUpdatedInterrupt):
        one.check_host_updates()


class Script:
    """A training function that fails as told, and notes what happens around it."""

    def __init__(self, *events: Any) -> None:
        self.events = list(events)
        self.log: list[str] = []
        script = self

        class Noting(ObjectState):
            def sync(self) -> None:
                script.log.append("sync")
                super().sync()

            def restore(self) -> None:
                script.log.append("restore")
                super().restore()

            def on_reset(self) -> None:
                script.log.append("on_reset")
                super().on_reset()

        self.state = Noting(same, lambda: 0, step=0)
        self.log.clear()

    def train(self, state: Any, word: str) -> str:
        self.log.append("train")
        event = self.events.pop(0)
        if isinstance(event, BaseException):
            raise event
        return f"{word} {event}"

    def run(self) -> Any:
        return run_fn(self.train, lambda: self.log.append("reset"))(self.state, "done:")


def test_a_failure_restores_resets_and_synchronizes() -> None:
    script = Script(HorovodInternalError("x"), PeerLostError("y"), 42)
    assert script.run() == "done: 42"
    again = ["train", "restore", "reset", "on_reset", "sync", "restore"]
    assert script.log == ["sync", "restore", *again, *again, "train"]


def test_what_is_under_way_has_failed_before_the_state_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(HorovodInternalError("x"), 42)
    job = FakeJob(2)
    monkeypatch.setattr(session, "current", session_of(job, 0, False))
    restore = script.state.restore
    left: list[set[int]] = []
    ranks: list[int] = []

    def look() -> None:
        left.append(set(job.left))
        ranks.append(context.rank())
        restore()

    monkeypatch.setattr(script.state, "restore", look)
    script.run()
    assert left[1:2] == [{0}], "the second restore is that after the failure"
    assert ranks[1] == 0


@pytest.mark.parametrize("skip", [True, False])
def test_new_hosts_reset_without_restore(skip: bool) -> None:
    script = Script(HostsUpdatedInterrupt(skip), 1)
    script.run()
    sync = [] if skip else ["sync", "restore"]
    assert script.log == ["sync", "restore", "train", "reset", "on_reset", *sync, "train"]


def test_a_state_that_cannot_be_saved_for_new_hosts_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(HostsUpdatedInterrupt(True), 1)

    save = script.state.save

    def fail() -> None:  # after the training, once
        if script.log[-1] == "train":
            raise HorovodInternalError("aborted on the GPU")
        save()

    monkeypatch.setattr(script.state, "save", fail)
    script.run()
    assert script.log[3:] == ["restore", "reset", "on_reset", "sync", "restore", "train"]


def test_after_a_failure_sync_is_not_skipped() -> None:
    script = Script(HostsUpdatedInterrupt(True), HorovodInternalError("x"), 1)
    script.run()
    assert script.log.count("sync") == 2


@pytest.mark.parametrize(
    "error",
    [
        MismatchError("shapes"),
        NotInitializedError("init"),
        ResourceError("descriptors"),
        ValueError("mine"),
        KeyboardInterrupt(),
    ],
)
def test_mistakes_are_not_retried(error: BaseException) -> None:
    script = Script(error, 1)
    with pytest.raises(type(error)):
        script.run()
    assert "reset" not in script.log


def test_reset_callbacks_and_old_news() -> None:
    one = state(epoch=1)
    called: list[int] = []
    one.register_reset_callbacks([lambda: called.append(1), lambda: called.append(2)])
    one.on_hosts_updated(1.0, HostUpdateResult.added)
    one.on_reset()
    assert called == [1, 2]
    one.commit()


def test_a_frameworks_own_error_in_sync_becomes_ours() -> None:
    script = Script(42)
    failures = [OSError("of a framework")]

    @contextlib.contextmanager
    def told() -> Iterator[None]:
        try:
            yield
            if failures:
                raise failures.pop()
        except OSError as error:
            raise HorovodInternalError(str(error)) from error

    assert run_fn(script.train, lambda: script.log.append("reset"), told)(script.state, "done:") == "done: 42"
    assert script.log == ["sync", "restore", "restore", "reset", "on_reset", "sync", "restore", "train"]


def test_a_state_of_the_programs_own_class_need_not_derive_from_ours() -> None:
    log: list[str] = []

    class Own:
        __slots__ = ()

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return lambda *args: log.append(name)

    events = [HorovodInternalError("x"), 42]

    def train(state: Own) -> Any:
        event = events.pop(0)
        if isinstance(event, BaseException):
            raise event
        return event

    assert run_fn(train, lambda: log.append("reset"))(Own()) == 42
    assert log == ["sync", "restore", "reset", "on_reset", "sync"]


@pytest.mark.parametrize("wrong", [3, [], ObjectState])
def test_what_is_no_state(wrong: Any) -> None:
    def train(state: Any) -> None:
        raise AssertionError("must not run")

    kind = type(wrong).__name__
    with pytest.raises(InvalidArgumentError, match=rf"first argument of train\(\) must be a state.* Received: {kind}"):
        run_fn(train, lambda: None)(wrong)


def test_listeners_hear_only_while_they_run() -> None:
    script = Script(1)
    heard: list[float] = []
    script.state.on_hosts_updated = lambda time, kind: heard.append(time)
    train = script.train

    def during(state: Any, word: str) -> str:
        notification_manager.handle_hosts_updated(1.0, HostUpdateResult.added)
        return train(state, word)

    run_fn(during, lambda: None)(script.state, "")
    notification_manager.handle_hosts_updated(2.0, HostUpdateResult.added)
    assert heard == [1.0]


def test_a_listener_registered_twice_is_called_once() -> None:
    manager, one = NotificationManager(), state(epoch=1)
    heard: list[float] = []
    one.on_hosts_updated = lambda time, kind: heard.append(time)
    manager.register_listener(one)
    manager.register_listener(one)
    manager.handle_hosts_updated(1.0, HostUpdateResult.added)
    manager.remove_listener(one)
    manager.remove_listener(one)
    manager.handle_hosts_updated(2.0, HostUpdateResult.added)
    assert heard == [1.0]
