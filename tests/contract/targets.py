"""The frameworks that the contract suite runs on: the public module, and how its tensors become arrays and back.

One `Target` per framework; the cases and semantics are the same for all. Also `Env`, what a test knows about its rank.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

from horovod._core.life import session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Target:
    """One framework.

    Attributes:
        name: of the framework.
        hvd: its public module.
        collectives: the operations behind it.
        tensor: array -> a new tensor with its own memory.
        array: tensor -> array.
        unsupported: a tensor of a dtype that no collective takes.
        gappy: a tensor whose elements have gaps between them.
        unfit: one whose memory does not hold its values.
        faults: what the libraries below have seen that is wrong.
        lacking: the dtypes that its tensors cannot have.
        leaves_out: facts that need a tensor or a function that it does not have.
    """

    name: str
    hvd: Any
    collectives: Any
    tensor: Callable[[Array], Any]
    array: Callable[[Any], Array]
    unsupported: Callable[[], Any]
    gappy: Callable[[], Any]
    unfit: Callable[[], Any]
    faults: Callable[[], str] = lambda: ""
    lacking: frozenset[int] = frozenset()
    leaves_out: frozenset[str] = frozenset()


def numpy_target() -> Target:
    """NumPy itself."""
    import horovod.numpy as hvd

    return Target(
        "numpy",
        hvd,
        hvd.ops.collectives,
        lambda array: array.copy(),
        lambda tensor: np.asarray(tensor),
        lambda: np.zeros(3, np.complex64),
        lambda: np.zeros((4, 4), np.float32)[:, ::2],
        lambda: np.ma.MaskedArray(np.zeros(2, np.float32), [False, True]),
    )


def torch_target() -> Target:
    """PyTorch."""
    import ml_dtypes
    import torch

    import horovod.torch as hvd
    from horovod.torch.collectives import operators

    # What NumPy itself lacks passes as integers of its width.
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    lacking = {getattr(torch, name): np.dtype(getattr(ml_dtypes, name)) for name in names}
    integers = {2: (np.int16, torch.int16), 1: (np.uint8, torch.uint8)}

    def tensor(array: Array) -> Any:
        array = array.copy()
        for dtype, in_numpy in lacking.items():
            if array.dtype == in_numpy:
                return torch.from_numpy(array.view(integers[array.itemsize][0])).view(dtype)
        return torch.from_numpy(array)

    def array(tensor: Any) -> Array:
        if tensor.dtype in lacking:
            integer = tensor.contiguous().view(integers[tensor.itemsize][1])
            return np.asarray(integer.numpy().view(lacking[tensor.dtype]))
        return np.asarray(tensor.numpy())

    torch.set_num_threads(1)
    return Target(
        "torch",
        hvd,
        operators.collectives,
        tensor,
        array,
        lambda: torch.zeros(3, dtype=torch.complex64),
        lambda: torch.zeros(4, 4)[:, ::2],
        lambda: torch.zeros(2).to_sparse(),
    )


def gpu_target() -> Target:
    """Arrays on a GPU, without a framework: NumPy's module with their adapter."""
    import types

    import gpu_arrays

    import horovod.numpy as hvd
    from horovod._core.operations.collectives import Collectives

    collectives = Collectives(gpu_arrays.adapter)
    operations = {name: getattr(collectives, name) for name in hvd.ops.__all__}
    compression = types.new_class("Compression", (hvd.Compression,), {"adapter": gpu_arrays.adapter})
    module = types.SimpleNamespace(**{**vars(hvd), **operations, "Compression": compression})

    def array(tensor: Any) -> Array:
        return tensor.numpy() if isinstance(tensor, gpu_arrays.GpuArray) else np.asarray(tensor)

    return Target(
        "gpu",
        module,
        collectives,
        lambda array: gpu_arrays.GpuArray(array, array),
        array,
        lambda: gpu_arrays.GpuArray(np.zeros(3, np.complex64)),
        lambda: gpu_arrays.GpuArray(np.zeros((4, 4), np.float32)[:, ::2]),
        lambda: gpu_arrays.GpuArray(np.ma.MaskedArray(np.zeros(2, np.float32), [False, True])),
        gpu_arrays.driver().faults,
    )


def mxnet_target(by_engine: bool = False) -> Target:
    """MXNet.

    Args:
        by_engine: reductions and broadcasts are MXNet's operations, whose results are waited for; else all is as with
            the other frameworks, which only the adapter sees.
    """
    import types

    import ml_dtypes
    import mxnet as mx

    import horovod.mxnet as hvd
    from horovod._core.tensors import dtypes
    from horovod.mxnet import ops
    from horovod.mxnet.adapter import adapter
    from horovod.mxnet.failures import wait_for

    mx.util.set_np_shape(True)  # scalars, and arrays without elements
    bfloat16 = np.dtype(ml_dtypes.bfloat16)

    def tensor(array: Array) -> Any:
        if array.dtype != bfloat16:
            return mx.nd.array(array, dtype=array.dtype)
        return adapter.cast(mx.nd.array(array.astype(np.float32)), dtypes.BFLOAT16)

    def array(tensor: Any) -> Array:
        if adapter.dtype(tensor) != dtypes.BFLOAT16:
            return np.asarray(tensor.asnumpy())
        return np.asarray(tensor.astype(np.float32).asnumpy().astype(bfloat16))

    def waited_for(operation: Callable[..., Any], blocking: Callable[..., Any]) -> Callable[..., Any]:
        def call(tensors: Any, *arguments: Any, **more: Any) -> Any:
            if "compression" in more:
                return blocking(tensors, *arguments, **more)
            results = operation(tensors, *arguments, **more)
            wait_for(results if isinstance(results, (list, tuple)) else [results])
            return results

        return call

    leaves_out = frozenset({"unsupported_dtype", "refusal_of_a_group", "rows_beyond_32_bits"})
    operations = {name: getattr(ops.blocking, name) for name in _operations_of("horovod.numpy")}
    if by_engine:
        leaves_out |= {"deprecated_average"}  # points at the line of `call` above
        operations |= {name: waited_for(getattr(hvd, name), operations[name]) for name in ops.__all__}
    return Target(
        "mxnet",
        types.SimpleNamespace(**{**vars(hvd), **operations}),
        ops.blocking,
        tensor,
        array,
        lambda: None,
        lambda: None,
        lambda: mx.nd.sparse.zeros("row_sparse", (2, 2)),
        lacking=frozenset(range(len(dtypes.NAMES)))
        - {adapter.dtype(mx.nd.zeros(1, dtype=d)) for d in _MXNETS}
        - {dtypes.BFLOAT16},
        leaves_out=leaves_out,
    )


_MXNETS = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


def _operations_of(module: str) -> list[str]:
    return list(importlib.import_module(module).ops.__all__)


TARGETS: dict[str, Callable[[], Target]] = {
    "gpu": gpu_target,
    "mxnet": mxnet_target,
    "mxnet by its engine": lambda: mxnet_target(by_engine=True),
    "numpy": numpy_target,
    "torch": torch_target,
}


@dataclass
class Env:
    """What a test of one rank works with.

    Attributes:
        target: the framework.
        directory: shared by the ranks of this job, empty at the start.
        engine: "real" or "fake".
        failures: texts; a rank with any has failed.
    """

    target: Target
    directory: str
    engine: str
    failures: list[str] = field(default_factory=list)

    @property
    def hvd(self) -> Any:
        """The public module."""
        return self.target.hvd

    @property
    def rank(self) -> int:
        """Of this process."""
        return session.require().rank

    @property
    def size(self) -> int:
        """Of the job."""
        return session.require().size

    @property
    def hosts(self) -> list[int]:
        """The number of ranks on each host of the job."""
        told = os.environ.get("HVD_TEST_HOSTS")
        return [self.size] if told is None else [int(count) for count in told.split(",")]

    @property
    def apart(self) -> bool:
        """Some ranks share no memory."""
        return self.size > 1 and (len(self.hosts) > 1 or os.environ.get("HOROVOD_TRANSPORT") == "tcp")

    def tensor(self, values: Any, dtype: Any = np.float32) -> Any:
        """A tensor of the framework with these values."""
        return self.target.tensor(np.asarray(values, dtype=dtype))

    def check(self, what: str, got: Any, expected: Any, rtol: float = 0.0) -> None:
        """Notes a failure unless the values (tensors, arrays, anything) are equal."""
        got = got if isinstance(got, np.ndarray) or not hasattr(got, "shape") else self.target.array(got)
        if not isinstance(got, np.ndarray):
            if got != expected:
                self.failures.append(f"{what}: got {got!r}, expected {expected!r}")
            return
        expected = np.asarray(expected)
        if got.shape != expected.shape:
            self.failures.append(f"{what}: got shape {got.shape}, expected {expected.shape}")
            return
        equal = got == expected
        if rtol:
            wide_got, wide = got.astype(np.float64), expected.astype(np.float64)
            equal = np.abs(wide_got - wide) <= rtol * np.maximum(np.abs(wide), 1.0)
        if not np.all(equal):
            where = int(np.argmin(np.ravel(equal)))
            self.failures.append(
                f"{what}: {int(np.sum(~equal))} of {got.size} elements differ, first at {where}: "
                f"got {np.ravel(got)[where]}, expected {np.ravel(expected)[where]}"
            )

    def check_true(self, what: str, condition: bool) -> None:
        """Notes a failure unless the condition holds."""
        if not condition:
            self.failures.append(what)

    def raises(
        self, what: str, kinds: type[BaseException] | Sequence[type[BaseException]], call: Callable[[], Any]
    ) -> str:
        """Notes a failure unless the call raises one of `kinds`; the error's text."""
        try:
            call()
        except BaseException as error:
            if isinstance(error, tuple(kinds) if isinstance(kinds, (list, tuple)) else kinds):
                return str(error)
            self.failures.append(f"{what}: raised {error!r}, expected {kinds}")
            return str(error)
        self.failures.append(f"{what}: raised nothing, expected {kinds}")
        return ""

    def still_usable(self, what: str) -> None:
        """The engine works after what has just happened."""
        total = self.hvd.allreduce(self.tensor([self.rank + 1.0]), op=self.hvd.Sum, name=f"usable.{what}")
        self.check(f"usable after {what}", total, np.array([self.size * (self.size + 1) / 2], np.float32))
