"""What ranks of all frameworks do in a fit besides training: find their GPU, read batches, keep checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Final, NamedTuple, Optional

import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.datamodule import DataModule
from horovod.spark.task import get_available_devices

_BY_LOCAL_RANK: Final = "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX"


class Run(NamedTuple):
    """One fit, as the ranks know it.

    Attributes:
        store: where its checkpoints lie.
        id: its name.
        module: class of the data module.
        module_args: what it is made with.
        features, labels: names of columns.
        weights: the column of the rows' weights, or None.
        input_shapes, label_shapes: of batches; None: as they come.
        epochs, verbose, seed, use_gpu: as of the estimator.
    """

    store: Any
    id: str
    module: type[DataModule]
    module_args: Mapping[str, Any]
    features: Sequence[str]
    labels: Sequence[str]
    weights: Optional[str]
    input_shapes: Optional[Sequence[Sequence[int]]]
    label_shapes: Optional[Sequence[Sequence[int]]]
    epochs: int
    verbose: int
    seed: Optional[int]
    use_gpu: bool

    def opened(self, rank: int, size: int) -> DataModule:
        """The data module of a rank."""
        return self.module(cur_shard=rank, shard_count=size, **self.module_args)

    def parts(self, batch: Mapping[str, Any]) -> tuple[list[Any], list[Any], Optional[Any]]:
        """Features, labels and weights of a batch, in their shapes."""
        weights = None if self.weights is None else batch[self.weights]
        features = _shaped(batch, self.features, self.input_shapes)
        return features, _shaped(batch, self.labels, self.label_shapes), weights

    def checkpoint(self) -> Optional[bytes]:
        """What `keep` has written; None if there is nothing."""
        if not self.store.saving_runs():
            return None
        path = self.store.get_checkpoint_path(self.id)
        for each in (path, self._history_path()):
            self.store.settle(each)
        return self.store.read(path) if self.store.exists(path) else None

    def keep(self, checkpoint: bytes, history: Any) -> None:
        """Writes a checkpoint, and the history beside it for people."""
        if self.store.saving_runs():
            self.store.write_text(self._history_path(), json.dumps(history))
            self.store.write(self.store.get_checkpoint_path(self.id), checkpoint)

    def _history_path(self) -> str:
        return f"{self.store.get_logs_path(self.id)}/history.json"


def _shaped(batch: Mapping[str, Any], names: Sequence[str], shapes: Optional[Sequence[Sequence[int]]]) -> list[Any]:
    found = []
    for number, name in enumerate(names):
        array = batch[name]
        if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
            raise InvalidArgumentError(
                f"Column {name!r} holds {array.dtype}, and a model takes numbers. Turn it into numbers before fit, or "
                "in transformation_fn."
            )
        found.append(array if shapes is None else array.reshape(tuple(shapes[number])))
    return found


def gpu_index(gpus: int, local_rank: int, everywhere: Callable[[bool], list[bool]]) -> Optional[int]:
    """Which GPU this rank uses: the one that Spark has given its task, else by its local rank; None without GPUs.

    Args:
        gpus: that this process sees.
        local_rank: of this rank.
        everywhere: tells all ranks whether this one has any, and returns what they tell.

    Raises:
        RuntimeError: only some ranks have GPUs.
    """
    have = everywhere(gpus > 0)
    if len(set(have)) > 1:
        without = [str(rank) for rank, has in enumerate(have) if not has]
        raise RuntimeError(
            f"Ranks {', '.join(without)} see no GPU, the others do. Give all tasks one, or set use_gpu=False."
        )
    if not gpus:
        return None
    given = [] if int(os.environ.get(_BY_LOCAL_RANK) or 0) > 0 else get_available_devices()
    wanted = int(given[0]) if given and given[0].isdigit() else local_rank
    return wanted if wanted < gpus else local_rank % gpus
