"""Which line of the user's program has submitted an operation, recorded where HOROVOD_DUMP_CALL_SITES asks for it.

Looking through the stack takes longer than a submission, and the lane cannot do it at all; so this is for debugging: it
stands between the collectives and the engine, and cannot be used with the lane. A caller that waits for an operation at
once needs none of it: the stack of the waiting thread shows the line.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

from horovod._core.life.engine_port import OP_NAMES, EnginePort
from horovod._dumps.stacks import owner
from horovod._dumps.values import USER
from horovod._native import abi

_MOST_NAMES: Final = 100_000
_OP_BYTES: Final = ctypes.sizeof(abi.HvdOp)

_sites: dict[tuple[int, str], str] = {}


class NotingEngine:
    """An engine that notes which line submits; otherwise the engine that it is given."""

    door = (0, 0, 0, 0)  # Python only

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run(self, ops: int, n: int, timeout_s: float, handle: int) -> int:
        """As the engine's."""
        _note(ops, n)
        return self._engine.run(ops, n, timeout_s, handle)

    def submit(self, ops: int, n: int, flags: int, handle: int) -> int:
        """As the engine's."""
        _note(ops, n)
        return self._engine.submit(ops, n, flags, handle)


def of(process_set: int, name: str) -> str:
    """ "train.py:57, in step()", or "". Of operations without a name, which are counted, the line of the last one."""
    operation, _, rest = name.partition(".")
    key = f"{operation}." if rest.startswith("noname.") else name
    return _sites.get((process_set, key), "")


def _note(ops: int, n: int) -> None:
    site = _here()
    if len(_sites) > _MOST_NAMES:
        _sites.clear()
    for index in range(n):
        op = abi.HvdOp.from_address(ops + index * _OP_BYTES)
        name = (op.name or b"").decode("utf-8", "replace") or f"{OP_NAMES[op.type]}."
        _sites[op.process_set, name] = site


def _here() -> str:
    frame = sys._getframe(3)
    while frame.f_back is not None and owner(frame.f_code.co_filename) != USER:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"
