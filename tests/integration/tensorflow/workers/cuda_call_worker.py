"""The custom call of functions that XLA compiles for CUDA, called as XLA calls it, over a CUDA driver and an NCCL made
for tests: there is no TensorFlow here that computes on a GPU. Run on two ranks; raises on the first thing that is not
so."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_size_t, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import tensorflow as tf  # its library holds the registry

sys.path.append(str(Path(__file__).resolve().parents[3] / "contract"))
from gpu_arrays import GpuArray, driver  # noqa: E402

import horovod.tensorflow as hvd  # noqa: E402
from horovod._core.life import engine_start  # noqa: E402
from horovod._core.life.engine_port import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER  # noqa: E402
from horovod._core.operations.described_call import DescribedOperation, TensorForm, describe  # noqa: E402
from horovod._core.operations.submission import member_names  # noqa: E402
from horovod.tensorflow.collectives import xla  # noqa: E402

FLOAT32 = 7


class Text(ctypes.Structure):
    """libstdc++'s std::string; a short one lies in it."""

    _fields_ = (("data", c_void_p), ("size", c_size_t), ("short", c_char * 16))

    def __init__(self, text: bytes) -> None:
        super().__init__(0, len(text), text)
        self.data = ctypes.addressof(self) + Text.short.offset


class Status(ctypes.Structure):
    """XLA's status of a custom call: libstdc++'s std::optional<std::string>."""

    _fields_ = (("data", c_void_p), ("size", c_size_t), ("short", c_char * 16), ("told", ctypes.c_bool))

    @property
    def message(self) -> str:
        return ctypes.string_at(self.data, self.size).decode() if self.told else ""


def registered(platform: bytes) -> Any:
    """The function that XLA finds for `hvd_collective`."""
    assert engine_start.tensorflow_xla_problem() == ""
    library = ctypes.CDLL("libtensorflow_cc.so.2", ctypes.RTLD_LOCAL)
    registry = library._ZN3xla24CustomCallTargetRegistry6GlobalEv
    registry.restype = c_void_p
    lookup = library._ZNK3xla24CustomCallTargetRegistry6LookupERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES8_
    lookup.restype, lookup.argtypes = c_void_p, (c_void_p, POINTER(Text), POINTER(Text))
    found = lookup(registry(), Text(b"hvd_collective"), Text(platform))
    return ctypes.CFUNCTYPE(None, c_void_p, POINTER(c_void_p), c_char_p, c_size_t, POINTER(Status))(found)


def called(operation: DescribedOperation, inputs: Sequence[Any], shapes: Sequence[Any], text: str = "") -> Any:
    """The values of a call's results, and its message. Inputs are made late, and nobody waits before the results are
    read: not even for memory to be given back, which stops the device."""
    operands = [GpuArray(np.empty(()), np.zeros((), np.float32)), *(GpuArray(a, a) for a in inputs)]
    results = [GpuArray(np.empty((), np.float32)), *(GpuArray(np.empty(shape, np.float32)) for shape in shapes)]
    buffers = [array.address for array in (*operands, *results)]
    words = (text or describe([operation])).encode()
    status = Status()
    COLLECTIVE(driver().stream, (c_void_p * len(buffers))(*buffers), words, len(words), status)
    values = [result.numpy() for result in results[1:]] if not status.message else []
    return values, status.message


def described(op_type: int, name: str, inputs: Sequence[Any], shapes: Sequence[Any], **more: Any) -> DescribedOperation:
    names = [name] if len(inputs) == 1 else member_names(name, len(inputs))
    sizes = [4 * int(np.prod(shape)) for shape in shapes]
    forms = [TensorForm(own, FLOAT32, a.shape, nbytes) for own, a, nbytes in zip(names, inputs, sizes)]
    return DescribedOperation(op_type, forms, **more)


def check(name: str, op_type: int, inputs: Sequence[Any], expected: Sequence[Any], **more: Any) -> None:
    shapes = [array.shape for array in expected]
    results, message = called(described(op_type, name, inputs, shapes, **more), inputs, shapes)
    assert message == "", f"{name}: {message}"
    for result, wanted in zip(results, expected):
        np.testing.assert_allclose(result, wanted, err_msg=name)
    print("passed", name)


def operations(turn: int) -> None:
    rank, size = hvd.rank(), hvd.size()
    both = [np.arange(12, dtype=np.float32).reshape(6, 2) + 100 * r for r in range(size)]
    own, total = both[rank], sum(both)
    many = [np.full(n, rank + 1.0, np.float32) for n in (3, 50_000, 1)]
    check(f"allreduce {turn}", ALLREDUCE, [own], [total / size], reduce_op=int(hvd.Average))
    check(
        f"group {turn}", ALLREDUCE, many, [np.full(a.shape, 1.5, np.float32) for a in many], reduce_op=int(hvd.Sum),
        factors=(0.5, 1.0),
    )  # fmt: skip
    check(f"broadcast {turn}", BROADCAST, [own], [both[1]], root=1)
    check(f"allgather {turn}", ALLGATHER, [own], [np.concatenate(both)])
    check(f"reducescatter {turn}", REDUCESCATTER, [own], [np.split(total, size)[rank]], reduce_op=int(hvd.Sum))
    check(f"alltoall {turn}", ALLTOALL, [own], [np.concatenate([np.split(a, size)[rank] for a in both])])


def mistakes() -> None:
    """Are told in XLA's status, and leave the job able to go on."""
    rows = np.ones((hvd.rank() + 1, 2), np.float32)
    shapes = [(2 * len(rows), 2)]  # what was promised when it was traced
    _, message = called(described(ALLGATHER, "rows", [rows], shapes), [rows], shapes)
    assert message.startswith("Horovod InvalidArgumentError: ") and "first dimensions differ" in message, message
    one = [np.ones(hvd.rank() + 1, np.float32)]
    _, message = called(described(ALLREDUCE, "odd", one, [one[0].shape], reduce_op=1), one, [one[0].shape])
    assert message.startswith("Horovod MismatchError: "), message
    _, message = called(described(ALLREDUCE, "a", one, []), one, [], "no description")
    assert "cannot be read" in message, message
    print("passed mistakes")


def traced() -> None:
    """What tracing a function does on a TensorFlow that has this GPU."""
    gpu = SimpleNamespace(name=f"/physical_device:GPU:{driver().device}")
    visible = mock.patch.object(tf.config, "get_visible_devices", lambda _: [gpu])
    with visible, mock.patch.object(tf.test, "is_built_with_cuda", lambda: True):
        xla._make_ready("a", "/device:GPU:0")


def main() -> None:
    hvd.init()
    one = [np.ones(3, np.float32)]
    _, message = called(described(ALLREDUCE, "early", one, [(3,)], reduce_op=1), one, [(3,)])
    assert "no GPU is in use" in message, message
    traced()
    operations(1)
    mistakes()
    # A compiled function outlives its session.
    hvd.shutdown()
    hvd.init()
    operations(2)
    assert driver().faults() == "", driver().faults()
    hvd.shutdown()


if __name__ == "__main__":
    COLLECTIVE = registered(b"CUDA")
    assert ctypes.cast(COLLECTIVE, c_void_p).value != ctypes.cast(registered(b"Host"), c_void_p).value
    main()
