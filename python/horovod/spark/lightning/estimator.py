"""Lightning's `TorchEstimator` fits a LightningModule to a DataFrame on the ranks of a job."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, Final, Optional

from horovod._core.errors import InvalidArgumentError
from horovod._core.frameworks import require
from horovod.spark.common.estimator import HorovodEstimator, Rows
from horovod.spark.common.parameter_table import LIGHTNING, rows_of
from horovod.spark.common.params import with_parameters

require("torch", "PyTorch", "horovod.spark.lightning")
import torch  # noqa: E402

from horovod.spark.lightning.plain_module import Parts  # noqa: E402
from horovod.spark.lightning.remote import HOOKS, PACKAGES, Work, package_of, train  # noqa: E402
from horovod.spark.torch.estimator import TorchModel, copied_pair, model_of, objective_of, require_parts  # noqa: E402

__all__ = ["TorchEstimator", "TorchModel"]

_OF_PLAIN_MODELS: Final = ("optimizer", "loss", "loss_constructors", "loss_weights", "metrics")
_OF_THE_JOB: Final = ("devices", "num_nodes")


@with_parameters(rows_of(LIGHTNING).values())
class TorchEstimator(HorovodEstimator):
    """Fits a LightningModule to the rows of a DataFrame. docs/spark-parameters.md has the parameters, all keywords.

    Needed: model, label_cols, store. `training_step` and `validation_step` get a dictionary with a tensor for each
    column of features, labels and weights. The history has a dictionary for each epoch: its number, and what the module
    has logged. The module's optimizers keep their learning rates.

    The model may also be another PyTorch module with optimizer and loss, as in `horovod.spark.torch`; the history then
    has train_loss and val_loss. `transform` calls the model with a tensor for each feature.
    """

    _kind = "lightning"

    def _require_model(self) -> None:
        model = self._value("model")
        if package_of(model) is None:
            require_parts(self)
        elif given := [name for name in _OF_PLAIN_MODELS if self._value(name)]:
            raise InvalidArgumentError(
                f"{' and '.join(given)}: a LightningModule has its own, in configure_optimizers, training_step and "
                "log. Leave them out."
            )
        self._require_one_for_each_column()
        self._require_known_compression()
        if self._value("train_minibatch_fn") is not None:
            raise InvalidArgumentError(
                "train_minibatch_fn: Lightning's way is a LightningModule with automatic_optimization = False, whose "
                "training_step does what that function does. Write one, or use horovod.spark.torch.TorchEstimator."
            )
        self._require_fitting_trainer_args()
        self._require_fitting_columns()
        epochs, there = self._value("epochs"), self._value("loader_num_epochs")
        if there is not None and there < epochs:
            raise InvalidArgumentError(
                f"loader_num_epochs is {there}, so there is no data for {epochs} epochs. Leave it out."
            )

    def _require_known_compression(self) -> None:
        if self._value("gradient_compression") not in HOOKS:
            raise InvalidArgumentError(
                "gradient_compression must be hvd.Compression.none, fp16 or bf16. Received: "
                f"{self._value('gradient_compression')!r}."
            )

    def _require_fitting_trainer_args(self) -> None:
        if refused := [name for name in _OF_THE_JOB if name in self._trainer_args()]:
            raise InvalidArgumentError(
                f"trainer_args has {', '.join(refused)}: the ranks are those of the job, each with one device. Leave "
                "that out, and set num_proc."
            )
        options = self._trainer_args().get("strategy", {})
        if not isinstance(options, dict):
            raise InvalidArgumentError(
                "trainer_args: strategy must be a dictionary of options of DDPStrategy, as "
                f"{{'find_unused_parameters': True}}; the strategy is Horovod's. Received: {options!r}."
            )

    def _require_fitting_columns(self) -> None:
        features, labels = self._value("feature_cols") or (), self._value("label_cols") or ()
        removed = self._value("transformation_removed_fields") or ()
        if both := [name for name in removed if name in (*features, *labels)]:
            raise InvalidArgumentError(
                f"transformation_removed_fields has {', '.join(both)}, which the model takes or learns. feature_cols "
                "and label_cols name what is there after transformation_fn."
            )
        of_features = dict(zip(features, self._value("input_shapes") or [None] * len(features)))
        of_labels = dict(zip(labels, self._value("label_shapes") or [None] * len(labels)))
        if twice := [name for name, shape in of_features.items() if of_labels.get(name, shape) != shape]:
            raise InvalidArgumentError(
                f"{', '.join(twice)} is a feature and a label, with two shapes, and a batch has one column of the "
                "name. Give one shape, and reshape in the model."
            )

    def _trainer_args(self) -> dict[str, Any]:
        return self._value("trainer_args") or {}

    def _features(self, there: Any) -> list[str]:
        removed = self._value("transformation_removed_fields") or ()
        return [name for name in super()._features(there) if name not in removed]

    def _prepared_features(self) -> Optional[list[str]]:
        features = super()._prepared_features()
        return features and [*features, *(self._value("transformation_removed_fields") or ())]

    def _package(self) -> str:
        """Raises:
        ModuleNotFoundError: there is no Lightning.
        """
        known = package_of(self._value("model"))
        there = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0]) is not None]
        if known is None and not there:
            require("lightning", "Lightning 2", "horovod.spark.lightning")
        return known or there[0]

    def _task(self, rows: Rows, run_id: str) -> tuple[Callable[[Work], Any], Work]:
        package, parts = self._package(), None
        if package_of(self._value("model")) is None:
            model, optimizer = copied_pair(self)
            parts = Parts(optimizer=optimizer, **objective_of(self))
        else:
            model = copy.deepcopy(self._value("model")).cpu()
        return train, Work(
            run=self._run(rows, run_id),
            package=package,
            model=model,
            parts=parts,
            compression=self._value("gradient_compression"),
            arguments={
                "logger": self._value("logger") or False,
                "log_every_n_steps": self._value("log_every_n_steps"),
                "profiler": self._value("profiler"),
                **self._trainer_args(),
            },
            callbacks=self._value("callbacks"),
            gpus=self._value("num_gpus"),
            refuses_nan=self._value("terminate_on_nan"),
            edits=self._value("transformation_edit_fields") or (),
            queues=(
                self._value("train_async_data_loader_queue_size") or 0,
                self._value("val_async_data_loader_queue_size") or 0,
            ),
            reports_waiting=self._value("debug_data_loader"),
        )

    def _model_of(self, found: Mapping[str, Any], run_id: str, metadata: Mapping[str, Any], rows: Rows) -> TorchModel:
        optimizer: Optional[torch.optim.Optimizer] = None
        if "module" in found:
            model = found["module"]
        else:
            model, optimizer = copied_pair(self)
            model.load_state_dict(found["model"])
            optimizer.load_state_dict(found["optimizer"])
        trained = {"model": model, "optimizer": optimizer, "history": found["history"]}
        return model_of(self, rows, run_id=run_id, _metadata=metadata, **trained)
