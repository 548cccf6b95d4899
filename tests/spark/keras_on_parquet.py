"""`KerasEstimator.fit_on_parquet` on one rank, in this process, with no session of Spark: `make test-spark`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from torch_on_parquet import Alone, Here, store  # noqa: F401 - a fixture

import horovod.keras as hvd
from horovod.spark.keras import KerasEstimator, KerasModel
from horovod.spark.keras.model_bytes import Progress, progress_of, saved


def line(labels: int = 1) -> Any:
    keras.utils.set_random_seed(2)
    a, b = keras.Input((3,)), keras.Input((1,))
    outputs = [keras.layers.Dense(1, name=f"of_{n}")(keras.layers.Concatenate()([a, b])) for n in range(labels)]
    return keras.Model([a, b], outputs if labels > 1 else outputs[0])


def estimator(at: Any, **further: Any) -> KerasEstimator:
    given = {
        "backend": Alone(),
        "model": line(),
        "optimizer": keras.optimizers.SGD(0.05),
        "loss": "mse",
        "feature_cols": ["a", "b"],
        "label_cols": ["y"],
        "store": at,
        "batch_size": 10,
        "random_seed": 4,
        "verbose": 0,
    }
    return KerasEstimator(**{**given, **further})


def test_a_line_is_learnt_with_callbacks_and_validation(store: Any) -> None:  # noqa: F811
    seen: list[float] = []
    made = estimator(
        store,
        epochs=6,
        validation=0.1,
        metrics=["mae"],
        callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print("epoch", epoch))],
        checkpoint_callback=keras.callbacks.ModelCheckpoint("best.keras"),
        run_id="line",
    ).fit_on_parquet()
    history = made.getHistory()
    assert set(history) >= {"loss", "mae", "val_loss", "val_mae"} and len(history["loss"]) == 6 and not seen
    assert history["loss"][-1] < 0.01 < history["loss"][0] and history["val_mae"][-1] < 0.1
    assert made.getModel().layers[-1].get_weights()[0].ravel() == pytest.approx([1, 2, 3, 1], abs=0.1)
    assert (Path(store.get_run_path("line")) / "best.keras").exists() and made.getRunId() == "line"
    kept = store.get_checkpoint_path("line")
    assert progress_of(store.read(kept)).epochs == 6
    os.rename(kept, f"{kept}.keras")
    assert keras.saving.load_model(f"{kept}.keras").count_params() == made.getModel().count_params()


def test_a_run_goes_on_with_the_state_of_its_optimizer(store: Any) -> None:  # noqa: F811
    def fitted(epochs: int, name: str) -> list[float]:
        optimizer = keras.optimizers.Adam(0.02)
        return estimator(store, epochs=epochs, run_id=name, optimizer=optimizer).fit_on_parquet().getHistory()["loss"]

    whole, first, rest = fitted(4, "whole"), fitted(2, "parts"), fitted(4, "parts")
    assert len(first) == 2 and rest[:2] == first and rest == pytest.approx(whole, rel=1e-3)


def test_a_checkpoint_that_would_run_code_is_refused(store: Any) -> None:  # noqa: F811
    a = keras.Input((3,))
    own = keras.Model(a, keras.layers.Lambda(lambda x: x)(keras.layers.Dense(1)(a)))
    store.write(store.get_checkpoint_path("bad"), saved(own, Progress({}, 1, ())))
    with pytest.raises(ValueError, match="[Ll]ambda"):
        estimator(store, run_id="bad", feature_cols=["a"]).fit_on_parquet()


def test_two_ranks_and_the_rate_of_one(store: Any) -> None:  # noqa: F811
    made = estimator(store, backend=Here(), epochs=6, validation=0.1).fit_on_parquet()
    assert made.getHistory()["loss"][-1] < 0.01 and len(made.getHistory()["val_loss"]) == 6
    assert made.getModel().layers[-1].get_weights()[0].ravel() == pytest.approx([1, 2, 3, 1], abs=0.1)


def test_several_outputs_with_weights_of_rows_and_losses(store: Any) -> None:  # noqa: F811
    def lies(frame: Any) -> Any:
        return frame.assign(y=frame.y.where(frame.w > 0, 100.0))

    made = estimator(
        store,
        model=line(2),
        epochs=8,
        loss=["mse", "mse"],
        loss_weights=[1.0, 0.5],
        label_cols=["y", "z"],
        sample_weight_col="w",
        transformation_fn=lies,
        gradient_compression=hvd.Compression.fp16,
        inmemory_cache_all=True,
    ).fit_on_parquet()
    found = made.getModel().predict([np.eye(3), np.zeros((3, 1))], verbose=0)
    assert found[0].ravel() == pytest.approx([1, 2, 3], abs=0.3) and found[1].ravel() == pytest.approx(
        -found[0].ravel(), abs=0.3
    )


def test_tf_data_prepares_batches(store: Any) -> None:  # noqa: F811
    ahead = estimator(store, tensorflow_dataset_prefetch_buffer_size=2, train_steps_per_epoch=4)
    if keras.config.backend() == "tensorflow":
        assert len(ahead.fit_on_parquet().getHistory()["loss"]) == 1
    else:
        with pytest.raises(ValueError, match="needs Keras' backend tensorflow"):
            ahead.fit_on_parquet()


class Doubled(keras.layers.Layer):
    """A class of the user's own."""

    def call(self, x: Any) -> Any:
        return 2 * x


def test_own_classes_travel_by_custom_objects(store: Any) -> None:  # noqa: F811
    a = keras.Input((3,))
    own = keras.Model(a, Doubled()(keras.layers.Dense(1)(a)))
    made = estimator(store, model=own, feature_cols=["a"], custom_objects={"Doubled": Doubled}).fit_on_parquet()
    written = made._values_to_write()
    again = KerasModel()
    again._take_written(written)
    assert np.allclose(again.getModel().get_weights()[0], made.getModel().get_weights()[0])
    outputs = again._predictor()()([np.ones((2, 3))])
    assert outputs[0].shape == (2, 1)


@pytest.mark.parametrize(
    "further, message",
    [
        ({"optimizer": None}, "optimizer is missing"),
        ({"loss": None}, "loss is missing"),
        ({"model": keras.Sequential([keras.layers.Dense(1)])}, "Keras model that is built"),
        ({"loss_weights": [1.0, 2.0]}, "loss_weights has 2 entries for 1 labels"),
        (
            {"optimizer": keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.9))},
            "has a schedule",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(store: Any, further: dict[str, Any], message: str) -> None:  # noqa: F811
    with pytest.raises(ValueError, match=message):
        estimator(store, **further).fit_on_parquet()
