"""Lightning's `TorchEstimator` in real sessions, on scikit-learn's digits: `make test-spark`. See `estimator_torch`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import cloudpickle
import lightning.pytorch as pl
import torch
from estimator_torch import a_model, accuracy, digits, without_spark  # noqa: F401 - digits is a fixture
from pyspark import cloudpickle as cloudpickle_of_spark
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame
from sessions import context, nothing_is_left  # noqa: F401 - fixtures

from horovod.spark.common.store import Store
from horovod.spark.lightning import TorchEstimator

for each in (cloudpickle, cloudpickle_of_spark):  # the executors do not have these modules
    for name in (__name__, "estimator_torch"):
        each.register_pickle_by_value(sys.modules[name])


class Digits(pl.LightningModule):
    """As `without_spark` trains, whose rate is that of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.net = a_model()

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.net(pixels)

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        loss = torch.nn.functional.cross_entropy(self(batch["pixels"]), batch["digit"].long())
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True, batch_size=len(batch["digit"]))
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], number: int) -> None:
        right = (self(batch["pixels"]).argmax(1) == batch["digit"]).float().mean()
        self.log("accuracy", right, sync_dist=True, batch_size=len(batch["digit"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)


def test_accuracy_pipeline_and_a_run_that_goes_on(
    digits: tuple[DataFrame, DataFrame],  # noqa: F811
    tmp_path: Path,
) -> None:
    training, testing = digits
    given: dict[str, Any] = {
        "num_proc": 2,
        "model": Digits(),
        "feature_cols": ["pixels"],
        "label_cols": ["digit"],
        "store": Store.create(str(tmp_path / "store")),
        "random_seed": 5,
        "verbose": 0,
        "validation": 0.1,
        "run_id": "digits",
    }
    first = TorchEstimator(**given, epochs=3).fit(training)
    start_s = time.monotonic()
    made = Pipeline(stages=[TorchEstimator(**given, epochs=8)])
    model = made.fit(training)
    fitted_s = time.monotonic() - start_s
    found, alone = accuracy(model.transform(testing)), without_spark(8)
    print(f"accuracy {found:.3f}, without Spark {alone:.3f}; fit of the 5 epochs that remained {fitted_s:.1f} s")
    assert found > alone - 0.03 and alone > 0.85
    history = model.stages[0].getHistory()
    assert history[:3] == first.getHistory() and [report["epoch"] for report in history] == list(range(8))
    assert history[-1]["loss"] < history[0]["loss"] / 2 and history[-1]["accuracy"] > 0.85
    model.write().overwrite().save(str(tmp_path / "model"))
    assert accuracy(PipelineModel.load(str(tmp_path / "model")).transform(testing)) == found
    made.write().overwrite().save(str(tmp_path / "pipeline"))
    assert Pipeline.load(str(tmp_path / "pipeline")).getStages()[0].getEpochs() == 8
