"""`horovod.mxnet` without MXNet: upstream's names, parameters and defaults, and the versions that are refused. A module
stands in for MXNet, which has what the import asks for."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from horovod._native import abi
from horovod._native import mxnet as native

# Parameters of upstream's functions, in their order, with the defaults; `...` is an object of ours.
REDUCTION = "average=None name=None priority=0 prescale_factor=1.0 postscale_factor=1.0 process_set=... op=None"
SCATTER = "op=Average name=None priority=0 process_set=... prescale_factor=1.0 postscale_factor=1.0"
MOVEMENT = "name=None priority=0 process_set=..."
NAMES = {
    "allreduce": f"tensor {REDUCTION}",
    "allreduce_": f"tensor {REDUCTION}",
    "grouped_allreduce": f"tensors {REDUCTION}",
    "grouped_allreduce_": f"tensors {REDUCTION}",
    "allgather": f"tensor {MOVEMENT}",
    "grouped_allgather": f"tensors {MOVEMENT}",
    "broadcast": f"tensor root_rank {MOVEMENT}",
    "broadcast_": f"tensor root_rank {MOVEMENT}",
    "alltoall": f"tensor splits=None {MOVEMENT}",
    "reducescatter": f"tensor {SCATTER}",
    "grouped_reducescatter": f"tensors {SCATTER}",
    "DistributedOptimizer": "optimizer gradient_predivide_factor=1.0 num_groups=0 process_set=...",
    "DistributedTrainer": "params optimizer optimizer_params=None compression=... gradient_predivide_factor=1.0 "
    "prefix=None num_groups=0 process_set=...",
    "broadcast_parameters": "params root_rank=0 prefix=None",
}
BASICS = (
    "Adasum", "Average", "Compression", "Max", "Min", "ProcessSet", "Product", "Sum", "add_process_set",
    "allgather_object", "broadcast_object", "global_process_set", "init", "is_initialized", "local_rank", "local_size",
    "mpi_threads_supported", "rank", "remove_process_set", "shutdown", "size", "start_timeline", "stop_timeline",
)  # fmt: skip


class Library:
    """Has every function."""

    def __getattr__(self, name: str) -> Any:
        function = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
        setattr(self, name, function)
        return function


def stand_in(version: str = "1.9.1", engine: str = "") -> dict[str, types.ModuleType]:
    """Modules by name."""
    names = ("mxnet", "base", "nd", "gluon", "gluon.parameter", "optimizer", "util", "ndarray", "ndarray.ndarray")
    made = {name: types.ModuleType(name) for name in ("mxnet", *(f"mxnet.{n}" for n in names[1:]))}
    for name, module in made.items():
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(made[parent], own, module)
    made["mxnet"].__version__ = version
    made["mxnet.util"].getenv = lambda name: engine
    made["mxnet.base"].__dict__.update(_LIB=Library(), check_call=lambda code: None, MXNetError=RuntimeError)
    made["mxnet.ndarray.ndarray"]._new_alloc_handle = None
    made["mxnet.nd"].NDArray = type("NDArray", (), {})
    made["mxnet.optimizer"].Optimizer = type("Optimizer", (), {})
    made["mxnet.gluon"].Trainer = type("Trainer", (), {})
    for name in ("Parameter", "ParameterDict", "DeferredInitializationError"):
        setattr(made["mxnet.gluon.parameter"], name, type(name, (Exception,), {}))
    return made


@pytest.fixture
def nothing_imported() -> Iterator[None]:
    before = dict(sys.modules)
    for name in [name for name in sys.modules if name.startswith(("mxnet", "horovod.mxnet"))]:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.startswith(("mxnet", "horovod.mxnet"))]:
        del sys.modules[name]
    sys.modules.update({name: module for name, module in before.items() if name.startswith("mxnet")})


def shown(hvd: Any, parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    plain = default is None or type(default) in (int, float)
    return f"{parameter.name}={default if plain else 'Average' if default is hvd.Average else '...'}"


def test_names_and_defaults_are_upstreams(nothing_imported: None) -> None:
    sys.modules.update(stand_in())
    hvd = importlib.import_module("horovod.mxnet")
    for name, wanted in NAMES.items():
        signature = inspect.signature(getattr(hvd, name))
        assert " ".join(shown(hvd, one) for one in signature.parameters.values()) == wanted, name
    assert set(NAMES) | set(BASICS) <= set(hvd.__all__)
    operations = importlib.import_module("horovod.mxnet.mpi_ops")
    assert operations.allreduce is hvd.allreduce and operations.rank is hvd.rank


@pytest.mark.parametrize(
    ("version", "engine", "words"),
    [
        ("2.0.0b1", "", "works with MXNet 1.9.1.*Installed: 2.0.0b1.*mxnet==1.9.1 numpy==1.23.5.*horovod.numpy"),
        ("1.9.1", "NaiveEngine", "needs an asynchronous engine.*unset it"),
    ],
)
def test_what_cannot_work_is_refused(version: str, engine: str, words: str, nothing_imported: None) -> None:
    sys.modules.update(stand_in(version, engine))
    with pytest.raises(ImportError, match=words):
        importlib.import_module("horovod.mxnet")


def test_a_numpy_that_is_too_new_is_named(nothing_imported: None, tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "mxnet.py").write_text("raise AttributeError(\"module 'numpy' has no attribute 'bool'\")")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"has no attribute 'bool'.*NumPy before 1.24.*numpy==1.23.5"):
        importlib.import_module("horovod.mxnet")


def test_a_library_without_its_functions_is_refused() -> None:
    with pytest.raises(AttributeError, match="MXEnginePushAsyncND"):
        native.MxnetEngine(Library(), ctypes.CDLL(None))  # type: ignore[arg-type]


def test_what_is_pushed() -> None:
    """Arrays are read or written, each once; the deleter is the core's."""
    seen: list[Any] = []

    class Core(Library):
        def hvd_mxnet_prepare(self, ops: int, n: int, functions: Any, timeout_s: float, request: Any) -> int:
            seen.append([(one.input, one.output) for one in (abi.HvdOp * n).from_address(ops)])
            return abi.IN_PROGRESS if timeout_s < 1 else abi.OK

    def push(run: Any, request: Any, drop: Any, context: Any, *rest: Any) -> int:
        read, reads, written, writes, _, priority, name, wait = rest
        seen.append((sorted(read[:reads]), sorted(written[:writes]), priority, name, wait))
        return 0

    theirs = Library()
    theirs.MXEnginePushAsyncND = push
    engine = native.MxnetEngine(Core(), theirs)  # type: ignore[arg-type]
    members = [abi.HvdOp(input=1, output=1, name=b"a"), abi.HvdOp(input=2, output=3), abi.HvdOp(input=2, output=4)]
    assert engine.push(members, -5, 0.5) == (abi.IN_PROGRESS, 0) and len(seen) == 1
    assert engine.push(members, -5, 1.0) == (abi.OK, 0)
    assert seen[1:] == [[(1, 1), (2, 3), (2, 4)], ([2], [1, 3, 4], -5, b"a", False)]
