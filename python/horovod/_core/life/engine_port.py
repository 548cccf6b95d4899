"""The engine as the framework-neutral code sees it.

`horovod._native.engine` is the real one; the tests bring a fake of the same shape, which passes the same contract
suite. The calls of the hot path answer a raw status, which becomes an error in `handles` and `submission`, where the
name of the operation is known; the others raise. This file holds the protocol and the numbers that go with it, no
logic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from horovod._core.errors import HorovodError
from horovod._core.tensors.adapter import ResultBlock
from horovod._native import abi

# hvd_status
OK: Final = abi.OK
IN_PROGRESS: Final = abi.IN_PROGRESS
UNKNOWN_HANDLE: Final = abi.UNKNOWN_HANDLE

# hvd_op_type
ALLREDUCE: Final = abi.ALLREDUCE
ALLGATHER: Final = abi.ALLGATHER
BROADCAST: Final = abi.BROADCAST
ALLTOALL: Final = abi.ALLTOALL
REDUCESCATTER: Final = abi.REDUCESCATTER
BARRIER: Final = abi.BARRIER
JOIN: Final = abi.JOIN
SEND: Final = abi.SEND
RECV: Final = abi.RECV
OP_NAMES: Final = tuple(name.lower() for name in abi.ENUMS["hvd_op_type"])


class DumpPort(Protocol):
    """What `horovod._core` asks of the engine when a job hangs. Any thread may call any method."""

    def text(self) -> str:
        """hvd_dump."""
        ...

    def call_fd(self) -> int:
        """hvd_dump_call_fd; -1: nothing asks for dumps."""
        ...

    def on_signal(self, number: int) -> bool:
        """hvd_dump_on_signal. False: the program uses this signal itself."""
        ...


class TuningPort(Protocol):
    """What `horovod._core` asks of the engine about what may be changed while the job runs."""

    def parameters(self) -> dict[str, float]:
        """hvd_get_parameters."""
        ...

    def await_steps(self, steps: int, timeout_s: float) -> tuple[int, int, float]:
        """hvd_await_steps."""
        ...

    def set_parameters(self, values: Mapping[str, float]) -> None:
        """hvd_set_parameters."""
        ...


class GpuPort(Protocol):
    """What `horovod._core` asks of the engine about tensors on devices. Any thread may call any method."""

    def use(self, device: int, cuda: str, nccl: str, why_not_nccl: str, max_ctas: int, streams: int) -> None:
        """hvd_use_gpu."""
        ...

    def order(self, handle: int, stream: int) -> None:
        """hvd_order."""
        ...

    def describe_result(self, handle: int, index: int) -> tuple[int, tuple[int, ...]]:
        """hvd_describe_result: bytes and shape."""
        ...

    def copy_result(self, handle: int, index: int, address: int, nbytes: int, stream: int) -> None:
        """hvd_copy_result."""
        ...


class EnginePort(Protocol):
    """What `horovod._core` asks of the engine. Any thread may call any method.

    Attributes:
        door: where hvd_run, hvd_submit, hvd_finish and hvd_finish_all are, for callers that are no Python code; with a
            0 among them only Python may call.
        dumps: for jobs that hang.
        tuning: what may be changed while the job runs.
        gpu: for tensors on devices.
    """

    door: tuple[int, int, int, int]
    dumps: DumpPort
    tuning: TuningPort
    gpu: GpuPort

    def run(self, ops: int, n: int, timeout_s: float, handle: int) -> int:
        """hvd_run: `ops` is the address of n hvd_op, `handle` that of an int64. A raw status."""
        ...

    def submit(self, ops: int, n: int, flags: int, handle: int) -> int:
        """hvd_submit, as above. A raw status."""
        ...

    def poll(self, handle: int) -> int:
        """hvd_poll. A raw status."""
        ...

    def wait(self, handle: int, timeout_s: float) -> int:
        """hvd_wait. A raw status; IN_PROGRESS also when a signal arrived."""
        ...

    def finish(self, handle: int, timeout_s: float) -> int:
        """hvd_finish: waits, and releases an operation that was successful. A raw status."""
        ...

    def finish_all(self, handles: Sequence[int], timeout_s: float) -> int:
        """hvd_finish_all: releases all of them, or none. A raw status."""
        ...

    def release(self, handle: int) -> int:
        """hvd_release. A raw status."""
        ...

    def error(self, status: int) -> HorovodError:
        """The error for a status that a call of this thread has just returned, with its message. Not raised here."""
        ...

    def refuse(self, op_type: int, process_set: int, name: str, reason: str) -> None:
        """hvd_refuse."""
        ...

    def take_result(self, handle: int, index: int) -> ResultBlock:
        """hvd_take_result."""
        ...

    def received_splits(self, handle: int, index: int, n: int) -> list[int]:
        """hvd_received_splits."""
        ...

    def result_value(self, handle: int) -> int:
        """hvd_result_value."""
        ...

    def process_set_add(self, ranks: Sequence[int], by_members: bool = False) -> int:
        """hvd_process_set_add: a handle."""
        ...

    def process_set_remove(self, process_set: int) -> int:
        """hvd_process_set_remove: a handle."""
        ...

    def process_set_ranks(self, process_set: int) -> list[int]:
        """hvd_process_set_ranks."""
        ...

    def process_set_list(self) -> list[int]:
        """hvd_process_set_list."""
        ...

    def abort(self, status: int, reason: str) -> None:
        """hvd_abort."""
        ...

    def timeline_start(self, path: str, mark_cycles: bool) -> None:
        """hvd_timeline_start."""
        ...

    def timeline_stop(self) -> None:
        """hvd_timeline_stop."""
        ...

    def describe(self) -> str:
        """hvd_describe: JSON text."""
        ...

    def last_words(self, why: str) -> None:
        """hvd_last_words."""
        ...

    def shutdown(self, timeout_s: float) -> None:
        """hvd_shutdown."""
        ...
