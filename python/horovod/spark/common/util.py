"""`prepare_data`: the rows of a DataFrame in a store, for the ranks of a fit."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import sys
import threading
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Optional, Union
from weakref import WeakKeyDictionary

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.spark.common import datasets
from horovod.spark.common.columns import Unequal
from horovod.spark.common.datasets import ColumnKind, Dataset
from horovod.spark.common.row_plan import RowGroup
from horovod.spark.common.writing import REPORT, Writing, shapes_of

__all__ = ["clear_training_cache", "prepare_data"]

_NUMBERS: Final = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")
_OTHERS: Final = ("string", "binary", "vector")
# DataFrame -> what was asked for -> index. A frame that is gone takes its entries along; its rows stay in the store.
_prepared: WeakKeyDictionary[Any, dict[Hashable, int]] = WeakKeyDictionary()
_lock: Final = threading.Lock()


class Wanted(NamedTuple):
    """Of which columns a data set is made, and how.

    Attributes:
        columns: in their order.
        validation: a share of the rows, the column that marks them, or None.
        sparse: vectors stay sparse.
        files: into how many parts the rows go.
    """

    columns: tuple[str, ...]
    validation: Union[None, float, str]
    sparse: bool
    files: int


@contextlib.contextmanager
def prepare_data(
    num_processes: int,
    store: Any,
    df: Any,
    label_columns: Sequence[str],
    feature_columns: Optional[Sequence[str]] = None,
    validation: Union[None, float, str] = None,
    sample_weight_col: Optional[str] = None,
    compress_sparse: bool = False,
    partitions_per_process: int = 10,
    verbose: int = 0,
) -> Iterator[int]:
    """A context with the index of a data set in the store that has the rows of a DataFrame.

    The same DataFrame with the same arguments is written once in a process, as long as the store has it.

    Args:
        num_processes: that will read it.
        store: made with `Store.create`.
        df: the DataFrame.
        label_columns, feature_columns: their names; features default to all other columns.
        validation: a share of the rows in [0, 1), drawn at random, or the name of a column whose positive or true
            values mark them.
        sample_weight_col: a column of weights.
        compress_sparse: sparse vectors stay sparse in the store.
        partitions_per_process: files for each process.
        verbose: above 0, says what it does.

    Raises:
        InvalidArgumentError: unknown columns, nulls, rows of unequal shapes, no rows; a store that others cannot see.
        UnsupportedError: a column whose type cannot be stored.
    """
    if partitions_per_process <= 0:
        raise InvalidArgumentError(f"partitions_per_process must be above 0. Received: {partitions_per_process}.")
    names = columns_of(df.columns, label_columns, feature_columns, validation, sample_weight_col)
    wanted = Wanted(tuple(names), validation, compress_sparse, num_processes * partitions_per_process)
    require_shared(store)
    key = (store.get_train_data_path(), store.get_val_data_path(), wanted)
    with _lock:
        idx = _prepared.get(df, {}).get(key)
    if idx is None or not datasets.is_finished(store, store.get_train_data_path(idx)):
        idx = secrets.randbits(48)  # two programs at one store do not meet
        if verbose > 0:
            print(f"horovod.spark: writing rows to {store.get_train_data_path(idx)}.", file=sys.stderr)  # noqa: T201
        _write(store, df, wanted, idx)
        with _lock:
            _prepared.setdefault(df, {})[key] = idx
    elif verbose > 0:
        print(f"horovod.spark: using the rows at {store.get_train_data_path(idx)}.", file=sys.stderr)  # noqa: T201
    yield idx


def clear_training_cache() -> None:
    """Forgets which DataFrames have been written; the next fit writes them again."""
    with _lock:
        _prepared.clear()


def require_shared(store: Any) -> None:
    """Raises:
    InvalidArgumentError: it is no store, or one that other processes cannot see.
    """
    if not hasattr(store, "get_train_data_path"):
        raise InvalidArgumentError(
            f"store must be a store, as Store.create('/a/shared/folder') makes one. Received: {store!r}."
        )
    if getattr(store, "in_one_process", False):
        raise InvalidArgumentError(
            f"The store {store.prefix_path} lives in one process, and a fit needs one that the executors reach, too. "
            "Use a shared folder, or a URL such as s3://BUCKET/FOLDER."
        )


def columns_of(
    there: Sequence[str],
    labels: Optional[Sequence[str]],
    features: Optional[Sequence[str]],
    validation: Union[None, float, str],
    weights: Optional[str],
) -> list[str]:
    """The columns to write.

    Raises:
        InvalidArgumentError: there are no such columns, or no labels; or `validation` is neither share nor column.
    """
    if not labels:
        raise InvalidArgumentError("label_cols is missing: name the columns that the model learns.")
    if isinstance(validation, str):
        if validation not in there:
            raise InvalidArgumentError(
                f"validation: there is no column {validation!r}. The columns are {', '.join(there)}."
            )
    elif validation is not None and (isinstance(validation, bool) or not 0 <= validation < 1):
        raise InvalidArgumentError(
            f"validation must be a share in [0, 1) or the name of a column. Received: {validation!r}."
        )
    if features is None:
        features = [name for name in there if name not in (*labels, weights, validation)]
    names = list(dict.fromkeys([*features, *labels, *([weights] if weights else [])]))
    require_known(names, there)
    return names


def require_known(names: Sequence[str], there: Sequence[str]) -> None:
    """Raises:
    InvalidArgumentError: some of the columns are not there.
    """
    unknown = [name for name in names if name not in there]
    if unknown:
        raise InvalidArgumentError(
            f"There is no column {', '.join(map(repr, unknown))}. The columns are {', '.join(there)}."
        )


def _write(store: Any, df: Any, wanted: Wanted, idx: int) -> None:
    """Has the tasks of Spark write it; returns when it is complete."""
    kinds = dict(df.dtypes)
    marks = wanted.validation if isinstance(wanted.validation, str) else ""
    share = 0.0 if marks else float(wanted.validation or 0.0)
    if marks and kinds[marks] not in _NUMBERS:
        raise InvalidArgumentError(
            f"validation: column {marks!r} is of type {kinds[marks]}; it must be boolean, or a number above 0 for rows "
            "to validate with."
        )
    paths = [store.get_train_data_path(idx)] + [store.get_val_data_path(idx)] * bool(marks or share)
    chosen = list(dict.fromkeys([*wanted.columns, *([marks] if marks else [])]))
    frame = df.select(*[_readable(name, kinds[name]) for name in chosen]).repartition(wanted.files)
    writing = Writing(store, paths, wanted.columns, share, marks, wanted.sparse)
    try:
        rows = frame.mapInArrow(writing.of_partition, REPORT).collect()
        reports = [json.loads(row[0]) for row in rows]
        _finish(store, paths, {name: _without_decimals(kinds[name]) for name in wanted.columns}, reports)
    except BaseException:
        for path in paths:
            with contextlib.suppress(Exception):  # what went wrong first is what counts
                store.remove(path)
        raise


def _finish(store: Any, paths: Sequence[str], kinds: dict[str, str], reports: Sequence[Any]) -> None:
    shapes = shapes_of(reports)
    if isinstance(shapes, Unequal):
        raise InvalidArgumentError(
            f"A fit needs rows of one shape, without nulls; {shapes.fact}. Pad the rows, fill the nulls "
            "(df.na.fill, df.na.drop), or leave the column out."
        )
    found = []
    for number, what in zip(range(len(paths)), ("train with", "validate with")):
        groups = [RowGroup(*group) for report in reports for group in report["groups"][number]]
        if not groups:
            raise InvalidArgumentError(
                f"There are no rows to {what}: the DataFrame is empty, or validation leaves none of them. Give more "
                "rows, or another validation."
            )
        columns = {name: ColumnKind(kind, shapes[name]) for name, kind in kinds.items()}
        found.append(Dataset(columns, sorted(groups)))
    for path, data in reversed(list(zip(paths, found))):  # the one to train with last: it says that all is there
        datasets.finish(store, path, data)


def _without_decimals(kind: str) -> str:
    return re.sub(r"decimal\(\d+,\d+\)", "double", kind)


def _readable(name: str, kind: str) -> Any:
    """The column, as tasks can write it.

    Raises:
        UnsupportedError: its type has no numbers and is not a text.
    """
    from pyspark.sql import functions

    element = kind
    while element.startswith("array<"):
        element = element[len("array<") : -1]
    column = functions.col(f"`{name}`")
    if element.startswith("decimal"):
        return column.cast(_without_decimals(kind)).alias(name)
    if element not in (*_NUMBERS, *_OTHERS) or (element == "vector" and element != kind):
        raise UnsupportedError(
            f"Column {name!r} is of type {kind}, which a fit cannot take. Turn it into numbers, an array of them, a "
            "vector, a text or binary, or leave it out of feature_cols."
        )
    return column.alias(name)
