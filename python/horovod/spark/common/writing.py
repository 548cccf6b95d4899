"""From a DataFrame to a data set in a store: what each task of Spark does. Also what it reports of it.

A task writes files of its own under names that nobody else uses, and reports them; the driver lists what the tasks that
have succeeded reported. Travels to the executors inside Spark's own messages, with the store.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Optional

from horovod.spark.common.columns import Unequal, arrow, stored
from horovod.spark.common.datasets import groups_of
from horovod.spark.common.row_plan import RowGroup

REPORT: Final = "report string"  # the schema of what tasks return
_ROW_GROUP_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Writing:
    """What all tasks do.

    Attributes:
        store: see there.
        paths: of the data set to train with, and of the one to validate with.
        columns: that are written.
        share: of the rows, drawn at random, to validate with.
        marks: the column that says which rows these are; "": `share` does.
        sparse: vectors are written as sparse ones.
    """

    store: Any
    paths: Sequence[str]
    columns: Sequence[str]
    share: float
    marks: str
    sparse: bool

    def of_partition(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For `DataFrame.mapInArrow`."""
        pa = arrow()
        yield pa.RecordBatch.from_pydict({"report": [json.dumps(self._written(batches))]})

    def _written(self, batches: Iterable[Any]) -> dict[str, Any]:
        """Of each data set the row groups, of each column the shape of a row, and what makes a column unfit."""
        files = [_File(self.store, path) for path in self.paths]
        shapes: dict[str, Sequence[int]] = {}
        for number, batch in enumerate(batches):
            if self.marks and (nulls := batch.column(self.marks).null_count):
                return {"unfit": [self.marks, f"{nulls} rows have no value"]}
            table = {}
            for name in self.columns if batch.num_rows else ():
                found = stored(batch.column(name), self.sparse)
                if not isinstance(found, Unequal) and shapes.setdefault(name, found[1]) != found[1]:
                    found = Unequal(unequal(shapes[name], found[1]))
                if isinstance(found, Unequal):
                    return {"unfit": [name, found.fact]}
                table[name] = found[0]
            for file, rows in zip(files, self._parted(table, batch, number) if table else ()):
                file.take(rows)
        return {"groups": [file.finished() for file in files], "shapes": shapes}

    def _parted(self, table: Mapping[str, Any], batch: Any, number: int) -> Iterator[Any]:
        """The rows to train with, and those to validate with."""
        import numpy as np

        whole = arrow().Table.from_pydict(table)
        if len(self.paths) == 1:
            yield whole
            return
        if self.marks:
            marked = batch.column(self.marks).to_numpy(zero_copy_only=False).astype(float) > 0
        else:
            marked = np.random.default_rng([_partition(), number]).random(batch.num_rows) < self.share
        for rows in (~marked, marked):
            yield whole.filter(arrow().array(rows))


def unequal(one: Sequence[int], other: Sequence[int]) -> str:
    """The shapes differ, in words."""
    return f"its rows are not uniform: one has shape {tuple(one)}, another {tuple(other)}"


def _partition() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context else 0


class _File:
    """The file that a task writes of a data set; made with its first rows."""

    def __init__(self, store: Any, path: str) -> None:
        self._store = store
        self._path = f"{store.path_in_fs(path)}/part-{_partition():05d}-{secrets.token_hex(8)}.parquet"
        self._rows: list[Any] = []
        self._size = 0
        self._sink: Optional[Any] = None
        self._writer: Optional[Any] = None

    def take(self, rows: Any) -> None:
        """Writes a row group whenever enough have come."""
        if rows.num_rows:
            self._rows.append(rows)
            self._size += rows.nbytes
        if self._size >= _ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        pa = arrow()
        if not self._rows:
            return
        rows = pa.concat_tables(self._rows)
        if self._writer is None:
            fs = self._store.fs
            fs.makedirs(self._path.rpartition("/")[0], exist_ok=True)
            self._sink = fs.open(self._path, "wb")
            self._writer = pa.parquet.ParquetWriter(self._sink, rows.schema, use_dictionary=False)
        parts = max(1, -(-self._size // (2 * _ROW_GROUP_BYTES)))
        self._writer.write_table(rows, row_group_size=max(1, -(-rows.num_rows // parts)))
        self._rows, self._size = [], 0

    def finished(self) -> list[RowGroup]:
        """Its row groups, once it is complete."""
        self._flush()
        if self._writer is None or self._sink is None:
            return []
        self._writer.close()
        self._sink.close()
        with self._store.fs.open(self._path, "rb") as file:
            return groups_of(self._path, arrow().parquet.read_metadata(file))


def shapes_of(reports: Sequence[Mapping[str, Any]]) -> dict[str, list[int]] | Unequal:
    """The shape of each column's rows, the same in all tasks; else the first column that is unfit, in words."""
    found: dict[str, list[int]] = {}
    for report in reports:
        if "unfit" in report:
            return Unequal("column {!r}: {}".format(*report["unfit"]))
        for name, shape in report["shapes"].items():
            if found.setdefault(name, shape) != shape:
                return Unequal(f"column {name!r}: {unequal(found[name], shape)}")
    return found
