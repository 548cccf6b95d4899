"""A model's outputs as columns of a DataFrame: batch by batch as Arrow brings them, the model loaded once a task."""

from __future__ import annotations

import functools
import importlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Optional

import numpy as np

from horovod._core.errors import InvalidArgumentError
from horovod.spark.common.columns import arrow, decoded, fixed

_MOST_ROWS: Final = 4096  # that a model gets at once
WHOLE_NUMBERS: Final = ("tinyint", "smallint", "int", "bigint")
_OF_SPARK: Final = {
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
}
Shapes = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Loading:
    """Calls a function of a module that is imported first in the task, after variables that it reads.

    Attributes:
        environ: the variables.
        module, name: of the function.
        args: of the call.
    """

    environ: Mapping[str, str]
    module: str
    name: str
    args: Sequence[Any]

    def __call__(self) -> Callable[[list[Any]], list[Any]]:
        os.environ.update(self.environ)
        found: Callable[[list[Any]], list[Any]] = getattr(importlib.import_module(self.module), self.name)(*self.args)
        return found


class Prediction(NamedTuple):
    """What tasks do.

    Attributes:
        load: makes a function from arrays of the features to those of the outputs.
        features, outputs: names of columns.
        types: of the labels, as Spark calls them.
    """

    load: Callable[[], Callable[[list[Any]], list[Any]]]
    features: Sequence[str]
    outputs: Sequence[str]
    types: Sequence[str]

    def arrays(self, model: Callable[[list[Any]], list[Any]], batch: Any) -> Iterator[list[Any]]:
        """The outputs for parts of a batch."""
        for start in range(0, batch.num_rows, _MOST_ROWS):
            part = batch.select(list(self.features)).slice(start, _MOST_ROWS)
            columns = decoded(part)
            found = model([columns[name][:] for name in self.features])
            if len(found) != len(self.outputs):
                raise InvalidArgumentError(
                    f"The model has {len(found)} outputs, for {len(self.outputs)} columns ({', '.join(self.outputs)})."
                )
            yield found

    def shapes(self, batches: Iterable[Any]) -> Iterator[Any]:
        """For `mapInArrow`: the shape of each output's rows, if there are rows."""
        model = None
        for batch in batches:
            model = model or self.load()
            for found in self.arrays(model, batch):
                text = json.dumps([list(array.shape[1:]) for array in found])
                yield arrow().RecordBatch.from_pydict({"report": [text]})

    def of_partition(self, kinds: Sequence[str], batches: Iterable[Any]) -> Iterator[Any]:
        """For `mapInArrow`: the rows with the outputs."""
        pa, model = arrow(), None
        for batch in batches:
            if not batch.num_rows:
                continue
            model = model or self.load()
            parts = list(self.arrays(model, batch))
            outputs = [np.concatenate([part[number] for part in parts]) for number in range(len(kinds))]
            columns = [_column(array, kind) for array, kind in zip(outputs, kinds)]
            names = [*batch.schema.names, *self.outputs]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], names)


def predicted(frame: Any, prediction: Prediction, shapes: Optional[Shapes]) -> Any:
    """A DataFrame with the outputs.

    Args:
        shapes: of the outputs' rows; None: a row of the frame tells.
    """
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql.types import StructField, StructType, _parse_datatype_string

    if shapes is None:
        rows = frame.limit(1).mapInArrow(prediction.shapes, "report string").collect()
        shapes = json.loads(rows[0][0]) if rows else [()] * len(prediction.outputs)
    kinds = [kind_of(kind, shape) for kind, shape in zip(prediction.types, shapes)]
    types = [VectorUDT() if kind == "vector" else _parse_datatype_string(kind) for kind in kinds]
    added = [StructField(name, of, True) for name, of in zip(prediction.outputs, types)]
    return frame.mapInArrow(
        functools.partial(prediction.of_partition, kinds), StructType([*frame.schema.fields, *added])
    )


def kind_of(label: str, shape: Sequence[int]) -> str:
    """The type of an output's column: the label's, but a vector where the model has several values for a number, and
    double where the label is not a number: a model's output for a truth is a share."""
    if label == "vector":
        return label
    element = label.rpartition("<")[2].rstrip(">")
    if label.startswith("array<"):
        return label if element in _OF_SPARK else "array<" * label.count("<") + "double" + ">" * label.count("<")
    return "vector" if np.prod(shape, dtype=int) > 1 else label if label in _OF_SPARK else "double"


def _column(array: np.ndarray[Any, Any], kind: str) -> Any:
    """An output as a column of this type."""
    pa = arrow()
    flat = array.reshape(len(array), -1)
    if kind == "vector":
        return _dense_vectors(flat.astype(np.float64))
    inner, depth = kind, 0
    while inner.startswith("array<"):
        inner, depth = inner[len("array<") : -1], depth + 1
    values = array.astype(_OF_SPARK[inner])
    if not depth:
        return pa.array(values.reshape(len(array)))
    values = flat.astype(values.dtype) if depth == 1 else values
    wanted = pa.from_numpy_dtype(values.dtype)
    for _ in range(depth):
        wanted = pa.list_(wanted)
    return fixed(values).cast(wanted)


def _dense_vectors(rows: np.ndarray[Any, Any]) -> Any:
    """As Spark's vectors are without their wrapper."""
    pa = arrow()
    fields = [
        pa.field("type", pa.int8(), False),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.field("element", pa.int32(), False))),
        pa.field("values", pa.list_(pa.field("element", pa.float64(), False))),
    ]
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    values = pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.reshape(-1)), type=fields[3].type)
    nulls = [pa.nulls(len(rows), fields[1].type), pa.nulls(len(rows), fields[2].type)]
    return pa.StructArray.from_arrays([pa.array(np.ones(len(rows), np.int8)), *nulls, values], fields=fields)
