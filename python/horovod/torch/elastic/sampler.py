"""A sampler that shards what is left of an epoch, so that an epoch goes on after the number of ranks has changed.

Used with `torch.utils.data.DataLoader` and stored in a `TorchState`. It never communicates: that every rank has the
same epoch and count is the business of the state (`horovod.torch.elastic.state.SamplerStateHandler`).
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Iterator, Sized
from typing import Any

import torch
import torch.utils.data

from horovod._core.life import context

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Shards the not-yet-processed indices of a data set over the ranks.

    All ranks shuffle the whole data set in the same way (from `seed` and the epoch), drop what has been processed in
    this epoch, and take every size-th index of the rest. Indices are repeated at the end so that all ranks have the
    same number.

    Args:
        dataset: any object with a length.
        shuffle: shuffle again in every epoch.
        seed: of the shuffle; must be equal on all ranks.

    Attributes:
        epoch: as given to `set_epoch`.
        processed_num: samples of this epoch that all ranks together have processed.
        remaining_indices: the indices still to do, in the order of this epoch, of all ranks together.
        num_samples: how many of them (with repetitions) this rank will do.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 1
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: nothing is processed, and the order is shuffled again.

        Call it at the *end* of an epoch (for the next one), so that a restart in the middle of an epoch does not begin
        it again.

        Args:
            epoch: number of the epoch.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts a batch as processed, on this and by assumption on every other rank.

        Args:
            batch_idx: index of the batch since the last `reset`; kept for the reader, all batches up to the last are
                counted one by one.
            batch_size: samples in this rank's batch.
        """
        self.processed_num = min(self.processed_num + batch_size * self.num_replicas, len(self.dataset))

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """The data set indices of this rank's batch number `batch_idx` since the last `reset`."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def reset(self) -> None:
        """Shards the remaining indices over the ranks that there are now. Before `hvd.init()` there is one rank."""
        initialized = context.is_initialized()
        self.num_replicas = context.size() if initialized else 1
        self.rank = context.rank() if initialized else 0
        order = self._order()
        self.remaining_indices = order[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._own_share()

    def state_dict(self) -> dict[str, Any]:
        """Epoch and count, for a checkpoint."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave, and shards again.

        Raises:
            KeyError: an entry is missing.
        """
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples

    def _order(self) -> list[int]:
        order = list(range(len(self.dataset)))
        if not self.shuffle:
            return order
        # Not torch's: the order of a seed is that of existing programs.
        seed = self.seed + self.epoch
        random.Random(seed if isinstance(seed, float) else operator.index(seed)).shuffle(order)
        return order

    def _own_share(self) -> list[int]:
        remaining = self.remaining_indices
        if not remaining:
            return []
        missing = self.total_size - len(remaining)
        repeats = math.ceil(missing / len(remaining))
        padded = remaining + (remaining * repeats)[:missing]
        return padded[self.rank : self.total_size : self.num_replicas]
