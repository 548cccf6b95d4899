"""What a fit does after each epoch of Lightning's Trainer: the history, and a checkpoint in the run's store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

import horovod.torch as hvd
from horovod._core.errors import InvalidArgumentError
from horovod.spark.torch.remote import scale


class ObserverMethods:
    """Mixed in before Lightning's `Checkpoint`, so that it is called last: after the module's hooks and EarlyStopping.

    Args:
        work: a `remote.Work`, whose history it writes.
        scratch: a folder of this rank.

    Attributes:
        size: the number of ranks by which the learning rate of `work.parts` is multiplied now.
    """

    state_key = "horovod.spark"

    def __init__(self, work: Any, scratch: str) -> None:
        self._work = work
        self._scratch = scratch
        self.size = hvd.size()
        self._before: dict[str, Any] = {}
        self._of_validation: set[str] = set()  # names of values
        self._is_validated = False  # in this epoch

    def state_dict(self) -> dict[str, Any]:
        return {"history": self._work.history, "size": self.size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._work.history[:] = state["history"]
        self.size = state["size"]

    def on_train_start(self, trainer: Any, module: Any) -> None:
        del module
        if self._work.parts is not None:  # the checkpoint's rate is that of its number of ranks
            for optimizer in trainer.optimizers:
                scale(optimizer.param_groups, hvd.size() / self.size)
        self.size = hvd.size()

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        del trainer, module
        self._is_validated = False

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        del module
        self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        del module
        now = trainer.callback_metrics.items()
        self._of_validation |= {name for name, value in now if self._before.get(name) is not value}
        self._is_validated = True

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
        del module, batch
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if self._work.refuses_nan and loss is not None and not bool(torch.isfinite(torch.as_tensor(loss)).all()):
            raise InvalidArgumentError(
                f"terminate_on_nan: the loss of rank {hvd.rank()} in batch {number} of epoch "
                f"{trainer.current_epoch} is {float(loss)}. Lower the learning rate, or look at that batch."
            )

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        del module
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}  # all ranks ask
        if not self._is_validated:  # those of an epoch before
            values = {name: value for name, value in values.items() if name not in self._of_validation}
        run = self._work.run
        report = {"epoch": trainer.current_epoch, **values}
        self._work.history.append(report)
        if run.verbose and hvd.rank() == 0:
            print(line_of(report), flush=True)  # noqa: T201 - what users ask for
        if run.store.saving_runs():
            path = os.path.join(self._scratch, "to.ckpt")
            trainer.save_checkpoint(path, weights_only=False)  # with optimizers and loops
            if hvd.rank() == 0:
                with open(path, "rb") as kept:
                    run.keep(kept.read(), self._work.history)


def observer_of(lightning: Any, work: Any, scratch: str) -> Any:
    """A callback for the Trainer of this package: `lightning.pytorch` or `pytorch_lightning`."""
    return type("Observer", (ObserverMethods, lightning.callbacks.Checkpoint), {})(work, scratch)


def line_of(report: Mapping[str, Any]) -> str:
    """A report for people."""
    values = "".join(f" {name} {value:.4f}" for name, value in report.items() if name != "epoch")
    return f"epoch {report['epoch']}:{values}"
