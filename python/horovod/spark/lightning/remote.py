"""What a rank does in a fit with Lightning. Knows nothing of pyspark."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import horovod.torch as hvd
from horovod._core.life import given_placement
from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader
from horovod.lightning.environment import free_port
from horovod.spark.common.on_rank import Run, gpu_index
from horovod.spark.lightning.observer import observer_of
from horovod.spark.lightning.plain_module import Parts, plain_module
from horovod.spark.torch.remote import as_list, on_cpu, scale, tensor

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
# Which hook of DDP does what a compression does.
HOOKS: Mapping[Any, Any] = {
    None: None,
    hvd.Compression.none: None,
    hvd.Compression.fp16: default_hooks.fp16_compress_hook,
    hvd.Compression.bf16: default_hooks.bf16_compress_hook,
}


@dataclass
class Work:
    """A fit.

    Attributes:
        run: see there.
        package: of `PACKAGES`.
        model: a LightningModule, or, with `parts`, another model.
        parts: optimizer and losses of such a model; None for a LightningModule, which has its own.
        compression: of hvd.Compression.
        arguments: for the Trainer; they win over what this file gives it.
        callbacks: of the user.
        gpus: for each rank; 0: the ranks use none.
        refuses_nan: a loss that is not finite ends the fit.
        edits: (name, type, shape, nullable) of columns.
        queues: how many batches are prepared ahead by a thread, in training and in validation.
        reports_waiting: logs how long each of these was waited for.
    """

    run: Run
    package: str
    model: Any
    parts: Optional[Parts]
    compression: Any
    arguments: Mapping[str, Any]
    callbacks: Sequence[Any]
    gpus: Optional[int]
    refuses_nan: bool
    edits: Sequence[Any]
    queues: tuple[int, int]
    reports_waiting: bool
    history: list[dict[str, Any]] = field(default_factory=list)


def package_of(model: Any) -> Optional[str]:
    """Which package's LightningModule this is; None if it is none."""
    for kind in type(model).__mro__:
        if kind.__name__ == "LightningModule":
            return next((name for name in PACKAGES if kind.__module__.startswith(f"{name}.")), None)
    return None


def train(work: Work) -> Optional[dict[str, Any]]:
    """Trains on this rank. Rank 0 returns the trained module, or the states of `parts`, with the history."""
    hvd.init()
    run, lightning = work.run, importlib.import_module(work.package)
    if run.seed is not None:
        torch.manual_seed(run.seed + hvd.rank())
    module = work.model
    if work.parts is not None:
        scale(work.parts.optimizer.param_groups, hvd.size())
        module = plain_module(lightning, work.model, work.parts, run)
    _share_a_store()
    with run.opened(hvd.rank(), hvd.size()) as data, tempfile.TemporaryDirectory() as scratch:
        observer = observer_of(lightning, work, scratch)
        trainer = _trainer(lightning, work, scratch, observer)
        training = _Loader(work, work.queues[0], module, data.train_data())
        validation = _Loader(work, work.queues[1], module, data.val_data()) if run.module_args["has_val"] else None
        try:
            trainer.fit(module, training, validation, ckpt_path=_checkpoint(run, scratch))
        finally:
            training.close_async_loader()
            if validation is not None:
                validation.close_async_loader()
    return _result(work, training.features, observer.size) if hvd.rank() == 0 else None


def _result(work: Work, features: Optional[list[Any]], size: int) -> dict[str, Any]:
    """Of rank 0: a LightningModule itself, which may have made layers on the ranks; of another model its state, and
    that of its optimizer with the learning rate of one process."""
    found: dict[str, Any] = {"history": work.history, "outputs": _shapes(work, features)}
    if work.parts is None:
        work.model.trainer = None
        return {**found, "module": work.model.cpu()}
    scale(work.parts.optimizer.param_groups, 1 / size)
    return {
        **found,
        "model": on_cpu(work.model.state_dict()),
        "optimizer": on_cpu(work.parts.optimizer.state_dict()),
    }


def _share_a_store() -> None:
    """On several hosts torch.distributed keeps a store at an address of rank 0's host, which all ranks must know."""
    if hvd.local_size() == hvd.size() or os.environ.get("MASTER_ADDR"):
        return
    here = (given_placement.address_for_other_hosts(), free_port()) if hvd.rank() == 0 else None
    address, port = hvd.broadcast_object(here, 0, name="spark.store")
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = address, str(port)


def _shapes(work: Work, features: Optional[list[Any]]) -> Optional[list[list[int]]]:
    """Of the outputs' rows; None where the model is not called in the way of `transform`, which says why if asked."""
    if features is None:
        return None
    try:
        with torch.no_grad():
            outputs = as_list(work.model.cpu().eval()(*features))
            return [list(each.shape[1:]) for each in outputs]
    except Exception:  # noqa: BLE001 - a module may be trained for another use; its training is done
        return None


def _checkpoint(run: Run, scratch: str) -> Optional[str]:
    """The run's checkpoint as a file of this rank; None if there is none. Rank 0 reads it for all.

    Raises:
        pickle.UnpicklingError: to load it would run code.
    """
    data = hvd.broadcast_object(run.checkpoint() if hvd.rank() == 0 else None, 0, name="spark.checkpoint")
    if data is None:
        return None
    path = os.path.join(scratch, "from.ckpt")
    with open(path, "wb") as kept:
        kept.write(data)
    torch.load(path, map_location="cpu", weights_only=True)  # Lightning may load it in a way that runs code
    return path


class _Loader(AsyncDataLoaderMixin, BaseDataLoader):
    """Batches for Lightning: tensors by column.

    Args:
        work: says which columns.
        queue: how many batches a thread prepares.
        module: knows the epoch.
        batches: of the data module.

    Attributes:
        features: of one row; None before the first batch.
    """

    def __init__(self, work: Work, queue: int, module: Any, batches: Any) -> None:
        super().__init__(queue, work.reports_waiting)
        self._work = work
        self._module = module
        self._batches = batches
        self.features: Optional[list[Any]] = None

    def __len__(self) -> int:
        return len(self._batches)  # TypeError where the user's have no length, as Lightning expects it

    def _iterate(self) -> Iterator[dict[str, Any]]:
        if hasattr(self._batches, "epoch"):
            self._batches.epoch = self._module.current_epoch  # a run that goes on has its next order of rows
        cpu = torch.device("cpu")
        for batch in self._batches:
            found = edited(batch, self._work.edits)
            run = self._work.run
            features, labels, weights = run.parts(found)
            self.features = self.features or [tensor(each[:1], cpu) for each in features]
            named = dict(zip([*run.features, *run.labels], [*features, *labels]))
            if run.weights is not None:
                named[run.weights] = weights
            yield {name: tensor(array, cpu) for name, array in named.items()}


def edited(batch: Mapping[str, Any], edits: Sequence[Any]) -> Mapping[str, Any]:
    """A batch whose columns have the types and shapes of `edits`."""
    changed = {
        name: batch[name].astype(of).reshape([len(batch[name]), *(-1 if each is None else each for each in shape)])
        for name, of, shape, _ in edits
        if name in batch
    }
    return {**batch, **changed}


def _trainer(lightning: Any, work: Work, scratch: str, observer: Any) -> Any:
    run, given = work.run, dict(work.arguments)
    wants_gpu = run.use_gpu and work.gpus != 0 and given.get("accelerator", "auto") in ("auto", "gpu", "cuda")
    gpus = torch.cuda.device_count() if wants_gpu and torch.cuda.is_available() else 0
    index = gpu_index(gpus, hvd.local_rank(), lambda has: hvd.allgather_object(has, name="spark.gpus"))
    given.pop("enable_checkpointing", None)  # there is always the observer, and so no other by default
    options = given.pop("strategy", {})
    theirs = given.pop("callbacks", work.callbacks) or []
    callbacks = [*(theirs if isinstance(theirs, (list, tuple)) else [theirs]), observer]
    return lightning.Trainer(
        **{
            "accelerator": "cpu" if index is None else "gpu",
            "default_root_dir": scratch,
            "enable_model_summary": run.verbose > 1,
            "enable_progress_bar": run.verbose > 1,
            "max_epochs": run.epochs,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            **given,
        },
        strategy=_strategy(lightning, work, options, index),
        devices=1,
        enable_checkpointing=True,
        callbacks=callbacks,
    )


def _strategy(lightning: Any, work: Work, options: Mapping[str, Any], index: Optional[int]) -> Any:
    importlib.import_module("horovod.lightning")  # registers it
    given = {"ddp_comm_hook": HOOKS[work.compression], **options}
    if work.parts is not None:  # a pass may leave parameters out, as with horovod.spark.torch
        given.setdefault("find_unused_parameters", True)
    made = lightning.strategies.StrategyRegistry["horovod"]["strategy"](**given)
    if index is not None:
        made.chosen_device = torch.device("cuda", index)
    return made
