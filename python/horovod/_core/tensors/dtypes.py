"""The element types of the core, seen from Python: numbers, names, sizes, kinds.

Used by the adapters, which translate a framework's dtypes to these numbers, and by the argument checks. It knows no
framework.
"""

from __future__ import annotations

from typing import Final

from horovod._native import abi

UINT8: Final = abi.UINT8
INT8: Final = abi.INT8
UINT16: Final = abi.UINT16
INT16: Final = abi.INT16
INT32: Final = abi.INT32
INT64: Final = abi.INT64
FLOAT16: Final = abi.FLOAT16
FLOAT32: Final = abi.FLOAT32
FLOAT64: Final = abi.FLOAT64
BOOL: Final = abi.BOOL
BFLOAT16: Final = abi.BFLOAT16
UINT32: Final = abi.UINT32
UINT64: Final = abi.UINT64
FLOAT8_E4M3FN: Final = abi.FLOAT8_E4M3FN
FLOAT8_E5M2: Final = abi.FLOAT8_E5M2

NAMES: Final = tuple(name.lower() for name in abi.ENUMS["hvd_dtype"])
ITEM_BYTES: Final[tuple[int, ...]] = (1, 1, 2, 2, 4, 8, 2, 4, 8, 1, 2, 4, 8, 1, 1)
FLOATING: Final[frozenset[int]] = frozenset({FLOAT16, FLOAT32, FLOAT64, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2})


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements of a shape; 1 for a scalar."""
    count = 1
    for extent in shape:
        count *= extent
    return count
