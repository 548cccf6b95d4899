"""Spark ML's parameters, made of a table's rows: `Param`s, setters, getters, a constructor that takes them by keyword;
written and read as part of a Pipeline.

The written form holds Python's pickles, as those of all Python models do: read only what you trust.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Callable, Final, TypeVar

import cloudpickle  # type: ignore[import-untyped]

from horovod._core.frameworks import require
from horovod.spark.common.parameter_table import Row, checked

require("pyspark", "Spark for Python", "horovod.spark")
from pyspark.ml.param import Param, Params  # noqa: E402
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter, MLReadable, MLReader, MLWritable, MLWriter  # noqa: E402

_CHUNK: Final = 32 << 20  # Spark's messages have a bound of 128 MB
_VALUES: Final = "horovod"  # the folder of the values, below that of an estimator or model

ClassT = TypeVar("ClassT", bound=type)


class TableParams(Params, MLWritable, MLReadable):
    """Has the parameters of the table that `with_parameters` was given, as keywords.

    Raises:
        TypeError: no parameter has this name.
        InvalidArgumentError: a value is none for its parameter.
    """

    _rows: Mapping[str, Row] = {}

    def __init__(self, **params: Any) -> None:
        super().__init__()
        unknown = [name for name in params if name not in self._rows]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no parameter {', '.join(unknown)}.")
        self._setDefault(**{name: copy.copy(row.default) for name, row in self._rows.items()})
        self._set(**params)

    def _value(self, name: str) -> Any:
        return self.getOrDefault(self.getParam(name))

    def write(self) -> MLWriter:
        """What writes it."""
        return _Writer(self)

    @classmethod
    def read(cls) -> MLReader:
        """What reads one."""
        return _Reader(cls)

    def _values_to_write(self) -> dict[str, Any]:
        """What was set, as values that can be pickled together."""
        values = {param.name: value for param, value in self._paramMap.items()}
        if hasattr(values.get("store"), "without_options"):
            values["store"] = values["store"].without_options()
        return values

    def _take_written(self, values: dict[str, Any]) -> None:
        """Sets what was written."""
        self._set(**values)


def with_parameters(rows: Iterable[Row]) -> Callable[[ClassT], ClassT]:
    """Gives a class the parameters of a table."""

    def decorate(kind: ClassT) -> ClassT:
        made: Any = kind
        made._rows = {row.name: row for row in rows}
        for row in made._rows.values():
            setattr(made, row.name, Param(Params._dummy(), row.name, row.doc, functools.partial(checked, row)))
            if not hasattr(made, f"get{row.accessor}"):
                setattr(made, f"get{row.accessor}", _getter(row))
            for name in (row.accessor, *row.setters):
                setattr(made, f"set{name}", _setter(row, name))
        keywords = [
            inspect.Parameter(row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default)
            for row in made._rows.values()
        ]
        made.__signature__ = inspect.Signature(keywords)
        return kind

    return decorate


def _getter(row: Row) -> Callable[[Any], Any]:
    def get(self: Any) -> Any:
        return self._value(row.name)

    get.__name__, get.__doc__ = f"get{row.accessor}", f"{row.name}: {row.doc}."
    return get


def _setter(row: Row, name: str) -> Callable[[Any, Any], Any]:
    def put(self: Any, value: Any) -> Any:
        self._set(**{row.name: value})
        return self

    put.__name__, put.__doc__ = f"set{name}", f"{row.name}: {row.doc}."
    return put


class _Writer(MLWriter):
    """Metadata as Spark's own Python stages have them, and beside them the values in pieces."""

    def __init__(self, instance: TableParams) -> None:
        super().__init__()
        self._instance = instance

    def saveImpl(self, path: str) -> None:  # noqa: N802
        spark = self.sparkSession
        data = cloudpickle.dumps(self._instance._values_to_write())
        DefaultParamsWriter.saveMetadata(self._instance, path, _for_metadata(spark), paramMap={})
        for number, start in enumerate(range(0, len(data), _CHUNK)):
            rows = [(number, bytearray(data[start : start + _CHUNK]))]
            frame = spark.createDataFrame(rows, "number int, piece binary")
            frame.coalesce(1).write.mode("append").parquet(f"{path}/{_VALUES}")


class _Reader(MLReader):
    """What `_Writer` has written."""

    def __init__(self, kind: type) -> None:
        super().__init__()
        self._kind = kind

    def load(self, path: str) -> Any:
        spark = self.sparkSession
        metadata = DefaultParamsReader.loadMetadata(path, _for_metadata(spark))
        pieces = spark.read.parquet(f"{path}/{_VALUES}").orderBy("number").collect()
        made = self._kind()
        made._resetUid(metadata["uid"])
        made._take_written(cloudpickle.loads(b"".join(bytes(row["piece"]) for row in pieces)))
        return made


def _for_metadata(spark: Any) -> Any:
    """What Spark's own functions take: a context before version 4."""
    from pyspark import __version__

    return spark if int(__version__.partition(".")[0]) >= 4 else spark.sparkContext
