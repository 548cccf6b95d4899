"""`TorchEstimator` in real sessions, on scikit-learn's digits: `make test-spark`. See `sessions`."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch
from pyspark import SparkContext
from pyspark import cloudpickle as cloudpickle_of_spark
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType
from sessions import context, nothing_is_left  # noqa: F401 - fixtures
from sklearn.datasets import load_digits

from horovod.spark.common.datasets import opened
from horovod.spark.common.reading import Reading, batches
from horovod.spark.common.store import FilesystemStore, Store
from horovod.spark.common.util import prepare_data
from horovod.spark.torch import TorchEstimator, TorchModel

for each in (cloudpickle, cloudpickle_of_spark):  # the executors do not have this module
    each.register_pickle_by_value(sys.modules[__name__])
ROWS = 1500  # to train with; 297 are left to test with


@pytest.fixture(scope="module")
def digits(context: SparkContext) -> Iterator[tuple[DataFrame, DataFrame]]:  # noqa: F811
    images, targets = load_digits(return_X_y=True)
    rows = [
        (number, Vectors.dense(image / 16), int(digit), 1.0)
        for number, (image, digit) in enumerate(zip(images, targets))
    ]
    types = {"id": IntegerType(), "pixels": VectorUDT(), "digit": IntegerType(), "weight": DoubleType()}
    schema = StructType([StructField(name, kind) for name, kind in types.items()])
    frame = SparkSession.builder.getOrCreate().createDataFrame(rows, schema).repartition(2).cache()
    yield frame.filter(f"id < {ROWS}"), frame.filter(f"id >= {ROWS}")


def a_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


def estimator(tmp_path: Path, **further: Any) -> TorchEstimator:
    model = a_model()
    given = {
        "num_proc": 2,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        "loss": lambda output, label: torch.nn.functional.cross_entropy(output, label.long()),
        "feature_cols": ["pixels"],
        "label_cols": ["digit"],
        "store": Store.create(str(tmp_path / "store")),
        "batch_size": 32,
        "random_seed": 5,
        "verbose": 0,
    }
    return TorchEstimator(**{**given, **further})


def accuracy(frame: DataFrame, column: str = "digit__output") -> float:
    rows = frame.select("digit", vector_to_array(column).alias("output")).collect()
    return sum(row.digit == max(range(10), key=row.output.__getitem__) for row in rows) / len(rows)


def without_spark(epochs: int) -> float:
    images, targets = load_digits(return_X_y=True)
    pixels, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(targets)
    model = a_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(ROWS).split(64):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        return float((model(pixels[ROWS:]).argmax(1) == labels[ROWS:]).float().mean())


def right(output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return (output.argmax(1) == label).float().mean()


def test_accuracy_history_and_the_pipeline(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    training, testing = digits
    start_s = time.monotonic()
    made = Pipeline(stages=[estimator(tmp_path, epochs=8, validation=0.1, metrics=[right])])
    model = made.fit(training)
    fitted_s = time.monotonic() - start_s
    found, alone = accuracy(model.transform(testing)), without_spark(8)
    print(f"accuracy {found:.3f}, without Spark {alone:.3f}; fit of 8 epochs {fitted_s:.1f} s")
    assert found > alone - 0.03 and alone > 0.85
    history = model.stages[0].getHistory()
    assert [report["epoch"] for report in history] == list(range(8))
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"] / 2
    assert history[-1]["validation"]["all_metrics"][0][0] > 0.85
    assert model.stages[0].getOptimizer().param_groups[0]["lr"] == pytest.approx(0.1)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    assert accuracy(again.transform(testing)) == found
    made.write().overwrite().save(str(tmp_path / "pipeline"))
    assert Pipeline.load(str(tmp_path / "pipeline")).getStages()[0].getEpochs() == 8


def read_ids(store: Any, path: str, ranks: int = 3) -> list[int]:
    """What ranks read in an epoch."""
    data, found = opened(store, path), []
    for rank in range(ranks):
        for batch in batches(data, Reading(store, ["id", "pixels"], 7, pool="dummy"), rank, ranks):
            assert batch["pixels"].shape[1:] == (64,) and (batch["pixels"].sum(1) > 0).all()
            found += batch["id"].tolist()
    return found


def test_every_row_is_prepared_once_and_found_again(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    store, frame = Store.create(str(tmp_path)), digits[1].withColumn("marks", functions.expr("id % 3 = 0"))
    sparse = frame.withColumn("pixels", functions.udf(as_sparse, VectorUDT())("pixels"))
    indices = []
    for rows, compress in ((frame, False), (sparse, True), (sparse, False)):
        with prepare_data(2, store, rows, ["digit"], ["pixels", "id"], "marks", None, compress, 2) as index:
            indices.append(index)
        trained, validated = (
            read_ids(store, path) for path in (store.get_train_data_path(index), store.get_val_data_path(index))
        )
        assert sorted(trained) == [number for number in range(ROWS, 1797) if number % 3]
        assert sorted(validated) == [number for number in range(ROWS, 1797) if not number % 3]
    with prepare_data(2, store, frame, ["digit"], ["pixels", "id"], "marks", None, False, 2) as index:
        assert index == indices[0] and len({*indices}) == 3
    store.remove(store.get_train_data_path(index))
    with prepare_data(2, store, frame, ["digit"], ["pixels", "id"], "marks", None, False, 2) as another:
        assert another != index


def as_sparse(vector: Any) -> Any:
    return Vectors.sparse(len(vector), [(int(place), float(vector[place])) for place in vector.toArray().nonzero()[0]])


class Dying(FilesystemStore):
    """The worker of partition 1 is killed in its first attempt, with half a file written."""

    def path_in_fs(self, path: str) -> str:
        from pyspark import TaskContext

        task = TaskContext.get()
        if task and task.partitionId() == 1 and task.attemptNumber() == 0:
            os.makedirs(path, exist_ok=True)
            Path(path, "part-half.parquet").write_bytes(b"PAR1 and no more")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().path_in_fs(path)


def test_a_task_that_is_killed_while_it_writes(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    store = Dying(str(tmp_path))
    with prepare_data(2, store, digits[1], ["digit"], ["pixels", "id"], partitions_per_process=1) as index:
        path = store.get_train_data_path(index)
        assert Path(path, "part-half.parquet").exists()
        assert sorted(read_ids(store, path)) == list(range(ROWS, 1797))


def test_rows_that_do_not_fit_are_refused(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    store, frame = Store.create(str(tmp_path)), digits[1].limit(20)
    for column, fact in (
        ("sequence(0, id % 2)", "column 'odd': its rows are not uniform"),
        ("if(id % 2 = 0, 1, null)", r"column 'odd': \d+ rows have no value"),
        ("current_date()", "Column 'odd' is of type date"),
    ):
        odd = prepare_data(1, store, frame.withColumn("odd", functions.expr(column)), ["digit"])
        with pytest.raises(ValueError, match=fact), odd:
            raise AssertionError("it was prepared")
    empty = prepare_data(1, store, frame.filter("id < 0"), ["digit"])
    with pytest.raises(ValueError, match="no rows to train with"), empty:
        raise AssertionError("it was prepared")
    assert list(tmp_path.iterdir()) == []


def test_labels_of_decimals_and_truths(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    """A model's outputs for them are doubles; for whole numbers they are cut, which is said."""
    store, frame = Store.create(str(tmp_path)), digits[1].limit(40)
    for label, of in (("cast(id / 4 as decimal(10, 2))", "double"), ("id > 1600", "double"), ("id", "int")):
        rows = frame.withColumn("label", functions.expr(label))
        with prepare_data(1, store, rows, ["label"], ["pixels", "id"], partitions_per_process=1) as index:
            data = opened(store, store.get_train_data_path(index))
        read = {
            key: value
            for batch in batches(data, Reading(store, ["id", "label"], 40), 0, 1)
            for key, value in batch.items()
        }
        if of == "double":
            assert read["label"] == pytest.approx(read["id"] / 4 if "decimal" in label else read["id"] > 1600)
        model = TorchModel(model=torch.nn.Linear(64, 1), feature_columns=["pixels"], label_columns=["label"])
        kinds = {name: list(kind) for name, kind in data.columns.items()}
        model.set(model.getParam("_metadata"), {"columns": kinds, "outputs": [[1]]})
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = model.transform(rows)
        assert dict(found.dtypes)["label__output"] == of and len(found.collect()) == 40
        assert any("are cut" in str(each.message) for each in said) == (of == "int")


def test_two_fits_at_once_on_one_store(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(estimator(tmp_path, num_proc=1, epochs=n).fit, digits[0]) for n in (1, 2)]
    models = [each.result() for each in fits]
    assert [len(model.getHistory()) for model in models] == [1, 2]
    assert models[0].getRunId() != models[1].getRunId()


def test_transform_is_as_fast_as_one_written_by_hand(digits: tuple[DataFrame, DataFrame]) -> None:
    net = a_model()
    model = TorchModel(model=net, feature_columns=["pixels"], label_columns=["digit"])
    model.set(model.getParam("_metadata"), {"columns": {"digit": ["int", []]}, "outputs": [[10]]})
    frame = digits[0].crossJoin(SparkSession.builder.getOrCreate().range(40)).repartition(2)
    frame = frame.select("digit", "pixels").cache()
    arrays = frame.withColumn("pixels", vector_to_array("pixels"))

    def by_hand(frames: Any) -> Iterator[Any]:
        import numpy as np

        for pixels in frames:
            with torch.no_grad():
                found = net(torch.tensor(np.stack(pixels["pixels"]), dtype=torch.float32)).double().numpy()
            yield pixels.assign(output=list(found))

    schema = "digit int, pixels array<double>, output array<double>"
    other = arrays.mapInPandas(by_hand, schema)
    frame.count()
    seconds = {"transform": 1e9, "by hand": 1e9}
    for _ in range(3):
        for name, work in (("transform", model.transform(frame)), ("by hand", other)):
            start_s = time.monotonic()
            work.write.format("noop").mode("overwrite").save()
            seconds[name] = min(seconds[name], time.monotonic() - start_s)
    rows = 40 * ROWS
    print(", ".join(f"{name} {rows / each:.0f} rows/s" for name, each in seconds.items()))
    assert seconds["transform"] < seconds["by hand"] / 0.9
    with pytest.raises(ValueError, match="There is a column 'digit' already"):
        model.copy().setOutputCols(["digit"]).transform(frame)
    with pytest.raises(ValueError, match="2 output columns for 1 labels"):
        model.copy().setOutputCols(["a", "b"]).transform(frame)
