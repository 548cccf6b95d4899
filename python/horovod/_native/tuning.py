"""What may be changed while the job runs, as the engine has it. Used by `engine`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Callable

from horovod._native import abi


class Tuning:
    """The calls for the parameters of the running engine. Any thread may call any method.

    Args:
        library: from `horovod._native.library.load`.
        check: raises the error of a status that is not OK.
    """

    def __init__(self, library: ctypes.CDLL, check: Callable[[int], None]) -> None:
        self._library = library
        self._check = check

    def parameters(self) -> dict[str, float]:
        """hvd_get_parameters: those in force on this rank, by their names there."""
        found = abi.HvdParameters()
        self._check(self._library.hvd_get_parameters(ctypes.byref(found)))
        return {name: getattr(found, name) for name, *_ in found._fields_[1:]}

    def await_steps(self, steps: int, timeout_s: float) -> tuple[int, int, float]:
        """hvd_await_steps: the steps that have ended, the bytes in them, and when the last of them ended."""
        found = abi.HvdSteps()
        self._check(self._library.hvd_await_steps(steps, timeout_s, ctypes.byref(found)))
        return found.steps, found.bytes, found.at_s

    def set_parameters(self, values: Mapping[str, float]) -> None:
        """hvd_set_parameters, all of them by name. On rank 0; not collective."""
        changed = abi.HvdParameters(struct_bytes=ctypes.sizeof(abi.HvdParameters), **values)
        self._check(self._library.hvd_set_parameters(ctypes.byref(changed)))
