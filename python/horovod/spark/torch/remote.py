"""What a rank does in a fit with PyTorch. Knows nothing of pyspark."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, Optional

import numpy as np
import torch

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.on_rank import Run, gpu_index


@dataclass
class Work:
    """A fit.

    Attributes:
        run: see there.
        model, optimizer: pickled together, so that they share their parameters.
        losses: functions, or what makes them, one for each label.
        are_constructors: which of both.
        loss_weights: one for each label.
        metrics: groups of functions, in each one for each label.
        compression: of hvd.Compression.
        passes: backward passes for each step.
        minibatch: the user's, or None.
    """

    run: Run
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    losses: Sequence[Callable[..., Any]]
    are_constructors: bool
    loss_weights: Sequence[float]
    metrics: Sequence[Sequence[Callable[..., Any]]]
    compression: Any
    passes: int
    minibatch: Optional[Callable[..., Any]]


def train(work: Work) -> Optional[dict[str, Any]]:
    """Trains on this rank. Rank 0 returns the states of model and optimizer, the history, and the outputs' shapes."""
    hvd.init()
    run = work.run
    if run.seed is not None:
        torch.manual_seed(run.seed + hvd.rank())
    with run.opened(hvd.rank(), hvd.size()) as module:
        trainer = _Trainer(work, _device(run.use_gpu))
        training = module.train_data()
        validation = module.val_data() if run.module_args["has_val"] else None
        if hasattr(training, "epoch"):
            training.epoch = len(trainer.history)  # a run that goes on has its next order of rows
        while len(trainer.history) < run.epochs:
            trainer.epoch(training, validation)
    return trainer.result() if trainer.rank == 0 else None


def _device(wanted: bool) -> torch.device:
    gpus = torch.cuda.device_count() if wanted and torch.cuda.is_available() else 0
    index = gpu_index(gpus, hvd.local_rank(), lambda has: hvd.allgather_object(has, name="spark.gpus"))
    if index is None:
        return torch.device("cpu")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


class Objective:
    """The weighted sum of the labels' losses."""

    def __init__(self, losses: Sequence[Callable[..., Any]], weights: Sequence[float]) -> None:
        self._losses = losses
        self._weights = weights

    def __call__(self, outputs: Sequence[Any], labels: Sequence[Any], sample_weights: Optional[Any] = None) -> Any:
        total: Any = 0.0
        for loss, weight, output, label in zip(self._losses, self._weights, outputs, labels):
            total = total + weight * _weighted(loss, output, label, sample_weights)
        return total


def _weighted(loss: Callable[..., Any], output: Any, label: Any, weights: Optional[Any]) -> Any:
    if weights is None:
        return loss(output, label)
    by_row = _by_row(loss, output, label)
    if by_row.dim() == 0:
        raise InvalidArgumentError(
            f"sample_weight_col: the loss {loss!r} returns one number for a batch, so rows cannot be weighted. Give a "
            "loss that takes reduction='none', or returns a number for each row."
        )
    return (by_row.reshape(len(weights), -1).mean(1) * weights).mean()


def _by_row(loss: Any, output: Any, label: Any) -> Any:
    if isinstance(loss, torch.nn.Module) and hasattr(loss, "reduction"):
        with _attribute(loss, "reduction", "none"):
            return loss(output, label)
    if "reduction" in _parameters(loss):
        return loss(output, label, reduction="none")
    return loss(output, label)


@contextlib.contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _parameters(function: Any) -> Sequence[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def as_list(outputs: Any, labels: Sequence[Any] = ()) -> list[Any]:
    """A model's outputs, one for each label."""
    found = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if labels and len(found) != len(labels):
        raise InvalidArgumentError(
            f"The model has {len(found)} outputs for {len(labels)} labels; it needs one for each."
        )
    return found


def tensor(array: Any, device: torch.device) -> torch.Tensor:
    """Of an array; floats get PyTorch's default type, which models have."""
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        array = array.copy()
    found = torch.as_tensor(array, device=device)
    return found.to(torch.get_default_dtype()) if found.is_floating_point() else found


class _Trainer:
    """Model and optimizer of this rank, made equal to the others', and what they have reported."""

    def __init__(self, work: Work, device: torch.device) -> None:
        self._work = work
        self._device = device
        self._size = hvd.size()
        self.rank = hvd.rank()
        self.history: list[dict[str, Any]] = []
        self._outputs: list[list[int]] = []
        self._under_way = 0
        self._model, plain = work.model.to(device), work.optimizer
        self._resume(plain)
        plain.load_state_dict(plain.state_dict())  # its tensors follow the parameters to the device
        scale(plain.param_groups, self._size)
        chosen = {id(parameter) for group in plain.param_groups for parameter in group["params"]}
        named = [each for each in self._model.named_parameters() if id(each[1]) in chosen]
        self._optimizer = hvd.DistributedOptimizer(plain, named, work.compression or hvd.Compression.none, work.passes)
        hvd.broadcast_parameters(self._model.state_dict(), 0)
        hvd.broadcast_optimizer_state(self._optimizer, 0)
        losses = [make() for make in work.losses] if work.are_constructors else work.losses
        for loss in losses:
            if isinstance(loss, torch.nn.Module):
                loss.to(device)
        self._objective = Objective(losses, work.loss_weights)

    def _resume(self, plain: torch.optim.Optimizer) -> None:
        """Goes on from the run's checkpoint, if there is one. Rank 0 reads it; broadcasts bring it to the others."""
        if self.rank == 0 and (data := self._work.run.checkpoint()) is not None:
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            self._model.load_state_dict(found["model"])
            plain.load_state_dict(found["optimizer"])
            self.history, self._outputs = found["history"], found["outputs"]
        self.history = hvd.broadcast_object(self.history, 0, name="spark.history")

    def epoch(self, training: Iterable[Any], validation: Optional[Iterable[Any]]) -> None:
        """One epoch; its report is in the history, and rank 0 keeps a checkpoint."""
        report = {"epoch": len(self.history), "train": self._averaged(training, self._train_on)}
        if validation is not None:
            with torch.no_grad():
                report["validation"] = self._averaged(validation, self._validate_on)
        self.history.append(report)
        if self.rank == 0:
            if self._work.run.verbose:
                print(line_of(report), flush=True)  # noqa: T201 - what users ask for
            if self._work.run.store.saving_runs():
                kept = io.BytesIO()
                torch.save(self.result(), kept)
                self._work.run.keep(kept.getvalue(), self.history)

    def _averaged(self, batches: Iterable[Any], on_batch: Callable[..., Any]) -> dict[str, Any]:
        """Loss and metrics over the rows of all ranks."""
        self._model.train(on_batch == self._train_on)
        sums = torch.zeros(2 + sum(map(len, self._work.metrics)), dtype=torch.float64)
        for batch in batches:
            inputs, labels, weights = self._work.run.parts(batch)
            given = [tensor(each, self._device) for each in inputs], [tensor(each, self._device) for each in labels]
            outputs, loss = on_batch(*given, None if weights is None else tensor(weights, self._device))
            self._outputs = self._outputs or [list(each.shape[1:]) for each in outputs]
            sums += len(given[1][0]) * self._reported(outputs, given[1], loss)
        self._finish_step()
        rows, loss, *metrics = hvd.allreduce(sums, op=hvd.Sum, name="spark.report").tolist()
        found = iter(metrics)
        groups = [[next(found) / rows for _ in group] for group in self._work.metrics]
        return {"loss": loss / rows, "all_metrics": groups}

    def _reported(self, outputs: Sequence[Any], labels: Sequence[Any], loss: Any) -> torch.Tensor:
        values = [1.0, float(loss)]
        with torch.no_grad():
            for group in self._work.metrics:
                values += [float(metric(*pair)) for metric, pair in zip(group, zip(outputs, labels))]
        return torch.tensor(values, dtype=torch.float64)

    def _train_on(self, inputs: Sequence[Any], labels: Sequence[Any], weights: Optional[Any]) -> tuple[Any, Any]:
        if self._work.minibatch is not None:
            found = self._work.minibatch(
                self._model, self._optimizer, as_list, self._objective, inputs, labels, weights
            )
            return as_list(found[0]), found[1]
        if self._under_way == 0:
            self._optimizer.zero_grad()
        outputs = as_list(self._model(*inputs), labels)
        loss = self._objective(outputs, labels, weights)
        loss.backward()
        self._under_way += 1
        if self._under_way == self._work.passes:
            self._finish_step()
        return outputs, loss.detach()

    def _finish_step(self) -> None:
        """Also of fewer passes, at the end of an epoch."""
        if self._under_way:
            self._optimizer.step()
            self._under_way = 0

    def _validate_on(self, inputs: Sequence[Any], labels: Sequence[Any], weights: Optional[Any]) -> tuple[Any, Any]:
        outputs = as_list(self._model(*inputs), labels)
        return outputs, self._objective(outputs, labels, weights)

    def result(self) -> dict[str, Any]:
        """What is kept of the training, on the CPU, with the learning rate of one process."""
        states: Any = on_cpu({"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict()})
        scale(states["optimizer"]["param_groups"], 1 / self._size)
        return {**states, "history": self.history, "outputs": self._outputs}


def scale(groups: Iterable[dict[str, Any]], factor: float) -> None:
    """Multiplies the learning rates of an optimizer's groups, in place."""
    for group in groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = group[name] * factor


def on_cpu(value: Any) -> Any:
    """A copy of nested dictionaries and lists, whose tensors are on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, dict):
        return {key: on_cpu(each) for key, each in value.items()}
    return [on_cpu(each) for each in value] if isinstance(value, list) else value


def line_of(report: dict[str, Any]) -> str:
    """A report for people."""
    parts = [f"epoch {report['epoch']}:"]
    for name in ("train", "validation"):
        if name in report:
            metrics = "".join(f" {value:.4f}" for group in report[name]["all_metrics"] for value in group)
            parts.append(f"{name} loss {report[name]['loss']:.4f}{' metrics' if metrics else ''}{metrics}")
    return " ".join(parts)
