"""One of two members of an NCCL communicator on one GPU; `probe_nccl_two` asks, `peer` serves."""

from __future__ import annotations

import array
import ctypes
import threading
import time
from ctypes import byref, c_float, c_void_p
from typing import Optional

import driver
import nccl

_WAIT_STEP_S = 0.0005


class Rank:
    """A member to be."""

    def __init__(self) -> None:
        driver.attach()
        self._stream = driver.stream()
        self._communicator: Optional[c_void_p] = None
        self._memory = 0
        self._size = 0

    def identity(self) -> str:
        """Of a new communicator."""
        return bytes(nccl.unique_id().bytes).hex()

    def join(self, identity: str, rank: int, blocking: bool, patience_s: float) -> dict[str, object]:
        """Joins; a refusal is a result, not a failure."""
        begin = time.perf_counter()
        made, settings = c_void_p(), nccl.config(blocking)
        known = nccl.UniqueId.from_buffer_copy(bytes.fromhex(identity))
        code = nccl.bare("ncclCommInitRankConfig")(byref(made), 2, known, rank, byref(settings))
        returned_s = time.perf_counter() - begin
        while code == nccl.IN_PROGRESS and time.perf_counter() - begin < patience_s:
            time.sleep(_WAIT_STEP_S)
            code = nccl.state(made)
        self._communicator = made if code == nccl.SUCCESS else None
        report = {"code": code, "text": nccl.error_string(code), "last_error": nccl.last_error()}
        report.update(returned_s=returned_s, ready_s=time.perf_counter() - begin)
        if code and made.value:
            report["abort_code"] = nccl.bare("ncclCommAbort")(made)
        return report

    def prepare(self, elems: int, value: float) -> None:
        """Memory with a value in every place."""
        if self._memory:
            driver.call("cuMemFree_v2", self._memory)
        self._memory, self._size = driver.allocate(elems * 4), elems
        host = array.array("f", [value]) * elems
        driver.call("cuMemcpyHtoD_v2", self._memory, host.buffer_info()[0], elems * 4)

    def values(self) -> list[float]:
        """The first, a middle and the last element, and whether all are equal."""
        host = array.array("f", bytes(self._size * 4))
        driver.call("cuMemcpyDtoH_v2", host.buffer_info()[0], self._memory, self._size * 4)
        return [host[0], host[self._size // 2], host[-1], float(host.count(host[0]) == self._size)]

    def reduce(self, times: int, factor: Optional[float] = None) -> list[float]:
        """So many allreduces in place; seconds of each from the call to the stream's end."""
        assert self._communicator is not None
        operation = nccl.SUM if factor is None else nccl.scaled_sum(c_float(factor), self._communicator)
        taken = []
        for _ in range(times):
            begin = time.perf_counter()
            self._start(operation)
            driver.call("cuStreamSynchronize", self._stream)
            taken.append(time.perf_counter() - begin)
        return taken

    def reduce_and_abort(self, after_s: float) -> dict[str, float]:
        """An allreduce to which the other does not come, aborted from another thread; how long until all is back."""
        communicator = self._communicator
        assert communicator is not None
        context = c_void_p()
        driver.call("cuCtxGetCurrent", byref(context))
        report: dict[str, float] = {}

        def abort() -> None:
            driver.call("cuCtxSetCurrent", context)
            begin = time.perf_counter()
            while time.perf_counter() - begin < after_s:
                if nccl.state(communicator) and "error_s" not in report:
                    report["error_s"] = time.perf_counter() - begin
                    report["error_code"] = nccl.state(communicator)
                time.sleep(_WAIT_STEP_S)
            begin = time.perf_counter()
            report["abort_code"] = nccl.bare("ncclCommAbort")(communicator)
            report["abort_s"] = time.perf_counter() - begin

        ending = threading.Thread(target=abort)
        ending.start()
        begin = time.perf_counter()
        self._start(nccl.SUM)
        report["call_s"] = time.perf_counter() - begin
        report["stream_code"] = driver.bare("cuStreamSynchronize")(self._stream)
        report["stream_s"] = time.perf_counter() - begin
        ending.join()
        self._communicator = None
        return report

    def leave(self) -> float:
        """Seconds of ncclCommDestroy."""
        begin = time.perf_counter()
        nccl.call("ncclCommDestroy", self._communicator)
        self._communicator = None
        return time.perf_counter() - begin

    def _start(self, operation: int) -> None:
        count = ctypes.c_size_t(self._size)
        place = self._memory
        code = nccl.bare("ncclAllReduce")(
            place, place, count, nccl.FLOAT32, operation, self._communicator, self._stream
        )
        while code == nccl.IN_PROGRESS:
            time.sleep(_WAIT_STEP_S)
            code = nccl.state(self._communicator) if self._communicator else nccl.SUCCESS
        if code:
            raise nccl.NcclError("ncclAllReduce", code)
