"""Columns: from Arrow to arrays that frameworks take, and from what Spark sends to what is stored.

Used by what writes a data set (in Spark's tasks), by what reads it (on ranks) and by models (in tasks again). A stored
column is a number, a text, a list of a fixed size (of lists), or a sparse vector. Needs NumPy and pyarrow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Optional, Union

import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod._core.frameworks import require

_SPARSE_TYPE: Final = 0  # in the field `type` of Spark's vectors
_VECTOR_FIELDS: Final = ("type", "size", "indices", "values")
_STORED_SPARSE_FIELDS: Final = ("size", "indices", "values")


class SparseRows:
    """Rows of a sparse vector column. Made dense only for the rows of a batch.

    Args:
        size: of each vector.
        counts: of entries, by row.
        indices, values: of the entries of all rows, one row after the other.
    """

    def __init__(self, size: int, counts: np.ndarray[Any, Any], indices: Any, values: Any) -> None:
        self.size = size
        self._counts = counts
        self._indices = indices
        self._values = values
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return len(self._counts)

    def __getitem__(self, rows: slice) -> np.ndarray[Any, Any]:
        """These rows, dense."""
        return self.take(np.arange(len(self))[rows])

    def take(self, rows: np.ndarray[Any, Any], axis: int = 0) -> np.ndarray[Any, Any]:
        """These rows, dense, by NumPy's name."""
        del axis
        counts = self._counts[rows]
        to = np.repeat(np.arange(len(rows)), counts)
        of = np.repeat(self._ends[rows] - np.cumsum(counts), counts) + np.arange(len(to))
        dense = np.zeros((len(rows), self.size), self._values.dtype)
        dense[to, self._indices[of]] = self._values[of]
        return dense

    @staticmethod
    def joined(parts: Sequence[SparseRows]) -> SparseRows:
        """The rows of all of them, which have one size."""
        counts, indices, values = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("_counts", "_indices", "_values")
        )
        return SparseRows(parts[0].size, counts, indices, values)

    @staticmethod
    def of(dense: np.ndarray[Any, Any]) -> SparseRows:
        """Of rows that are dense: all their values are entries."""
        rows, size = dense.shape
        return SparseRows(size, np.full(rows, size), np.tile(np.arange(size), rows), dense.reshape(-1))

    def arrow(self) -> Any:
        """As it is stored."""
        pa = arrow()
        offsets = np.concatenate([[0], self._ends]).astype(np.int32)
        size = pa.array(np.full(len(self), self.size, np.int32))
        indices = pa.ListArray.from_arrays(offsets, pa.array(self._indices.astype(np.int32)))
        values = pa.ListArray.from_arrays(offsets, pa.array(self._values))
        return pa.StructArray.from_arrays([size, indices, values], list(_STORED_SPARSE_FIELDS))


Column = Union["np.ndarray[Any, Any]", SparseRows]
Columns = Mapping[str, Column]


class Unequal(NamedTuple):
    """Why a column cannot be stored: two shapes of its rows, or nulls."""

    fact: str


def arrow() -> Any:
    """The module pyarrow, with those below it that are used."""
    require("pyarrow", "Apache Arrow", "horovod.spark")
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet

    return pyarrow


def joined(parts: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows of arrays, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def gathered(
    parts: Iterator[Columns], number: int, rows: int, room: Optional[dict[str, np.ndarray[Any, Any]]] = None
) -> Columns:
    """The rows of `number` parts, each column in one piece of memory.

    Args:
        rows: of all parts.
        room: arrays of an earlier call, which nobody needs any more, to be used again; those of this one afterwards.

    Raises:
        InvalidArgumentError: the rows of a column differ in shape.
    """
    first = next(parts)
    if number == 1:
        return first
    room = {} if room is None else room
    columns = {name: _Gathered(name, rows, room) for name in first}
    for part in itertools.chain([first], itertools.islice(parts, number - 1)):
        for name, column in part.items():
            columns[name].add(column)
    return {name: column.whole() for name, column in columns.items()}


class _Gathered:
    """A column of several parts."""

    def __init__(self, name: str, rows: int, room: dict[str, np.ndarray[Any, Any]]) -> None:
        self._name = name
        self._rows = rows
        self._room = room
        self._at = 0
        self._dense: Optional[np.ndarray[Any, Any]] = None
        self._sparse: list[SparseRows] = []

    def add(self, column: Column) -> None:
        """The rows of the next part."""
        if isinstance(column, SparseRows):
            self._require_same((self._sparse or [column])[0].size, column.size)
            self._sparse.append(column)
            return
        if self._dense is None:
            self._dense = self._array(column)
        self._require_same(self._dense.shape[1:], column.shape[1:])
        if column.dtype != self._dense.dtype:  # of transformation_fn
            self._dense = self._dense.astype(np.result_type(self._dense, column))
        self._dense[self._at : self._at + len(column)] = column
        self._at += len(column)

    def _array(self, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        room = self._room.get(self._name)
        fits = room is not None and len(room) >= self._rows and room.dtype == like.dtype
        if room is None or not fits or room.shape[1:] != like.shape[1:]:
            room = self._room[self._name] = np.empty((self._rows, *like.shape[1:]), like.dtype)
        return room[: self._rows]

    def _require_same(self, one: object, other: object) -> None:
        if one != other:
            raise _unfit(self._name, Unequal(f"its rows are not uniform: one has shape {one}, another {other}"))

    def whole(self) -> Column:
        """All rows."""
        return SparseRows.joined(self._sparse) if self._dense is None else self._dense


def decoded(table: Any) -> Columns:
    """The columns of a table or record batch of Arrow's."""
    return {name: _decoded(column, name) for name, column in zip(table.schema.names, table.columns)}


def _decoded(column: Any, name: str) -> Column:
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        # combine_chunks() would copy a single chunk, too.
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # of some versions, where there is none
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_struct(column.type):
        vectors = _vectors(column)
        if isinstance(vectors, Unequal):
            raise _unfit(name, vectors)
        if isinstance(vectors, np.ndarray):
            return vectors
        return vectors if column.type.num_fields == len(_STORED_SPARSE_FIELDS) else vectors[:]
    flat = uniform(column)
    if isinstance(flat, Unequal):
        raise _unfit(name, flat)
    values, shape = flat
    found: np.ndarray[Any, Any] = values.to_numpy(zero_copy_only=False)
    return found.reshape(len(column), *shape) if shape else found


def _unfit(name: str, why: Unequal) -> InvalidArgumentError:
    return InvalidArgumentError(f"Column {name!r}: {why.fact}. All rows must have the same shape, without nulls.")


def uniform(column: Any) -> Union[Unequal, tuple[Any, tuple[int, ...]]]:
    """The values of an array of lists (of lists), flat, and the shape of each row."""
    pa = arrow()
    if column.null_count:
        return Unequal(f"{column.null_count} rows have no value")
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        length = kind.list_size
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False))
        if len(lengths) > 1:
            return Unequal(f"its rows are not uniform: one has {lengths[0]} values, another {lengths[-1]}")
        length = int(lengths[0]) if len(lengths) else 0
    else:
        return column, ()
    inner = uniform(column.flatten())
    return inner if isinstance(inner, Unequal) else (inner[0], (length, *inner[1]))


def _vectors(column: Any) -> Union[Unequal, Column]:
    """The rows of Spark's vectors without their wrapper, or of sparse vectors as they are stored. An array where all
    are dense."""
    names = [column.type.field(number).name for number in range(column.type.num_fields)]
    if names not in (list(_VECTOR_FIELDS), list(_STORED_SPARSE_FIELDS)):
        raise InvalidArgumentError(
            f"A column is a structure of {', '.join(names)}, which is no vector. Select its fields as columns."
        )
    if column.null_count:
        return Unequal(f"{column.null_count} rows have no value")
    parts = dict(zip(names, column.flatten()))
    counts = parts["values"].value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    values = parts["values"].flatten().to_numpy(zero_copy_only=False)
    types = parts["type"].to_numpy(zero_copy_only=False) if "type" in parts else np.zeros(len(counts))
    if len(counts) and (types != _SPARSE_TYPE).all() and (counts == counts[0]).all():
        dense: np.ndarray[Any, Any] = values.reshape(len(counts), -1)
        return dense
    indices = parts["indices"].flatten().to_numpy(zero_copy_only=False).astype(np.int64)
    sizes = parts["size"].to_numpy(zero_copy_only=False)
    if "type" in parts:
        sparse = types == _SPARSE_TYPE
        sizes = np.where(sparse, np.nan_to_num(sizes), counts)
        everywhere = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
        everywhere[np.repeat(sparse, counts)] = indices
        indices = everywhere
    found = np.unique(sizes).astype(np.int64)
    if len(found) > 1:
        return Unequal(f"its vectors are not uniform: one has {found[0]} values, another {found[-1]}")
    return SparseRows(int(found[0]) if len(found) else 0, counts, indices, values)


def stored(column: Any, sparse: bool) -> Union[Unequal, tuple[Any, tuple[int, ...]]]:
    """A column of Spark's as it is written, and the shape of each row.

    Args:
        column: an array of Arrow's.
        sparse: vectors are written as sparse ones.
    """
    pa = arrow()
    if pa.types.is_struct(column.type):
        vectors = _vectors(column)
        if isinstance(vectors, Unequal):
            return vectors
        if isinstance(vectors, np.ndarray):
            return (SparseRows.of(vectors).arrow() if sparse else fixed(vectors)), vectors.shape[1:]
        return (vectors.arrow() if sparse else fixed(vectors[:])), (vectors.size,)
    flat = uniform(column)
    if isinstance(flat, Unequal):
        return flat
    values, shape = flat
    for length in reversed(shape):
        values = pa.FixedSizeListArray.from_arrays(values, length)
    return values, shape


def fixed(values: np.ndarray[Any, Any]) -> Any:
    """An array of Arrow's whose rows are those of `values`: numbers, or lists of a fixed size."""
    pa = arrow()
    found = pa.array(values.reshape(-1))
    for length in reversed(values.shape[1:]):
        found = pa.FixedSizeListArray.from_arrays(found, length)
    return found


def as_frame(columns: Columns) -> Any:
    """For `transformation_fn`: a frame of pandas; cells of a column with a shape are arrays."""
    pandas = require("pandas", "pandas", "transformation_fn")
    dense = {name: column[:] for name, column in columns.items()}
    return pandas.DataFrame({name: column if column.ndim == 1 else list(column) for name, column in dense.items()})


def of_frame(frame: Any, names: Sequence[str], rows: int) -> Columns:
    """From what `transformation_fn` returns.

    Raises:
        InvalidArgumentError: columns are missing, or it has another number of rows.
    """
    missing = [name for name in names if name not in getattr(frame, "columns", ())]
    if missing:
        raise InvalidArgumentError(
            f"transformation_fn returned no column {', '.join(map(repr, missing))}; it must return a frame with "
            f"{', '.join(map(repr, names))}."
        )
    if len(frame) != rows:
        raise InvalidArgumentError(
            f"transformation_fn returned {len(frame)} rows for {rows}; ranks would get out of step. Filter the "
            "DataFrame before fit."
        )
    return {name: _stacked(frame[name]) for name in names}


def _stacked(series: Any) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = series.to_numpy()
    if values.dtype == object and len(values) and not isinstance(values[0], (str, bytes)):
        return np.stack([np.asarray(value) for value in values])
    return values
