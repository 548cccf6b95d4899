"""Estimators in a session of Spark Connect: `make test-spark`. Only with Spark 4, see `connect`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from connect import session  # noqa: F401 - a fixture
from pyspark import cloudpickle as cloudpickle_of_spark
from pyspark.ml.linalg import Vectors
from sessions import nothing_is_left  # noqa: F401 - a fixture
from sklearn.datasets import load_digits

from horovod.spark.common.store import Store
from horovod.spark.torch import TorchEstimator, TorchModel

for each in (cloudpickle, cloudpickle_of_spark):  # the executors do not have this module
    each.register_pickle_by_value(sys.modules[__name__])
ROWS = 1500  # to train with; 297 are left to test with


@pytest.fixture(scope="module")
def digits(session: Any) -> Iterator[tuple[Any, Any]]:  # noqa: F811
    """With the pixels as a vector, and as an array."""
    images, targets = load_digits(return_X_y=True)
    rows = [
        (number, Vectors.dense(image / 16), (image / 16).tolist(), int(digit))
        for number, (image, digit) in enumerate(zip(images, targets))
    ]
    frame = session.createDataFrame(rows, ["id", "pixels", "numbers", "digit"]).repartition(2).cache()
    yield frame.filter(f"id < {ROWS}"), frame.filter(f"id >= {ROWS}")


def accuracy(frame: Any) -> float:
    rows = frame.select("digit", "digit__output").collect()
    return sum(row.digit == row.digit__output.toArray().argmax() for row in rows) / len(rows)


@pytest.mark.parametrize("features", ["pixels", "numbers"])
def test_fit_and_transform(digits: tuple[Any, Any], tmp_path: Path, features: str) -> None:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    estimator = TorchEstimator(
        num_proc=2,
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        loss=lambda output, label: torch.nn.functional.cross_entropy(output, label.long()),
        feature_cols=[features],
        label_cols=["digit"],
        validation=0.1,
        store=Store.create(str(tmp_path / "store")),
        epochs=6,
        random_seed=5,
        verbose=0,
    )
    start_s = time.monotonic()
    model = estimator.fit(digits[0])
    fitted_s, start_s = time.monotonic() - start_s, time.monotonic()
    found = accuracy(model.transform(digits[1]))
    print(f"{features}: accuracy {found:.3f}; fit {fitted_s:.1f} s, transform {time.monotonic() - start_s:.1f} s")
    assert found > 0.85 and len(model.getHistory()) == 6
    names = list(Path(estimator.getStore().get_train_data_path()).parent.glob("intermediate_train_data.*"))
    estimator.fit(digits[0], {estimator.epochs: 1})
    assert list(Path(estimator.getStore().get_train_data_path()).parent.glob("intermediate_train_data.*")) == names


def test_transform_is_computed_batch_by_batch(session: Any, digits: tuple[Any, Any]) -> None:  # noqa: F811
    """What a model sees at once is one batch of Arrow's, or a part of it."""

    class Counting(torch.nn.Module):
        def forward(self, numbers: torch.Tensor) -> torch.Tensor:
            return torch.full((len(numbers), 1), float(len(numbers)))

    model = TorchModel(model=Counting(), feature_columns=["numbers"], label_columns=["rows"])
    model.set(model.getParam("_metadata"), {"columns": {"rows": ["double", []]}, "outputs": [[1]]})
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    seen = [row[0] for row in model.transform(digits[0]).select("rows__output").collect()]
    assert len(seen) == ROWS and 1 < max(seen) <= 100, (len(seen), max(seen))
