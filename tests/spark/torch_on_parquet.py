"""`TorchEstimator.fit_on_parquet` on ranks of this machine, with no session of Spark: `make test-spark`.

Data that others have written, options of the training, resuming. Needs pyspark's classes, but no Java.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import horovod
from horovod.spark.common.backend import Backend
from horovod.spark.common.datamodule import DataModule, NVTabularDataModule
from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel
from horovod.spark.torch.datamodule import PetastormDataModule

cloudpickle.register_pickle_by_value(__import__(__name__))  # the ranks do not have this module
ROWS = 203


class Here(Backend):
    """Ranks of this machine."""

    def __init__(self, ranks: int = 2) -> None:
        self._ranks = ranks

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        return horovod.run(fn, args, dict(kwargs or {}), num_proc=self._ranks)

    def num_processes(self) -> int:
        return self._ranks


class Alone(Backend):
    """One rank: this process."""

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> list[Any]:
        return [fn(*cloudpickle.loads(cloudpickle.dumps(args)), **(kwargs or {}))]

    def num_processes(self) -> int:
        return 1


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """Three columns and what a line through them gives: y = a . (1, 2, 3) + b, and z = -y."""
    rng = np.random.default_rng(1)
    store = Store.create(str(tmp_path))
    for path, rows in ((store.get_train_data_path(), ROWS), (store.get_val_data_path(), 41)):
        a, b = rng.standard_normal((rows, 3)), rng.standard_normal(rows)
        y = a @ [1.0, 2.0, 3.0] + b
        marks = np.arange(rows) % 2
        table = pa.table({"a": list(a), "b": b, "y": y, "z": -y, "w": marks * 2.0, "id": np.arange(rows)})
        os.makedirs(path)
        for number, part in enumerate((table.slice(0, rows // 3), table.slice(rows // 3))):
            pq.write_table(part, f"{path}/{number}.parquet", row_group_size=17)
    return store


class Line(torch.nn.Module):
    """One output for each label."""

    def __init__(self, labels: int = 1) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.of_a = torch.nn.Linear(3, labels)
        self.of_b = torch.nn.Linear(1, labels, bias=False)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        found = self.of_a(a) + self.of_b(b.reshape(-1, 1))
        return found[:, 0] if found.shape[1] == 1 else tuple(found.unbind(1))


def estimator(at: Any, **further: Any) -> TorchEstimator:
    model = further.pop("model", None) or Line()
    given = {
        "backend": Alone(),
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.05),
        "loss": torch.nn.MSELoss(),
        "feature_cols": ["a", "b"],
        "label_cols": ["y"],
        "store": at,
        "batch_size": 10,
        "random_seed": 4,
        "verbose": 0,
    }
    return TorchEstimator(**{**given, **further})


def losses(model: TorchModel) -> list[float]:
    return [report["train"]["loss"] for report in model.getHistory()]


def test_a_line_is_learnt_and_the_rate_comes_back_unscaled(store: Any) -> None:
    plain = estimator(
        store, backend=Here(), epochs=6, validation=0.1, metrics=[lambda found, y: (found - y).abs().mean()]
    )
    made = plain.fit_on_parquet()
    assert losses(made)[-1] < 0.01 < losses(made)[0]
    assert made.getHistory()[-1]["validation"]["all_metrics"][0][0] < 0.1
    assert made.getModel().of_a.weight.detach().numpy() == pytest.approx(np.array([[1.0, 2.0, 3.0]]), abs=0.1)
    assert made.getOptimizer().param_groups[0]["lr"] == pytest.approx(0.05)
    mine = {id(parameter) for parameter in made.getModel().parameters()}
    assert {id(parameter) for parameter in made.getOptimizer().param_groups[0]["params"]} == mine
    assert torch.equal(plain.getModel().of_a.weight, Line().of_a.weight)  # the estimator's own is as it was


def test_a_run_goes_on_from_its_checkpoint(store: Any) -> None:
    whole = estimator(store, epochs=4, run_id="whole", **momentum())
    first = estimator(store, backend=Here(), epochs=2, run_id="parts", **momentum()).fit_on_parquet()
    rest = estimator(store, epochs=4, run_id="parts", **momentum()).fit_on_parquet()
    assert len(losses(first)) == 2 and losses(rest)[:2] == losses(first) and len(losses(rest)) == 4
    estimator(store, epochs=2, run_id="alone", **momentum()).fit_on_parquet()
    alone = estimator(store, epochs=4, run_id="alone", **momentum()).fit_on_parquet()
    assert losses(alone) == pytest.approx(losses(whole.fit_on_parquet()), rel=1e-4)
    assert (Path(store.get_logs_path("parts")) / "history.json").exists()


class Runs:
    """A pickle that makes a folder where it is read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._folder),)


def test_a_checkpoint_that_would_run_code_is_refused(store: Any, tmp_path: Path) -> None:
    for number, save in enumerate((torch.save, pickle.dump)):
        kept = io.BytesIO()
        save({"model": Runs(tmp_path / "made"), "history": [], "outputs": []}, kept)
        store.write(store.get_checkpoint_path(f"bad{number}"), kept.getvalue())
        with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
            estimator(store, run_id=f"bad{number}").fit_on_parquet()
    assert not (tmp_path / "made").exists()


def momentum() -> dict[str, Any]:
    model = Line()
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)}


def test_a_rank_that_is_killed_and_the_fit_that_goes_on(store: Any) -> None:
    def dies_in_epoch_2(frame: Any) -> Any:
        if os.path.exists(f"{store.get_run_path('killed')}/checkpoint"):
            checkpoint = torch.load(store.get_checkpoint_path("killed"))
            if len(checkpoint["history"]) == 2:
                os.kill(os.getpid(), signal.SIGKILL)
        return frame

    with pytest.raises(RuntimeError, match=r"rank \d .* signal 9"):
        estimator(store, backend=Here(), epochs=5, run_id="killed", transformation_fn=dies_in_epoch_2).fit_on_parquet()
    model = estimator(store, epochs=5, run_id="killed").fit_on_parquet()
    assert [report["epoch"] for report in model.getHistory()] == list(range(5)) and losses(model)[-1] < 0.1


def test_several_outputs_with_weights_of_losses(store: Any) -> None:
    made = estimator(
        store,
        model=Line(2),
        epochs=8,
        label_cols=["y", "z"],
        loss=None,
        loss_constructors=[torch.nn.MSELoss, torch.nn.MSELoss],
        loss_weights=[1.0, 0.5],
        metrics=[[lambda found, y: (found - y).abs().mean(), lambda found, z: (found - z).abs().mean()]],
        gradient_compression=horovod_compression(),
        backward_passes_per_step=3,
        inmemory_cache_all=True,
    ).fit_on_parquet()
    assert made.getModel().of_b.weight.detach().numpy().ravel() == pytest.approx([1.0, -1.0], abs=0.1)
    assert len(made.getHistory()[-1]["train"]["all_metrics"][0]) == 2 and made._value("_metadata")["outputs"] == [
        [],
        [],
    ]


def horovod_compression() -> Any:
    import horovod.torch as hvd

    return hvd.Compression.fp16


def test_rows_without_weight_teach_nothing(store: Any) -> None:
    """Rows with an even id have weight 0; what they say is made wrong."""

    def lies(frame: Any) -> Any:
        return frame.assign(y=frame.y.where(frame.w > 0, 100.0))

    for loss in (torch.nn.MSELoss(), torch.nn.functional.mse_loss, lambda found, y: (found - y) ** 2):
        made = estimator(store, epochs=8, loss=loss, sample_weight_col="w", transformation_fn=lies).fit_on_parquet()
        assert losses(made)[-1] < 0.05
    with pytest.raises(ValueError, match="sample_weight_col: the loss .* returns one number"):
        estimator(store, loss=lambda found, y: ((found - y) ** 2).mean(), sample_weight_col="w").fit_on_parquet()


def test_shapes_steps_and_a_minibatch_function(store: Any) -> None:
    seen = []

    def minibatch(model, optimizer, transform_outputs, loss_fn, inputs, labels, sample_weights):  # type: ignore
        assert inputs[0].shape[1:] == (1, 3) and labels[0].shape[1:] == (1,) and sample_weights is None
        seen.append(1)
        optimizer.zero_grad()
        outputs = transform_outputs(model(inputs[0][:, 0], inputs[1]), labels)
        loss = loss_fn([outputs[0].reshape(-1, 1)], labels, sample_weights)
        loss.backward()
        optimizer.step()
        if len(seen) == 10:
            print("ten batches")
        return outputs, loss

    made = estimator(
        store, epochs=2, train_minibatch_fn=minibatch, input_shapes=[[-1, 1, 3], [-1]], label_shapes=[[-1, 1]],
        train_steps_per_epoch=5, reader_pool_type="process",
    ).fit_on_parquet()  # fmt: skip
    assert len(made.getHistory()) == 2 and losses(made)[1] < losses(made)[0]


class Own(DataModule):
    """The user's own batches."""

    short_name = "own"

    def train_data(self) -> list[Any]:
        return [{"a": np.ones((4, 3)), "b": np.ones(4), "y": np.full(4, 7.0)}] * 3


def test_data_modules(store: Any) -> None:
    assert len(losses(estimator(store, data_module=Own).fit_on_parquet())) == 1
    assert len(losses(estimator(store, data_module=PetastormDataModule).fit_on_parquet())) == 1
    with pytest.raises(ValueError, match="NVTabular is no longer maintained"):
        estimator(store, data_module=NVTabularDataModule).fit_on_parquet()


@pytest.mark.parametrize(
    "further, message",
    [
        ({"num_proc": 2}, "num_proc and backend are both given"),
        ({"loss_constructors": [torch.nn.MSELoss]}, "loss and loss_constructors are both given"),
        ({"loss": None}, "loss is missing"),
        ({"optimizer": torch.optim.SGD}, "optimizer must be an instance"),
        ({"optimizer": torch.optim.SGD([torch.ones(3)], lr=1.0)}, "made over other parameters"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights has 2 entries for 1 columns"),
        ({"input_shapes": [[-1, 3]]}, "input_shapes has 1 entries for 2 columns"),
        ({"label_cols": ["nothing"]}, "There is no column 'nothing'"),
        ({"label_cols": None}, "label_cols is missing"),
        ({"store": None}, "store must be a store"),
        ({"store": Store.create("memory://x")}, "lives in one process"),
        ({"feature_cols": ["a", "b", "y"], "loss": [1, 2]}, "loss has 2 entries for 1 labels"),
    ],
)
def test_what_does_not_go_together_is_refused(store: Any, further: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        estimator(store, **further).fit_on_parquet()


def test_parameters_as_spark_has_them() -> None:
    made = TorchEstimator(epochs=3)
    assert made.setEpochs(4) is made and made.getEpochs() == 4 and made.getBatchSize() == 32
    assert made.setTrainReaderNumWorker(5).getTrainReaderNumWorkers() == 5
    assert made.copy({made.epochs: 9}).getEpochs() == 9 and made.getEpochs() == 4
    with pytest.raises(TypeError, match="no parameter epoch"):
        TorchEstimator(epoch=3)
    with pytest.raises(ValueError, match="backward_passes_per_step must be a whole number, 1 or more"):
        TorchEstimator(backward_passes_per_step=0)
    model = TorchModel(label_columns=["y"])
    assert model.getOutputCols() == ["y__output"] and model.setOutputCols(["p"]).getOutputCols() == ["p"]
    assert model.setLabelColoumns(["z"]).getLabelColumns() == ["z"]
    assert "keyword-only" not in str(TorchEstimator.__signature__) and "epochs=1" in str(TorchEstimator.__signature__)
