"""The arithmetic of the Keras callbacks, with made-up epochs, batches and logs; no rank, no training."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras", reason="Keras is not installed.")

from horovod._core.errors import MismatchError  # noqa: E402
from horovod._core.life import context  # noqa: E402
from horovod.keras import callbacks, elastic  # noqa: E402

# Keras hands its own variables to NumPy in a way that NumPy is giving up.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STEPS = 4


def attached(callback: Any, rate: float = 1.0, steps: Any = STEPS, **options: Any) -> Any:
    callback.set_model(types.SimpleNamespace(optimizer=keras.optimizers.SGD(rate, **options)))
    callback.set_params({"steps": steps})
    callback.on_train_begin()
    return callback


def rate_of(callback: Any) -> float:
    return float(callback.model.optimizer.learning_rate)


def rates(callback: Any, epochs: int) -> tuple[list[float], list[float]]:
    """The rates before every batch, and those in the epochs' logs."""
    before, logged = [], []
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        for batch in range(STEPS):
            callback.on_train_batch_begin(batch)
            before.append(rate_of(callback))
        logs: dict[str, float] = {}
        callback.on_epoch_end(epoch, logs)
        logged.append(logs["lr"])
    return before, logged


def test_number_is_raised_to_the_epochs_since_the_start() -> None:
    callback = attached(callbacks.LearningRateScheduleCallback(0.5, 0.5, start_epoch=1, end_epoch=3))
    before, logged = rates(callback, 4)
    assert before == pytest.approx([1.0] * 4 + [0.5] * 4 + [0.25] * 4 + [0.25] * 4)
    assert logged == pytest.approx([1.0, 0.5, 0.25, 0.25])


def test_function_gets_the_whole_epoch_of_a_staircase() -> None:
    seen: list[float] = []
    callback = attached(callbacks.LearningRateScheduleCallback(1.0, lambda epoch: seen.append(epoch) or 1.0))
    rates(callback, 3)
    assert seen == [0, 1, 2]


def test_function_gets_the_fraction_without_staircase() -> None:
    seen: list[float] = []
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: seen.append(epoch) or 1.0, staircase=False)
    rates(attached(callback), 2)
    assert seen == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]


def test_steps_per_epoch_given_counts() -> None:
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 1 + epoch, staircase=False, steps_per_epoch=8)
    before, _ = rates(attached(callback, steps=None), 1)
    assert before == pytest.approx([1, 1.125, 1.25, 1.375])


def test_unknown_steps_are_an_error() -> None:
    with pytest.raises(ValueError, match="steps_per_epoch"):
        attached(callbacks.LearningRateScheduleCallback(1.0, 0.5, staircase=False), steps=None)
    attached(callbacks.LearningRateScheduleCallback(1.0, 0.5), steps=None)  # a staircase needs none


def test_initial_rate_is_required() -> None:
    with pytest.raises(ValueError, match="initial_lr"):
        callbacks.LearningRateScheduleCallback(None, 0.5)
    with pytest.raises(ValueError, match="initial_lr"):
        callbacks.LearningRateWarmupCallback(None)


def test_warm_up_is_linear_from_one_rank_to_all(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(context, "size", lambda: 4)
    monkeypatch.setattr(context, "rank", lambda: 0)
    callback = attached(callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1))
    before, logged = rates(callback, 3)
    assert before == pytest.approx([0.2 + 0.6 * done / 8 for done in range(1, 9)] + [0.8] * 4)
    assert logged == pytest.approx([0.5, 0.8, 0.8])
    assert capsys.readouterr().out.count("finished gradual learning rate warmup to 0.8") == 1


def test_warm_up_is_reported_by_one_rank(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(context, "size", lambda: 4)
    monkeypatch.setattr(context, "rank", lambda: 3)
    rates(attached(callbacks.LearningRateWarmupCallback(0.8, warmup_epochs=2, verbose=1)), 3)
    assert not capsys.readouterr().out


def test_warm_up_ends_with_half_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "size", lambda: 2)
    before, logged = rates(attached(callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=0.5)), 2)
    assert before == pytest.approx([0.75, 1, 1, 1, 1, 1, 1, 1]) and logged == pytest.approx([1, 1])


def test_warm_up_needs_a_length() -> None:
    with pytest.raises(ValueError, match="warmup_epochs"):
        callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=0)


def test_a_variable_counts_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = keras.optimizers.SGD(0.5)
    callback = callbacks.LearningRateScheduleCallback(optimizer.learning_rate, lambda epoch: 0.5)
    callback.set_model(types.SimpleNamespace(optimizer=optimizer))
    for epoch in range(3):
        callback.on_epoch_begin(epoch)
        assert rate_of(callback) == 0.25


@pytest.mark.parametrize("rate", [None, "fast", keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)])
def test_a_rate_is_a_number(rate: Any) -> None:
    with pytest.raises(ValueError, match="initial_lr must be a number"):
        callbacks.LearningRateScheduleCallback(rate, 1.0)


@pytest.mark.parametrize(("correction", "factor"), [(True, 0.5), (False, 1.0)])
def test_momentum_correction_scales_what_has_been_gathered(correction: bool, factor: float) -> None:
    callback = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 0.5, momentum_correction=correction)
    attached(callback, momentum=0.9)
    optimizer = callback.model.optimizer
    optimizer.build([keras.Variable([1.0, 2.0])])
    optimizer.momentums[0].assign([2.0, 4.0])
    callback.on_epoch_begin(0)
    assert keras.ops.convert_to_numpy(optimizer.momentums[0]).tolist() == [2 * factor, 4 * factor]
    callback.on_epoch_begin(1)  # the same rate: nothing changes
    assert keras.ops.convert_to_numpy(optimizer.momentums[0]).tolist() == [2 * factor, 4 * factor]


def test_metrics_become_averages_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"accuracy": 0.75, "loss": 1.5}
    monkeypatch.setattr(callbacks, "allgather_object", lambda own, name: [own, others])
    logs: dict[str, Any] = {"loss": 0.5, "accuracy": np.float32(0.25), "table": [1, 2], "note": "1.0"}
    callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs == {"loss": 1.0, "accuracy": 0.5, "table": [1, 2], "note": "1.0"}


@pytest.mark.parametrize("logs", [{"loss": 0.5, "val_loss": 1.0}, {}, None])
def test_different_metrics_are_refused(monkeypatch: pytest.MonkeyPatch, logs: Any) -> None:
    monkeypatch.setattr(callbacks, "allgather_object", lambda own, name: [{"loss": 0.5}, own])
    with pytest.raises(MismatchError, match="rank 0 has .'loss'., rank 1 has"):
        callbacks.MetricAverageCallback().on_epoch_end(0, logs)


class Counts:
    """A state that notes what it held when it was committed."""

    def __init__(self, epoch: int = 0, batch: int = 0) -> None:
        self.epoch, self.batch = epoch, batch
        self.commits: list[tuple[int, int]] = []

    def commit(self) -> None:
        self.commits.append((self.epoch, self.batch))


def run_epochs(
    state: Counts, first: int, last: int, steps: int, batches_per_commit: int = 2, commit_at: int = 2, at_once: int = 1
) -> None:
    """Keras' calls, with the commit's callback at this place of three and so many batches in one execution."""
    listed: list[Any] = [elastic.UpdateBatchStateCallback(state), elastic.UpdateEpochStateCallback(state)]
    listed.insert(commit_at, elastic.CommitStateCallback(state, batches_per_commit))
    together = keras.callbacks.CallbackList(listed, epochs=last, steps=steps)
    together.on_train_begin()
    for epoch in range(first, last):
        together.on_epoch_begin(epoch)
        for batch in range(0, steps, at_once):
            together.on_train_batch_begin(batch)
            together.on_train_batch_end(min(batch + at_once, steps) - 1)
        together.on_epoch_end(epoch)
    together.on_train_end()


ANYWHERE = pytest.mark.parametrize("commit_at", [0, 1, 2])


@ANYWHERE
def test_commits_agree_with_what_is_done(commit_at: int) -> None:
    state = Counts()
    run_epochs(state, 0, 2, steps=4, commit_at=commit_at)
    # The last batch's commit is that of the epoch, which is counted then.
    assert state.commits == [(0, 2), (1, 0), (1, 2), (2, 0)]


@ANYWHERE
def test_every_epoch_is_committed(commit_at: int) -> None:
    state = Counts()
    run_epochs(state, 0, 3, steps=4, batches_per_commit=100, commit_at=commit_at)
    assert state.commits == [(1, 0), (2, 0), (3, 0)]


def test_commits_fall_where_the_batches_do() -> None:
    state = Counts()
    run_epochs(state, 0, 2, steps=3)
    assert state.commits == [(0, 2), (1, 0), (1, 1), (2, 0)]


def test_batches_of_one_execution_are_counted() -> None:
    state = Counts()
    run_epochs(state, 0, 1, steps=10, batches_per_commit=4, at_once=3)
    assert state.commits == [(0, 6), (0, 9), (1, 0)]


@pytest.mark.parametrize(("first", "last"), [(0, 2), (3, 5)])
def test_resumed_counts_go_on(first: int, last: int) -> None:
    # Both ways of a script: epochs=total - state.epoch, and initial_epoch=state.epoch.
    state = Counts(epoch=3, batch=2)
    run_epochs(state, first, last, steps=2, batches_per_commit=1)
    assert state.commits == [(3, 3), (4, 0), (4, 1), (5, 0)]


def test_commit_needs_a_number() -> None:
    with pytest.raises(ValueError, match="batches_per_commit"):
        elastic.CommitStateCallback(Counts(), 0)


def test_one_variable_may_be_local() -> None:
    variable = keras.Variable([1.0, 2.0])
    for given, expected in ((variable, 1), ([variable], 1), ((variable,), 1), ([], 0), (None, 0)):
        callback = callbacks.BroadcastGlobalVariablesCallback(0, local_variables=given)
        assert [id(found) for found in callback._local] == [id(variable)] * expected
    with pytest.raises(ValueError, match="must be a variable. Received: float"):
        callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[1.0])


def test_best_checkpoint_gets_its_file_later(tmp_path: Any) -> None:
    best = callbacks.BestModelCheckpoint(monitor="loss")
    assert best.save_best_only and not best.save_weights_only
    with pytest.raises(ValueError, match="filepath"):
        best.on_train_begin()
    best.filepath = str(tmp_path / "best.keras")
    best.on_train_begin()
