"""Data modules: from where the ranks of a fit have their batches. A user's own takes the place of ours by the
estimator's `data_module`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Callable, Optional

from horovod._core.errors import UnsupportedError
from horovod.spark.common import datasets
from horovod.spark.common.reading import Batches, Reading, batches

__all__ = ["DataModule", "NVTabularDataModule", "ParquetDataModule", "PetastormDataModule"]


class DataModule:
    """What gives a rank its batches. A context manager: the estimator enters it before the first epoch.

    An estimator calls `train_data()` and `val_data()` once, and iterates over what they return once for each epoch. A
    batch is a mapping from the names of the columns to arrays. All ranks must give the same number of batches.

    Args:
        train_dir, val_dir: paths of the data sets in the store.
        num_train_epochs: how many epochs there will be.
        has_val: there is something to validate with.
        train_batch_size, val_batch_size: rows of a batch.
        shuffle: another order in every epoch.
        transform_fn: the estimator's transformation_fn.
        inmemory_cache_all: all rows of the rank stay in memory.
        cur_shard, shard_count: rank and size.
        schema_fields: the columns that are wanted.
        storage_options: of fsspec.
        steps_per_epoch_train, steps_per_epoch_val: batches of an epoch; None: all rows.
        verbose: says more.
        **kwargs: `store`, `random_seed`, `shuffle_buffer_size`, `train_reader_num_workers`,
            `val_reader_num_workers`, `reader_pool_type`, `mp_start_method` of the estimator; `data_sets`,
            by path, as the driver sees them, so that all ranks see the same.
    """

    short_name: str = ""

    def __init__(
        self,
        train_dir: str,
        val_dir: str,
        num_train_epochs: int = 1,
        has_val: bool = True,
        train_batch_size: int = 32,
        val_batch_size: int = 32,
        shuffle: bool = True,
        transform_fn: Optional[Callable[[Any], Any]] = None,
        inmemory_cache_all: bool = False,
        cur_shard: int = 0,
        shard_count: int = 1,
        schema_fields: Optional[Sequence[str]] = None,
        storage_options: Optional[dict[str, Any]] = None,
        steps_per_epoch_train: Optional[int] = None,
        steps_per_epoch_val: Optional[int] = None,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.num_train_epochs = num_train_epochs
        self.has_val = has_val
        self.train_batch_size = train_batch_size
        self.val_batch_size = val_batch_size
        self.shuffle = shuffle
        self.transform_fn = transform_fn
        self.inmemory_cache_all = inmemory_cache_all
        self.cur_shard = cur_shard
        self.shard_count = shard_count
        self.schema_fields = schema_fields
        self.storage_options = storage_options
        self.steps_per_epoch_train = steps_per_epoch_train
        self.steps_per_epoch_val = steps_per_epoch_val
        self.verbose = verbose
        self.kwargs = kwargs

    def __enter__(self) -> DataModule:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Gives up what was opened; nothing by default."""

    def train_data(self) -> Iterable[Any]:
        """The batches to train with."""
        raise NotImplementedError(f"{type(self).__name__} must define train_data.")

    def val_data(self) -> Iterable[Any]:
        """The batches to validate with."""
        raise NotImplementedError(f"{type(self).__name__} must define val_data.")


class ParquetDataModule(DataModule):
    """The rows of the store's data sets: each once in an epoch, read by pyarrow. What estimators use by default."""

    short_name = "parquet"

    def __enter__(self) -> ParquetDataModule:
        self._opened: list[Batches] = []
        return self

    def __exit__(self, *why: Any) -> None:
        for each in self._opened:
            each.close()

    def train_data(self) -> Batches:
        """See `DataModule`."""
        workers = self.kwargs.get("train_reader_num_workers", 2)
        reading = self._reading(self.train_batch_size, self.steps_per_epoch_train, self.shuffle, workers)
        return self._batches(self.train_dir, reading, "rows to train with")

    def val_data(self) -> Batches:
        """See `DataModule`. In the same order in every epoch."""
        workers = self.kwargs.get("val_reader_num_workers", 2)
        reading = self._reading(self.val_batch_size, self.steps_per_epoch_val, False, workers)
        return self._batches(self.val_dir, reading, "rows to validate with")

    def _reading(self, batch_size: int, steps: Optional[int], shuffle: bool, workers: int) -> Reading:
        return Reading(
            store=self.kwargs["store"],
            columns=list(self.schema_fields or ()),
            batch_size=batch_size,
            steps=steps,
            shuffle=shuffle,
            seed=self.kwargs.get("random_seed") or 0,
            window_rows=self.kwargs.get("shuffle_buffer_size"),
            transformation_fn=self.transform_fn,
            is_cached=self.inmemory_cache_all,
            workers=workers,
            pool=self.kwargs.get("reader_pool_type", "thread"),
            start_method=self.kwargs.get("mp_start_method"),
            removed=self.kwargs.get("transformation_removed_fields") or (),
        )

    def _batches(self, path: str, reading: Reading, what: str) -> Batches:
        data = self.kwargs.get("data_sets", {}).get(path) or datasets.opened(reading.store, path)
        made = batches(data, reading, self.cur_shard, self.shard_count, what)
        if self.verbose and self.cur_shard == 0:
            line = f"horovod.spark: {data.rows} {what} in {len(data.groups)} row groups, {len(made)} steps an epoch."
            print(line, file=sys.stderr)  # noqa: T201
        self._opened.append(made)
        return made


# The name that programs of users know.
PetastormDataModule = ParquetDataModule


class NVTabularDataModule(DataModule):
    """Not in this version.

    Raises:
        UnsupportedError: always; says what to use.
    """

    short_name = "nvtabular"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        raise UnsupportedError(
            "NVTabularDataModule is not in this version: NVTabular is no longer maintained. Remedy: leave data_module "
            "out, which reads Parquet by pyarrow; or give a class derived from "
            "horovod.spark.common.datamodule.DataModule that reads as you want."
        )
