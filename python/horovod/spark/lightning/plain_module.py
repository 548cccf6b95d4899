"""A PyTorch model with its optimizer and losses, as a module of Lightning. Knows nothing of pyspark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import horovod.torch as hvd
from horovod.spark.torch.remote import Objective, as_list


@dataclass
class Parts:
    """What a LightningModule has of its own, and another model gets from the estimator.

    Attributes:
        optimizer: pickled together with the model, so that they share their parameters.
        losses: functions, or what makes them, one for each label.
        are_constructors: which of both.
        loss_weights: one for each label.
        metrics: groups of functions, in each one for each label.
    """

    optimizer: torch.optim.Optimizer
    losses: Sequence[Callable[..., Any]]
    are_constructors: bool
    loss_weights: Sequence[float]
    metrics: Sequence[Sequence[Callable[..., Any]]]


def plain_module(lightning: Any, model: torch.nn.Module, parts: Parts, run: Any) -> Any:
    """A LightningModule that trains the model; it reports train_loss and val_loss, and metrics by group and label.

    Args:
        lightning: `lightning.pytorch` or `pytorch_lightning`.
        run: names the columns of features, labels and weights.
    """

    class PlainModule(lightning.LightningModule):  # type: ignore[misc]
        """See `plain_module`."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            losses = [make() for make in parts.losses] if parts.are_constructors else parts.losses
            self.modules_of_losses = torch.nn.ModuleList(each for each in losses if isinstance(each, torch.nn.Module))
            self._objective = Objective(losses, parts.loss_weights)

        def forward(self, *features: Any) -> Any:
            return self.model(*features)

        def training_step(self, batch: dict[str, Any], number: int) -> Any:
            del number
            return self._step(batch, "train")

        def validation_step(self, batch: dict[str, Any], number: int) -> Any:
            del number
            return self._step(batch, "val")

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return parts.optimizer

        def _step(self, batch: dict[str, Any], stage: str) -> Any:
            labels = [batch[name] for name in run.labels]
            outputs = as_list(self.model(*(batch[name] for name in run.features)), labels)
            loss = self._objective(outputs, labels, None if run.weights is None else batch[run.weights])
            values = {f"{stage}_loss": loss.detach()}
            with torch.no_grad():
                for number, group in enumerate(parts.metrics):
                    for name, metric, output, label in zip(run.labels, group, outputs, labels):
                        values[f"{stage}_metric_{number}_{name}"] = torch.as_tensor(float(metric(output, label)))
            # Times the ranks: Lightning averages the ranks' numbers of rows as whole numbers.
            rows = len(labels[0]) * hvd.size()
            self.log_dict(values, on_step=False, on_epoch=True, sync_dist=True, batch_size=rows)
            return loss

    return PlainModule()
