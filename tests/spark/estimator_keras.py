"""`KerasEstimator` in real sessions, on scikit-learn's digits and the backend of KERAS_BACKEND: `make test-spark`.

See `sessions`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from estimator_torch import ROWS, accuracy, digits  # noqa: F401 - a fixture
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame
from sessions import context, nothing_is_left  # noqa: F401 - fixtures
from sklearn.datasets import load_digits

from horovod.spark.common.store import Store
from horovod.spark.keras import KerasEstimator

EPOCHS = 20  # after fewer, accuracies differ by chance as much as they may here


def a_model() -> Any:
    keras.utils.set_random_seed(3)
    layers = [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10, "softmax")]
    return keras.Sequential(layers)


def estimator(tmp_path: Path, **further: Any) -> KerasEstimator:
    given = {
        "num_proc": 2,
        "model": a_model(),
        "optimizer": keras.optimizers.SGD(0.1, momentum=0.9),
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "feature_cols": ["pixels"],
        "label_cols": ["digit"],
        "store": Store.create(str(tmp_path / "store")),
        "random_seed": 5,
        "verbose": 0,
    }
    return KerasEstimator(**{**given, **further})


def without_spark() -> float:
    images, targets = load_digits(return_X_y=True)
    model = a_model()
    model.compile(keras.optimizers.SGD(0.2, momentum=0.9), "sparse_categorical_crossentropy")
    model.fit(images[:ROWS] / 16, targets[:ROWS], batch_size=64, epochs=EPOCHS, verbose=0)
    found = model.predict(images[ROWS:] / 16, verbose=0)
    return float((np.argmax(found, 1) == targets[ROWS:]).mean())


def test_accuracy_and_the_pipeline(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:  # noqa: F811
    training, testing = digits
    start_s = time.monotonic()
    made = Pipeline(stages=[estimator(tmp_path, epochs=EPOCHS, validation=0.1)])
    model = made.fit(training)
    fitted_s = time.monotonic() - start_s
    found, alone = accuracy(model.transform(testing)), without_spark()
    print(
        f"{keras.config.backend()}: accuracy {found:.3f}, without Spark {alone:.3f}; {EPOCHS} epochs {fitted_s:.1f} s"
    )
    assert found > alone - 0.03 and alone > 0.85
    history = model.stages[0].getHistory()
    assert set(history) >= {"loss", "accuracy", "val_loss", "val_accuracy"} and len(history["loss"]) == EPOCHS
    assert history["val_accuracy"][-1] > 0.85
    model.write().overwrite().save(str(tmp_path / "model"))
    assert accuracy(PipelineModel.load(str(tmp_path / "model")).transform(testing)) == found
    made.write().overwrite().save(str(tmp_path / "pipeline"))
    (again,) = Pipeline.load(str(tmp_path / "pipeline")).getStages()
    assert again.getEpochs() == EPOCHS and again.getModel().count_params() == a_model().count_params()


def test_a_run_goes_on(digits: tuple[DataFrame, DataFrame], tmp_path: Path) -> None:  # noqa: F811
    first = estimator(tmp_path, epochs=2, run_id="r").fit(digits[0]).getHistory()
    rest = estimator(tmp_path, epochs=3, run_id="r", num_proc=1).fit(digits[0]).getHistory()
    assert len(rest["loss"]) == 3 and rest["loss"][:2] == first["loss"] and rest["loss"][2] < first["loss"][1]


def test_a_callback_that_fails_names_its_rank_and_nothing_else(
    digits: tuple[DataFrame, DataFrame],  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fails(epoch: int, logs: Any) -> None:
        raise ValueError("the user's own")

    callback = keras.callbacks.LambdaCallback(on_epoch_end=fails)
    with pytest.raises(RuntimeError, match=r"rank \d \(\S+, pid \d+\) exited with code 1[\s\S]*the user's own"):
        estimator(tmp_path, callbacks=[callback]).fit(digits[0])
    assert "after shutdown" not in capfd.readouterr().err
