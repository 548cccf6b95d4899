"""What the estimators and models of all frameworks do: a fit is rows in a store, and a function on ranks; a model adds
columns to a DataFrame.

A framework's estimator says what the ranks do (`_task`), and makes a model of what rank 0 returns (`_model_of`).
"""

from __future__ import annotations

import math
import secrets
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common import datasets
from horovod.spark.common.backend import Backend, SparkBackend
from horovod.spark.common.datamodule import ParquetDataModule
from horovod.spark.common.datasets import Dataset
from horovod.spark.common.on_rank import Run
from horovod.spark.common.parameter_table import Row, any_value, names, require_one_of
from horovod.spark.common.params import TableParams
from horovod.spark.common.prediction import WHOLE_NUMBERS, Prediction, predicted
from horovod.spark.common.util import columns_of, prepare_data, require_known, require_shared

from pyspark.ml import Estimator, Model  # isort: skip - `params` says first what is missing

MODEL_ROWS = (
    Row("history", None, "", any_value, "what the training has reported"),
    Row("model", None, "", any_value, "the trained model"),
    Row("feature_columns", None, "", names, "columns that the model takes"),
    Row("label_columns", None, "", names, "columns that the model has learnt", ("LabelColoumns",)),
    Row("run_id", None, "", any_value, "the run that has trained it"),
    Row("outputCols", None, "", names, "names of the columns that transform adds"),
    Row("_metadata", None, "", any_value, "types and shapes of the columns and outputs"),
)


class Rows(NamedTuple):
    """The data set of a fit.

    Attributes:
        number: of it in the store; None: that without one.
        data: what there is to train with.
        is_validated: there is something to validate with.
        seen: the data sets by their paths in the store, as the driver sees them.
    """

    number: Optional[int]
    data: Dataset
    is_validated: bool
    seen: Mapping[str, Dataset]


class HorovodEstimator(TableParams, Estimator):
    """Fits a model on the ranks of a backend. See the head of the file."""

    _kind = ""  # begins the names of runs

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._require_exclusive()

    def fit(self, dataset: Any, params: Any = None) -> Any:
        """Fits a model to the rows of a DataFrame.

        Args:
            dataset: the DataFrame.
            params: further values of parameters, for this fit.

        Raises:
            InvalidArgumentError: a parameter, a column or the rows do not fit.
            RuntimeError: a rank has failed; the message names it and has its traceback.
        """
        return super().fit(dataset, params)

    def fit_on_parquet(self, params: Any = None, dataset_idx: Optional[int] = None) -> Any:
        """Fits a model to Parquet that lies at the store's `get_train_data_path(dataset_idx)`, and validates it with
        what lies at `get_val_data_path` if `validation` is set."""
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        backend, store = self._backend(), self._value("store")
        self._require_exclusive()
        require_shared(store)
        rows = self._opened(dataset_idx)
        there = rows.data.columns
        columns_of(list(there), self._value("label_cols"), self._features(there), None, self._weights())
        return self._fitted(backend, rows)

    def _fit(self, dataset: Any) -> Any:
        backend, store = self._backend(), self._value("store")
        self._require_exclusive()
        require_shared(store)
        self._require_model()
        validation = self._value("validation") or None
        context = prepare_data(
            backend.num_processes(),
            store,
            dataset,
            self._value("label_cols"),
            self._prepared_features(),
            validation,
            self._weights(),
            self._value("compress_sparse_cols"),
            self._value("partitions_per_process"),
            self._value("verbose") - 1,
        )
        with context as index:
            return self._fitted(backend, self._opened(index))

    def _opened(self, number: Optional[int]) -> Rows:
        store = self._value("store")
        paths = [store.get_train_data_path(number)]
        is_validated = bool(self._value("validation"))
        if is_validated and issubclass(self._module_class(), ParquetDataModule):  # others validate with what they like
            paths.append(store.get_val_data_path(number))
        seen = {path: datasets.opened(store, path) for path in paths}
        return Rows(number, seen[paths[0]], is_validated, seen)

    def _fitted(self, backend: Backend, rows: Rows) -> Any:
        self._require_model()
        run_id = self._value("run_id") or f"{self._kind}_{int(time.time())}_{secrets.token_hex(3)}"
        task, work = self._task(rows, run_id)
        found = backend.run(task, args=(work,), env=self._env())[0]
        kinds = {name: list(kind) for name, kind in rows.data.columns.items()}
        return self._model_of(found, run_id, {"columns": kinds, "outputs": found["outputs"]}, rows)

    def _prepared_features(self) -> Optional[list[str]]:
        """Columns that the store gets besides labels, weights and marks; None: all."""
        features: Optional[list[str]] = self._value("feature_cols")
        return features

    # ---- of the framework

    def _require_model(self) -> None:
        """Raises InvalidArgumentError for parameters that do not go together."""
        raise NotImplementedError

    def _task(self, rows: Rows, run_id: str) -> tuple[Callable[[Any], Any], Any]:
        """What each rank calls, and with what. Rank 0 returns a dictionary with `outputs`, their shapes."""
        raise NotImplementedError

    def _model_of(self, found: Mapping[str, Any], run_id: str, metadata: Mapping[str, Any], rows: Rows) -> Any:
        """The model, of what rank 0 has returned."""
        raise NotImplementedError

    def _env(self) -> dict[str, str]:
        """Variables of the ranks."""
        return {}

    # ---- for it

    def _require_exclusive(self) -> None:
        require_one_of(self._value("num_proc"), self._value("backend"))
        if "loss_constructors" in self._rows and self._value("loss") and self._value("loss_constructors"):
            raise InvalidArgumentError("loss and loss_constructors are both given. Give one of them.")

    def _require_one_for_each_column(self) -> None:
        labels = self._value("label_cols") or ()
        for name, columns in (
            ("input_shapes", self._value("feature_cols")),
            ("label_shapes", labels),
            ("loss_weights", labels),
        ):
            given = self._value(name)
            if given is not None and columns is not None and len(given) != len(columns):
                raise InvalidArgumentError(
                    f"{name} has {len(given)} entries for {len(columns)} columns ({', '.join(columns)}); give one for "
                    "each."
                )

    def _backend(self) -> Backend:
        given: Optional[Backend] = self._value("backend")
        return given or SparkBackend(self._value("num_proc"), verbose=self._value("verbose"))

    def _weights(self) -> Optional[str]:
        name: Optional[str] = self._value("sample_weight_col")
        return name

    def _features(self, there: Sequence[str] | Mapping[str, Any]) -> list[str]:
        """The columns that the model takes."""
        others = (*(self._value("label_cols") or ()), self._weights(), self._value("validation"))
        return self._value("feature_cols") or [name for name in there if name not in others]

    def _run(self, rows: Rows, run_id: str) -> Run:
        module, module_args = self._module(rows)
        return Run(
            store=self._value("store"),
            id=run_id,
            module=module,
            module_args=module_args,
            features=self._features(rows.data.columns),
            labels=self._value("label_cols"),
            weights=self._weights(),
            input_shapes=self._value("input_shapes") if "input_shapes" in self._rows else None,
            label_shapes=self._value("label_shapes"),
            epochs=self._value("epochs"),
            verbose=self._value("verbose"),
            seed=self._value("random_seed"),
            use_gpu=self._value("use_gpu"),
        )

    def _module(self, rows: Rows) -> tuple[Any, dict[str, Any]]:
        """The class of the data module, and what it is made with; rank and size come on the ranks."""
        store, buffer = self._value("store"), self._value("shuffle_buffer_size")
        features = self._features(rows.data.columns)
        weights = [self._weights()] if self._weights() else []
        given = {
            "train_dir": store.get_train_data_path(rows.number),
            "val_dir": store.get_val_data_path(rows.number),
            "num_train_epochs": self._value("epochs"),
            "has_val": rows.is_validated,
            "data_sets": rows.seen,
            "train_batch_size": self._value("batch_size"),
            "val_batch_size": self._value("val_batch_size") or self._value("batch_size"),
            "shuffle": self._value("shuffle") and buffer != 0,
            "transform_fn": self._value("transformation_fn"),
            "schema_fields": list(dict.fromkeys([*features, *self._value("label_cols"), *weights])),
            "storage_options": getattr(store, "_storage_options", None),
            "steps_per_epoch_train": self._value("train_steps_per_epoch"),
            "steps_per_epoch_val": self._value("validation_steps_per_epoch"),
            "verbose": self._value("verbose") > 1,
            "shuffle_buffer_size": buffer or None,
        }
        same = ("store", "random_seed", "inmemory_cache_all", "reader_pool_type", "mp_start_method")
        workers = ("train_reader_num_workers", "val_reader_num_workers")
        further = (*workers, "continuous_cols", "categorical_cols", "transformation_removed_fields")
        given |= {name: self._value(name) for name in (*same, *further) if name in self._rows}
        return self._module_class(), given

    def _module_class(self) -> Any:
        return self._value("data_module") or ParquetDataModule

    def _per_label(self, name: str, value: Any) -> list[Any]:
        """A value for each label, where one is enough for all."""
        labels = self._value("label_cols")
        values = list(value) if isinstance(value, (list, tuple)) else [value] * len(labels)
        if len(values) != len(labels):
            raise InvalidArgumentError(
                f"{name} has {len(values)} entries for {len(labels)} labels ({', '.join(labels)}); give one for each."
            )
        return values


class HorovodModel(TableParams, Model):
    """A trained model. See the head of the file."""

    def transform(self, dataset: Any, params: Any = None) -> Any:
        """A DataFrame with the model's outputs as further columns: LABEL__output, or those of setOutputCols.

        Args:
            dataset: has the feature columns.
            params: further values of parameters, for this call.

        Raises:
            InvalidArgumentError: a column is missing, or there already.
        """
        return super().transform(dataset, params)

    def getOutputCols(self) -> list[str]:  # noqa: N802
        """The names of the columns that transform adds."""
        return self._value("outputCols") or [f"{name}__output" for name in self._value("label_columns") or ()]

    def _transform(self, dataset: Any) -> Any:
        metadata = self._value("_metadata") or {}
        labels = self._value("label_columns")
        outputs = self.getOutputCols()
        if not labels or len(outputs) != len(labels):
            raise InvalidArgumentError(
                f"{len(outputs)} output columns for {len(labels or ())} labels; give as many to setOutputCols."
            )
        clash = [name for name in outputs if name in dataset.columns]
        if clash:
            raise InvalidArgumentError(
                f"There is a column {', '.join(map(repr, clash))} already. Name other ones with setOutputCols."
            )
        features = self._value("feature_columns") or ()
        require_known(features, dataset.columns)
        types = [metadata.get("columns", {}).get(label, ["double"])[0] for label in labels]
        shapes = metadata.get("outputs") or [[]] * len(labels)
        numbers = [
            label for label, of, shape in zip(labels, types, shapes) if math.prod(shape) == 1 and of in WHOLE_NUMBERS
        ]
        if numbers:
            warnings.warn(
                f"transform: labels of whole numbers ({', '.join(numbers)}) have outputs of whole numbers: fractions "
                "are cut. Cast the labels to float or double before fit to keep them.",
                stacklevel=2,
            )
        prediction = Prediction(self._predictor(), tuple(features), tuple(outputs), tuple(types))
        return predicted(dataset, prediction, metadata.get("outputs"))

    def _predictor(self) -> Callable[[], Callable[[list[Any]], list[Any]]]:
        """What a task calls once, for a function from arrays of the features to arrays of the outputs. It travels to
        the executors."""
        raise NotImplementedError
