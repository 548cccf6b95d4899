"""`TorchEstimator` fits a PyTorch model to a DataFrame on the ranks of a job; `TorchModel` is what comes of it."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import cloudpickle  # type: ignore[import-untyped]

from horovod._core.errors import InvalidArgumentError
from horovod._core.frameworks import require
from horovod.spark.common.estimator import MODEL_ROWS, HorovodEstimator, HorovodModel, Rows
from horovod.spark.common.parameter_table import TORCH, Row, any_value, rows_of, shapes
from horovod.spark.common.params import with_parameters

require("torch", "PyTorch", "horovod.spark.torch")
import torch  # noqa: E402

from horovod.spark.torch.remote import Work, as_list, tensor, train  # noqa: E402

__all__ = ["TorchEstimator", "TorchModel"]


@with_parameters(rows_of(TORCH).values())
class TorchEstimator(HorovodEstimator):
    """Fits a PyTorch model to the rows of a DataFrame. docs/spark-parameters.md has its keywords.

    Needed: model, optimizer (an instance over the model's parameters), loss or loss_constructors, label_cols, store.
    The model is called with a tensor for each feature, and returns one for each label.
    """

    _kind = "pytorch"

    def _require_model(self) -> None:
        require_parts(self)
        self._require_one_for_each_column()

    def _task(self, rows: Rows, run_id: str) -> tuple[Callable[[Work], Any], Work]:
        model, optimizer = copied_pair(self)
        return train, Work(
            run=self._run(rows, run_id),
            model=model,
            optimizer=optimizer,
            **objective_of(self),
            compression=self._value("gradient_compression"),
            passes=self._value("backward_passes_per_step"),
            minibatch=self._value("train_minibatch_fn"),
        )

    def _model_of(self, found: Mapping[str, Any], run_id: str, metadata: Mapping[str, Any], rows: Rows) -> TorchModel:
        model, optimizer = copied_pair(self)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        trained = {"model": model, "optimizer": optimizer, "history": found["history"]}
        return model_of(self, rows, run_id=run_id, _metadata=metadata, **trained)


def require_parts(estimator: HorovodEstimator) -> None:
    """Raises:
    InvalidArgumentError: the estimator has no model of PyTorch, or the model no optimizer or no loss.
    """
    model, optimizer = estimator._value("model"), estimator._value("optimizer")
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgumentError(f"model must be a torch.nn.Module. Received: {model!r}.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgumentError(
            "optimizer must be an instance over the model's parameters, as torch.optim.SGD(model.parameters(), "
            f"lr=0.01). Received: {optimizer!r}."
        )
    if estimator._value("loss") is None and estimator._value("loss_constructors") is None:
        raise InvalidArgumentError("loss is missing: give a function of output and label, or one for each label.")


def objective_of(estimator: HorovodEstimator) -> dict[str, Any]:
    """What the estimator has a model learn: losses, are_constructors, loss_weights and metrics, one for each label."""
    labels, constructors = estimator._value("label_cols"), estimator._value("loss_constructors")
    return {
        "losses": estimator._per_label("loss", constructors or estimator._value("loss")),
        "are_constructors": constructors is not None,
        "loss_weights": estimator._value("loss_weights") or [1 / len(labels)] * len(labels),
        "metrics": [estimator._per_label("A group of metrics", group) for group in estimator._value("metrics")],
    }


def copied_pair(estimator: HorovodEstimator) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Copies of the estimator's model and optimizer on the CPU, which share their parameters."""
    model, optimizer = copy.deepcopy((estimator._value("model"), estimator._value("optimizer")))
    model.cpu()
    return model, bound(optimizer, list(model.parameters()))


def model_of(estimator: HorovodEstimator, rows: Rows, **trained: Any) -> TorchModel:
    """A TorchModel of what an estimator has trained, with the columns and losses of the estimator."""
    return TorchModel(
        **trained,
        feature_columns=estimator._features(rows.data.columns),
        input_shapes=estimator._value("input_shapes"),
        label_columns=estimator._value("label_cols"),
        loss=estimator._value("loss"),
        loss_constructors=estimator._value("loss_constructors"),
    )


def bound(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer over these parameters: itself, or, where it was made over equal ones, one over them in order.

    Raises:
        InvalidArgumentError: it was made over others.
    """
    theirs = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if {id(parameter) for parameter in theirs} <= {id(parameter) for parameter in parameters}:
        return optimizer
    if [each.shape for each in theirs] != [each.shape for each in parameters]:
        raise InvalidArgumentError(
            "optimizer was made over other parameters than the model's. Make it with model.parameters()."
        )
    ours = {id(old): new for old, new in zip(theirs, parameters)}
    found = copy.copy(optimizer)
    found.param_groups = [
        {**group, "params": [ours[id(parameter)] for parameter in group["params"]]} for group in optimizer.param_groups
    ]
    found.state = defaultdict(dict, {ours[id(old)]: state for old, state in optimizer.state.items()})
    return found


_MODEL_ROWS = (
    *MODEL_ROWS,
    Row("optimizer", None, "", any_value, "the optimizer over the model's parameters, as after the last epoch"),
    Row("input_shapes", None, "", shapes, "shape of each feature's batch, -1 first"),
    Row("loss", None, "", any_value, "the loss function, or one for each label"),
    Row("loss_constructors", None, "", any_value, "functions that make the losses"),
)


@with_parameters(_MODEL_ROWS)
class TorchModel(HorovodModel):
    """A trained PyTorch model: `transform` adds its outputs to a DataFrame."""

    def _predictor(self) -> Callable[[], Callable[[list[Any]], list[Any]]]:
        model = copy.deepcopy(self._value("model")).cpu()
        return functools.partial(loaded, cloudpickle.dumps(model), self._value("input_shapes"))


def loaded(data: bytes, input_shapes: Optional[Sequence[Sequence[int]]]) -> Callable[[list[Any]], list[Any]]:
    """From a model's pickle to a function of arrays. Called in the tasks."""
    model = cloudpickle.loads(data).eval()

    def outputs(arrays: list[Any]) -> list[Any]:
        if input_shapes is not None:
            arrays = [array.reshape(tuple(shape)) for array, shape in zip(arrays, input_shapes)]
        with torch.no_grad():
            found = model(*(tensor(array, torch.device("cpu")) for array in arrays))
        return [each.numpy() for each in as_list(found)]

    return outputs
