"""The element types of the core, seen from Python: numbers, names, sizes, kinds.

Used by the adapters, which translate a framework's dtypes to these numbers, and by the argument checks. It mirrors
`hvd_dtype` of include/horovod/horovod.h and knows no framework.
"""

from __future__ import annotations

from typing import Final

UINT8: Final = 0
INT8: Final = 1
UINT16: Final = 2
INT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT16: Final = 6
FLOAT32: Final = 7
FLOAT64: Final = 8
BOOL: Final = 9
BFLOAT16: Final = 10
UINT32: Final = 11
UINT64: Final = 12
FLOAT8_E4M3FN: Final = 13
FLOAT8_E5M2: Final = 14

NAMES: Final[tuple[str, ...]] = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "bool",
    "bfloat16",
    "uint32",
    "uint64",
    "float8_e4m3fn",
    "float8_e5m2",
)
ITEM_BYTES: Final[tuple[int, ...]] = (1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 4, 8, 1, 1)
FLOATING: Final[frozenset[int]] = frozenset({FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2})


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape; 1 for a scalar."""
    count = 1
    for extent in shape:
        count *= extent
    return count
