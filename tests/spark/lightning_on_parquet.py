"""Lightning's `TorchEstimator` on ranks of this machine, with no session of Spark. See `torch_on_parquet`."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

import cloudpickle
import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch_on_parquet import Alone, Here, Line, Runs, horovod_compression, store  # noqa: F401 - store is a fixture
from torch_on_parquet import estimator as of_torch

from horovod.spark.lightning import TorchEstimator

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks do not have this module
cloudpickle.register_pickle_by_value(sys.modules["torch_on_parquet"])


class LineModule(pl.LightningModule):
    """Learns y of a and b, by SGD with momentum; reports "loss" and "val"."""

    def __init__(self, weighted: bool = False, manual: bool = False) -> None:
        super().__init__()
        self.line = Line()
        self._weighted = weighted
        self.automatic_optimization = not manual

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return self.line(a, b)

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> Any:
        errors = (self(batch["a"], batch["b"]) - batch["y"]) ** 2
        loss = (errors * batch["w"]).mean() if self._weighted else errors.mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(errors))
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], number: int) -> None:
        loss = ((self(batch["a"], batch["b"]) - batch["y"]) ** 2).mean()
        self.log("val", loss, sync_dist=True, batch_size=len(batch["y"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.02, momentum=0.9)


def estimator(at: Any, **further: Any) -> TorchEstimator:
    given = {
        "backend": Alone(),
        "feature_cols": ["a", "b"],
        "label_cols": ["y"],
        "store": at,
        "batch_size": 10,
        "random_seed": 4,
        "verbose": 0,
    }
    return TorchEstimator(**{"model": LineModule(), **given, **further})


def plain(at: Any, **further: Any) -> TorchEstimator:
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return estimator(at, **{"model": model, "optimizer": optimizer, "loss": torch.nn.MSELoss(), **further})


def losses(model: Any, name: str = "loss") -> list[float]:
    return [report[name] for report in model.getHistory()]


@pytest.mark.parametrize("manual", [False, True])
def test_a_module_learns_on_two_ranks(store: Any, manual: bool) -> None:  # noqa: F811
    given = estimator(store, backend=Here(), model=LineModule(manual=manual), epochs=6, validation=0.1)
    made = given.fit_on_parquet()
    assert losses(made)[-1] < 0.01 < losses(made)[0] and losses(made, "val")[-1] < 0.01
    assert [report["epoch"] for report in made.getHistory()] == list(range(6))
    weight = made.getModel().line.of_a.weight.detach().numpy()
    assert weight == pytest.approx(np.array([[1.0, 2.0, 3.0]]), abs=0.1)
    assert made._value("_metadata")["outputs"] == [[]] and made.getOptimizer() is None
    assert torch.equal(given.getModel().line.of_a.weight, Line().of_a.weight)  # the estimator's own is as it was


@pytest.mark.parametrize("ranks", [1, 2])
def test_another_model_learns_as_with_the_estimator_of_torch(store: Any, ranks: int) -> None:  # noqa: F811
    """Equal losses, epoch by epoch: the same rows in the same order, gradients averaged, the rate scaled."""
    given = {
        "backend": Here(2) if ranks == 2 else Alone(),
        "epochs": 3,
        "validation": 0.1,
        "metrics": [lambda found, y: (found - y).abs().mean()],
        "sample_weight_col": "w",
    }
    made, other = plain(store, **given).fit_on_parquet(), of_torch(store, **given).fit_on_parquet()
    for name, part in (("train", "train"), ("val", "validation")):
        theirs = [report[part] for report in other.getHistory()]
        assert losses(made, f"{name}_loss") == pytest.approx([each["loss"] for each in theirs], rel=1e-4)
        metrics = [each["all_metrics"][0][0] for each in theirs]
        assert losses(made, f"{name}_metric_0_y") == pytest.approx(metrics, rel=1e-4)
    assert made.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05)
    mine = {id(parameter) for parameter in made.getModel().parameters()}
    assert {id(parameter) for parameter in made.getOptimizer().param_groups[0]["params"]} == mine


@pytest.mark.parametrize("make", [estimator, plain])
def test_a_run_goes_on_from_its_checkpoint(store: Any, make: Any) -> None:  # noqa: F811
    name = "loss" if make is estimator else "train_loss"
    whole = make(store, epochs=4, run_id="whole").fit_on_parquet()
    first = make(store, epochs=2, run_id="parts").fit_on_parquet()
    rest = make(store, epochs=4, run_id="parts").fit_on_parquet()
    assert losses(rest, name)[:2] == losses(first, name) and len(losses(rest, name)) == 4
    assert losses(rest, name) == pytest.approx(losses(whole, name), rel=1e-4)


def test_a_checkpoint_that_would_run_code_is_refused(store: Any, tmp_path: Any) -> None:  # noqa: F811
    kept = io.BytesIO()
    torch.save({"state_dict": Runs(tmp_path / "made")}, kept)
    store.write(store.get_checkpoint_path("bad"), kept.getvalue())
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        estimator(store, run_id="bad").fit_on_parquet()
    assert not (tmp_path / "made").exists()


def test_a_finished_run_gives_the_rate_back_unscaled_on_fewer_ranks(store: Any) -> None:  # noqa: F811
    plain(store, backend=Here(2), epochs=1, run_id="finished").fit_on_parquet()
    again = plain(store, epochs=1, run_id="finished").fit_on_parquet()
    assert again.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05)


class Grows(LineModule):
    """Makes a layer on the ranks, leaves one out of every pass, and logs at the end of an epoch."""

    def configure_model(self) -> None:
        if not hasattr(self, "more"):
            self.more, self.unused = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return self.line(a, b) + 0 * self.more(b.reshape(-1, 1))[:, 0]

    def on_train_epoch_end(self) -> None:
        self.log("epochs", float(self.current_epoch))


def test_hooks_checkpoints_and_layers_of_the_module(store: Any, tmp_path: Any) -> None:  # noqa: F811
    made = estimator(
        store,
        backend=Here(2),
        model=Grows(),
        epochs=3,
        validation=0.1,
        callbacks=[pl.callbacks.ModelCheckpoint(str(tmp_path / "own"), filename="last")],
        trainer_args={"check_val_every_n_epoch": 2, "strategy": {"find_unused_parameters": True}},
    ).fit_on_parquet()
    assert losses(made, "epochs") == [0.0, 1.0, 2.0]
    assert ["val" in report for report in made.getHistory()] == [False, True, False]
    assert "more.weight" in made.getModel().state_dict() and (tmp_path / "own" / "last.ckpt").exists()


class Seen(pl.Callback):
    """Says on rank 0 that Lightning has called it."""

    def on_train_end(self, trainer: Any, module: Any) -> None:
        module.line.of_b.weight.data.fill_(41.0)


def test_what_the_trainer_is_given(store: Any) -> None:  # noqa: F811
    made = estimator(
        store,
        epochs=2,
        loader_num_epochs=2,
        callbacks=[Seen()],
        trainer_args={"max_epochs": 1, "gradient_clip_val": 0.5, "accelerator": "cpu", "enable_checkpointing": False},
        train_async_data_loader_queue_size=3,
        val_async_data_loader_queue_size=1,
        debug_data_loader=True,
        num_gpus=0,
        gradient_compression=horovod_compression(),
        transformation_fn=lambda frame: frame.drop(columns=["w"]).assign(b=frame.b * 2),
        transformation_edit_fields=[("b", np.float32, (1,), False)],
        transformation_removed_fields=["w"],
        feature_cols=None,
        train_steps_per_epoch=2,
    )
    made.setModel(AllColumns())
    found = made.fit_on_parquet()
    assert found.getFeatureColumns() == ["a", "b", "z", "id"] and len(found.getHistory()) == 1
    assert float(found.getModel().line.of_b.weight) == 41.0


class AllColumns(LineModule):
    """What comes after the transformation."""

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> Any:
        assert set(batch) == {"a", "b", "z", "id", "y"} and batch["b"].shape[1:] == (1,)
        return super().training_step(batch, number)


def test_rows_without_weight_teach_nothing(store: Any) -> None:  # noqa: F811
    def lies(frame: Any) -> Any:
        return frame.assign(y=frame.y.where(frame.w > 0, 100.0))

    given = {"epochs": 6, "sample_weight_col": "w", "transformation_fn": lies}
    assert losses(estimator(store, model=LineModule(weighted=True), **given).fit_on_parquet())[-1] < 0.05
    assert losses(plain(store, **given).fit_on_parquet(), "train_loss")[-1] < 0.05


def test_a_loss_that_is_not_finite(store: Any) -> None:  # noqa: F811
    def divides(frame: Any) -> Any:
        return frame.assign(y=float("nan"))

    estimator(store, transformation_fn=divides).fit_on_parquet()
    with pytest.raises(ValueError, match="terminate_on_nan: the loss of rank 0 in batch 0 of epoch 0 is nan"):
        estimator(store, transformation_fn=divides, terminate_on_nan=True).fit_on_parquet()


@pytest.mark.parametrize(
    "further, message",
    [
        ({"loss": torch.nn.MSELoss(), "metrics": [len]}, "loss and metrics: a LightningModule has its own"),
        ({"model": Line()}, "optimizer must be an instance"),
        ({"model": 3}, "model must be a torch.nn.Module"),
        ({"train_minibatch_fn": len}, "Lightning's way is a LightningModule with automatic_optimization"),
        ({"trainer_args": {"devices": 2}}, "trainer_args has devices: the ranks are those of the job"),
        ({"trainer_args": {"strategy": "ddp"}}, "strategy must be a dictionary of options"),
        ({"transformation_removed_fields": ["a", "w"]}, "transformation_removed_fields has a, which the model takes"),
        (
            {"label_cols": ["a"], "input_shapes": [[-1, 1, 3], [-1]], "label_shapes": [[-1, 3]]},
            "a is a feature and a label, with two shapes",
        ),
        ({"epochs": 3, "loader_num_epochs": 2}, "loader_num_epochs is 2, so there is no data for 3 epochs"),
        ({"gradient_compression": "fp16"}, "gradient_compression must be hvd.Compression.none, fp16 or bf16"),
        ({"input_shapes": [[-1, 3]]}, "input_shapes has 1 entries for 2 columns"),
        ({"label_cols": ["nothing"]}, "There is no column 'nothing'"),
    ],
)
def test_what_does_not_go_together_is_refused(store: Any, further: dict[str, Any], message: str) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=message):
        estimator(store, **further).fit_on_parquet()
