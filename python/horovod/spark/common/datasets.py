"""A data set in a store: Parquet files, and a list of those that are whole.

`prepare_data` writes the list when all files are complete, and readers open nothing that it does not name: what a
killed or repeated task has left is never read. Files of the user's own have no list; it is made from their footers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.columns import arrow
from horovod.spark.common.row_plan import RowGroup

_LIST: Final = "_horovod.json"  # which Spark and pyarrow take for no part of the data
_UNDER_WAY: Final = "_temporary"
_DONE: Final = "_SUCCESS"


class ColumnKind(NamedTuple):
    """What a column of a data set holds.

    Attributes:
        type: as Spark calls it.
        shape: of a row; () is a number.
    """

    type: str
    shape: Sequence[int] = ()


class Dataset(NamedTuple):
    """See the head of the file.

    Attributes:
        columns: by name.
        groups: of all files, whose paths are those of the store's file system.
    """

    columns: Mapping[str, ColumnKind]
    groups: Sequence[RowGroup]

    @property
    def rows(self) -> int:
        """How many."""
        return sum(group.rows for group in self.groups)


def finish(store: Any, path: str, data: Dataset) -> None:
    """Writes the list: from now on the data set is there."""
    store.write_text(f"{path}/{_LIST}", json.dumps({"columns": data.columns, "groups": data.groups}))


def is_finished(store: Any, path: str) -> bool:
    """The list is there."""
    return bool(store.exists(f"{path}/{_LIST}"))


def opened(store: Any, path: str) -> Dataset:
    """What is there.

    Raises:
        InvalidArgumentError: nothing is, or somebody still writes it.
    """
    if is_finished(store, path):
        found = json.loads(store.read(f"{path}/{_LIST}"))
        columns = {name: ColumnKind(*kind) for name, kind in found["columns"].items()}
        return Dataset(columns, [RowGroup(*group) for group in found["groups"]])
    if not store.exists(path):
        raise InvalidArgumentError(
            f"There are no rows at {path}. Call fit with a DataFrame, or write Parquet there first."
        )
    if store.exists(f"{path}/{_UNDER_WAY}") and not store.exists(f"{path}/{_DONE}"):
        raise InvalidArgumentError(f"The Parquet at {path} is still being written. Wait until {_DONE} is there.")
    return _of_files(store, path)


def _of_files(store: Any, path: str) -> Dataset:
    groups: list[RowGroup] = []
    columns: dict[str, ColumnKind] = {}
    for fragment in store.get_parquet_dataset(path).get_fragments():
        groups += groups_of(fragment.path, fragment.metadata)
        columns = columns or {field.name: _kind(field.type) for field in fragment.physical_schema}
    if not groups:
        raise InvalidArgumentError(f"The Parquet at {path} has no rows.")
    return Dataset(columns, groups)


def groups_of(path: str, footer: Any) -> list[RowGroup]:
    """The row groups of a file."""
    parts = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [RowGroup(path, number, part.num_rows, _size_of(part)) for number, part in enumerate(parts)]


def _size_of(part: Any) -> int:
    """In memory. In a file that others have written, a dictionary or run lengths may make it many times smaller."""
    columns = [part.column(number) for number in range(part.num_columns)]
    return sum(
        max(each.total_uncompressed_size, each.num_values * _WIDTHS.get(each.physical_type, 0)) for each in columns
    )


def _kind(of: Any) -> ColumnKind:
    """Of a column that others have written. The length of a list is known when it is read."""
    pa = arrow()
    if pa.types.is_struct(of):
        return ColumnKind("vector", (-1,))
    shape = []
    while pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of):
        shape.append(of.list_size if pa.types.is_fixed_size_list(of) else -1)
        of = of.value_type
    name = _SPARKS.get(str(of), str(of))
    return ColumnKind("array<" * len(shape) + name + ">" * len(shape), shape)


_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_SPARKS: Final = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "halffloat": "float",
}
