"""`KerasEstimator` fits a Keras model to a DataFrame on the ranks of a job; `KerasModel` is what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.keras.installed import KERAS_2, keras
from horovod.spark.common.estimator import MODEL_ROWS, HorovodEstimator, HorovodModel, Rows
from horovod.spark.common.parameter_table import KERAS, Row, any_value, rows_of
from horovod.spark.common.params import with_parameters
from horovod.spark.common.prediction import Loading
from horovod.spark.keras.model_bytes import loaded, saved
from horovod.spark.keras.remote import Work, arrays_of, input_shapes, shaped, train

__all__ = ["KerasEstimator", "KerasModel"]


@with_parameters(rows_of(KERAS).values())
class KerasEstimator(HorovodEstimator):
    """Fits a Keras model to the rows of a DataFrame. docs/spark-parameters.md has its keywords.

    Needed: model, built; loss; optimizer, unless the model is compiled with one; label_cols; store.
    """

    _kind = "keras"

    def _require_model(self) -> None:
        model = self._value("model")
        if not isinstance(model, keras.Model) or not model.built:
            raise InvalidArgumentError(
                f"model must be a Keras model that is built, with its input. Received: {model!r}."
            )
        if self._optimizer() is None:
            raise InvalidArgumentError("optimizer is missing, and the model is not compiled. Give one of Keras'.")
        if self._value("loss") is None:
            raise InvalidArgumentError("loss is missing: give what model.compile takes.")
        weights, labels = self._value("loss_weights"), self._value("label_cols") or ()
        if weights is not None and len(weights) != len(labels):
            raise InvalidArgumentError(f"loss_weights has {len(weights)} entries for {len(labels)} labels.")

    def _optimizer(self) -> Any:
        return self._value("optimizer") or getattr(self._value("model"), "optimizer", None)

    def _task(self, rows: Rows, run_id: str) -> tuple[Callable[[Work], Any], Work]:
        return train, Work(
            run=self._run(rows, run_id),
            model=saved(self._value("model")),
            optimizer=keras.optimizers.serialize(keras.optimizers.get(self._optimizer())),
            loss=self._value("loss"),
            loss_weights=self._value("loss_weights"),
            metrics=self._value("metrics"),
            custom_objects=self._value("custom_objects"),
            compression=self._value("gradient_compression"),
            callbacks=self._value("callbacks"),
            checkpoint_callback=self._value("checkpoint_callback"),
            prefetch=self._value("tensorflow_dataset_prefetch_buffer_size"),
        )

    def _env(self) -> dict[str, str]:
        return {**self._value("backend_env"), **environ_of_keras()}

    def _model_of(self, found: Mapping[str, Any], run_id: str, metadata: Mapping[str, Any], rows: Rows) -> KerasModel:
        return KerasModel(
            history=found["history"],
            model=loaded(found["model"], self._value("custom_objects")),
            feature_columns=self._features(rows.data.columns),
            label_columns=self._value("label_cols"),
            custom_objects=self._value("custom_objects"),
            run_id=run_id,
            _metadata=metadata,
            _floatx=keras.config.floatx() if not KERAS_2 else keras.backend.floatx(),
        )

    def _values_to_write(self) -> dict[str, Any]:
        return written(super()._values_to_write())

    def _take_written(self, values: dict[str, Any]) -> None:
        super()._take_written(read(values))


@with_parameters(
    (
        *MODEL_ROWS,
        Row("custom_objects", {}, "", any_value, "of the user's own classes, by name, to load the model"),
        Row("_floatx", None, "", any_value, "the type of Keras' floats"),
    )
)
class KerasModel(HorovodModel):
    """A trained Keras model: `transform` adds its outputs to a DataFrame."""

    def _predictor(self) -> Callable[[], Callable[[list[Any]], list[Any]]]:
        given = (saved(self._value("model")), self._value("custom_objects") or {}, self._value("_floatx"))
        return Loading(environ_of_keras(), __name__, predictor.__name__, given)

    def _values_to_write(self) -> dict[str, Any]:
        return written(super()._values_to_write())

    def _take_written(self, values: dict[str, Any]) -> None:
        super()._take_written(read(values))


def environ_of_keras() -> dict[str, str]:
    """What makes another process use the same Keras."""
    if KERAS_2:
        return {"TF_USE_LEGACY_KERAS": "1"}
    return {"KERAS_BACKEND": keras.config.backend(), "TF_USE_LEGACY_KERAS": ""}


def predictor(
    data: bytes, custom_objects: Mapping[str, Any], floatx: Optional[str]
) -> Callable[[list[Any]], list[Any]]:
    """From a model's bytes to a function of arrays. Called in the tasks."""
    if floatx:
        keras.backend.set_floatx(floatx)
    model = loaded(data, custom_objects)
    shapes = input_shapes(model)

    def outputs(arrays: Sequence[Any]) -> list[Any]:
        found = shaped(arrays, shapes)
        return arrays_of(model, found[0] if len(found) == 1 else found)

    return outputs


def written(values: dict[str, Any]) -> dict[str, Any]:
    """Model and optimizer as values that travel without Keras' own pickles."""
    custom = values.get("custom_objects") or {}
    if values.get("model") is not None:
        values["model"] = SimpleNamespace(data=saved(values["model"]), custom=custom)
    if values.get("optimizer") is not None and not isinstance(values["optimizer"], str):
        values["optimizer"] = SimpleNamespace(config=keras.optimizers.serialize(values["optimizer"]), custom=custom)
    return values


def read(values: dict[str, Any]) -> dict[str, Any]:
    """From what `written` gave."""
    model, optimizer = values.get("model"), values.get("optimizer")
    if isinstance(model, SimpleNamespace):
        values["model"] = loaded(model.data, model.custom)
    if isinstance(optimizer, SimpleNamespace):
        values["optimizer"] = keras.optimizers.deserialize(optimizer.config, custom_objects=dict(optimizer.custom))
    return values
