"""The C interface as typed Python methods.

`Engine` is what `horovod._core.life.engine_port.EnginePort` asks for. It is given the makers of errors and results,
because this package knows no class of `_core`: `Engine(library.load(), error_from_status, ResultBlock)`. The calls of
the hot path (run, submit, poll, wait, finish, release) answer the raw status; all others raise. ctypes releases the
interpreter lock during each call. It keeps no state besides the library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, Generic, Optional, TypeVar

from horovod._native import abi
from horovod._native.dumps import Dumps, text_of
from horovod._native.gpu import Gpu
from horovod._native.hot_path import HotPath
from horovod._native.mpi import Mpi
from horovod._native.tuning import Tuning

ErrorT = TypeVar("ErrorT", bound=Exception)
ResultT = TypeVar("ResultT")
ResultMaker = Callable[[int, int, int, "tuple[int, ...]", object], ResultT]

_MAX_SETS = 1 << 16


class _Taken(abi.HvdResult):
    """A result of the core's, which is given back when this dies. It is here before the core fills it in, so that
    nothing is lost when a signal handler raises in between."""

    free: Callable[[int], None]  # a derived class has the library's

    def __del__(self) -> None:
        if self.owner:
            self.free(self.owner)


class Engine(HotPath, Generic[ErrorT, ResultT]):
    """The process's engine. Any thread may call any method."""

    def __init__(
        self, library: ctypes.CDLL, make_error: Callable[[int, str], ErrorT], make_result: ResultMaker[ResultT]
    ) -> None:
        """
        Args:
            library: from `horovod._native.library.load`.
            make_error: the exception for (status, message).
            make_result: called with (address, bytes, dtype, shape, keep) for a tensor that the core allocated; its
                memory is given back when `keep` dies.
        """
        super().__init__(library)
        self._make_error = make_error
        self._make_result = make_result
        self._taken: type[_Taken] = type("_Taken", (_Taken,), {"free": staticmethod(library.hvd_result_free)})
        self._log_function: Optional[Any] = None
        self.dumps = Dumps(library, self._check)
        self.tuning = Tuning(library, self._check)
        self.mpi = Mpi(library, self._check)
        self.gpu = Gpu(library, self._check)

    # ---- errors

    def error(self, status: int) -> ErrorT:
        """The error for a status that a call of this thread has just returned, with its message. Not raised here."""
        message = self._library.hvd_last_error()
        return self._make_error(status, message.decode("utf-8", "replace") if message else f"status {status}")

    def _check(self, status: int) -> None:
        if status != abi.OK:
            raise self.error(status)

    # ---- life

    def region_bytes(self, local_size: int, resident_bytes: int) -> int:
        """Bytes that every rank of a host must give its shared region."""
        return int(self._library.hvd_region_bytes(local_size, resident_bytes))

    def init(self, config: abi.HvdConfig) -> None:
        """hvd_init. Collective. The descriptors in `config` are the core's from now on, also when this raises."""
        self._check(self._library.hvd_init(ctypes.byref(config)))

    def connected(self, rank: int, fd: int, why_not: str) -> None:
        """hvd_connected: the data connection to a rank, which is the core's from now on; or -1, and the reason."""
        self._check(self._library.hvd_connected(rank, fd, why_not.encode(errors="replace")))

    def last_words(self, why: str) -> None:
        """hvd_last_words: what `shutdown` tells the other ranks about why this one ends."""
        self._check(self._library.hvd_last_words(why.encode(errors="replace")))

    def shutdown(self, timeout_s: float) -> None:
        """hvd_shutdown."""
        self._check(self._library.hvd_shutdown(timeout_s))

    def abort(self, status: int, reason: str) -> None:
        """hvd_abort: fails everything of this rank, and tells the others."""
        self._check(self._library.hvd_abort(status, reason.encode()))

    def initialized(self) -> bool:
        """True between init and shutdown."""
        return bool(self._library.hvd_initialized())

    def describe(self) -> str:
        """hvd_describe: JSON text."""
        return text_of(self._library.hvd_describe, self._check)

    # ---- results

    def refuse(self, op_type: int, process_set: int, name: str, reason: str) -> None:
        """hvd_refuse: the other members get this reason instead of waiting."""
        self._check(self._library.hvd_refuse(op_type, process_set, name.encode(), reason.encode()))

    def take_result(self, handle: int, index: int) -> ResultT:
        """hvd_take_result: what `make_result` makes of it."""
        result = self._taken()
        self._check(self._library.hvd_take_result(handle, index, ctypes.byref(result)))
        shape = tuple(result.shape[: result.ndim])
        return self._make_result(result.data or 0, result.bytes, result.dtype, shape, result)

    def received_splits(self, handle: int, index: int, n: int) -> list[int]:
        """hvd_received_splits: rows received from each of the n members."""
        splits = (ctypes.c_int32 * max(n, 1))()
        self._check(self._library.hvd_received_splits(handle, index, splits, n))
        return splits[:n]

    def result_value(self, handle: int) -> int:
        """hvd_result_value."""
        value = ctypes.c_int64()
        self._check(self._library.hvd_result_value(handle, ctypes.byref(value)))
        return value.value

    # ---- process sets

    def process_set_add(self, ranks: Sequence[int], by_members: bool = False) -> int:
        """hvd_process_set_add: a handle. Collective."""
        handle = ctypes.c_int64()
        array = (ctypes.c_int32 * max(len(ranks), 1))(*ranks)
        self._check(self._library.hvd_process_set_add(array, len(ranks), by_members, ctypes.byref(handle)))
        return handle.value

    def process_set_remove(self, process_set: int) -> int:
        """hvd_process_set_remove: a handle. Collective."""
        handle = ctypes.c_int64()
        self._check(self._library.hvd_process_set_remove(process_set, ctypes.byref(handle)))
        return handle.value

    def process_set_ranks(self, process_set: int) -> list[int]:
        """hvd_process_set_ranks: the members, ascending."""
        return self._numbers(lambda array, n: self._library.hvd_process_set_ranks(process_set, array, n))

    def process_set_list(self) -> list[int]:
        """hvd_process_set_list: the registered ids, ascending."""
        return self._numbers(self._library.hvd_process_set_list)

    def _numbers(self, call: Callable[[Any, Any], int]) -> list[int]:
        """Calls a function that fills an array of unknown length, with a larger one until it fits."""
        capacity = 64
        while True:
            array, n = (ctypes.c_int32 * capacity)(), ctypes.c_int32(capacity)
            status = call(array, ctypes.byref(n))
            if n.value <= capacity:
                self._check(status)
                return array[: n.value]
            if n.value > _MAX_SETS * 256:
                raise self.error(abi.INTERNAL)
            capacity = n.value

    # ---- shared tensors and observers

    def shared_alloc(self, nbytes: int) -> int:
        """hvd_shared_alloc: the address of zeroed memory that the ranks of this host share; give it back with
        `shared_free`.
        """
        address = ctypes.c_void_p()
        self._check(self._library.hvd_shared_alloc(nbytes, ctypes.byref(address)))
        return address.value or 0

    def shared_free(self, address: int) -> None:
        """hvd_shared_free."""
        self._library.hvd_shared_free(address)

    def timeline_start(self, path: str, mark_cycles: bool) -> None:
        """hvd_timeline_start."""
        self._check(self._library.hvd_timeline_start(path.encode(), int(mark_cycles)))

    def timeline_stop(self) -> None:
        """hvd_timeline_stop."""
        self._check(self._library.hvd_timeline_stop())

    def set_log_sink(self, sink: Optional[Callable[[int, str], None]]) -> None:
        """hvd_log_sink: `sink(level, text)` is called on any thread; None restores stderr. Call before `init`."""
        if sink is None:
            function = abi.HvdLogFn()
        else:
            function = abi.HvdLogFn(lambda level, text: sink(level, (text or b"").decode("utf-8", "replace")))
        self._library.hvd_log_sink(function)
        self._log_function = function  # the core calls it for as long as it is set
