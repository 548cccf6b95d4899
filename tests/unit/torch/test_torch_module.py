"""What `import horovod.torch` offers, with and without the core library, and with one rank."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import pathlib
import sys
import textwrap

import jobs
import pytest

WARM = "torch with optimizers"
PROMISED = [
    "allreduce",
    "allreduce_async",
    "allreduce_",
    "allreduce_async_",
    "grouped_allreduce",
    "grouped_allreduce_async",
    "grouped_allreduce_",
    "grouped_allreduce_async_",
    "sparse_allreduce_async",
    "allgather",
    "allgather_async",
    "grouped_allgather",
    "grouped_allgather_async",
    "broadcast",
    "broadcast_async",
    "broadcast_",
    "broadcast_async_",
    "alltoall",
    "alltoall_async",
    "reducescatter",
    "reducescatter_async",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "poll",
    "synchronize",
    "join",
    "barrier",
    "init",
    "shutdown",
    "is_initialized",
    "start_timeline",
    "stop_timeline",
    "size",
    "local_size",
    "cross_size",
    "rank",
    "local_rank",
    "cross_rank",
    "mpi_threads_supported",
    "mpi_enabled",
    "mpi_built",
    "gloo_enabled",
    "gloo_built",
    "nccl_built",
    "ddl_built",
    "ccl_built",
    "cuda_built",
    "rocm_built",
    "ProcessSet",
    "global_process_set",
    "add_process_set",
    "remove_process_set",
    "Average",
    "Sum",
    "Adasum",
    "Min",
    "Max",
    "Product",
    "HorovodInternalError",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "Compression",
    "elastic",
    "broadcast_parameters",
    "broadcast_optimizer_state",
    "broadcast_object",
    "allgather_object",
]

SIGNATURES = {
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "allreduce_async": "tensor average name op prescale_factor postscale_factor process_set",
    "allreduce_": "tensor average name op prescale_factor postscale_factor process_set",
    "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor process_set",
    "grouped_allreduce_async_": "tensors average name op prescale_factor postscale_factor process_set",
    "sparse_allreduce_async": "tensor name op process_set",
    "allgather": "tensor name process_set",
    "broadcast_": "tensor root_rank name process_set",
    "alltoall": "tensor splits name process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "reducescatter_async": "tensor name op process_set prescale_factor postscale_factor",
    "send": "tensor to_rank name process_set",
    "recv_async": "tensor from_rank name process_set",
    "join": "device",
    "barrier": "process_set",
    "DistributedOptimizer": "optimizer named_parameters compression backward_passes_per_step op "
    "gradient_predivide_factor num_groups groups sparse_as_dense process_set",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model",
    "broadcast_object": "obj root_rank name process_set",
    "allgather_object": "obj name process_set",
    "SyncBatchNorm": "num_features eps momentum affine track_running_stats",
}


@pytest.fixture(scope="module")
def hvd() -> object:
    return importlib.import_module("horovod.torch")


@pytest.mark.parametrize("name", PROMISED)
def test_name_is_exported_and_described(hvd: object, name: str) -> None:
    value = getattr(hvd, name)
    assert name in hvd.__all__  # type: ignore[attr-defined]
    if callable(value):
        assert (value.__doc__ or "").strip(), f"{name} has no documentation"


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(hvd: object, name: str) -> None:
    assert list(inspect.signature(getattr(hvd, name)).parameters) == SIGNATURES[name].split()


@pytest.mark.parametrize("name", [name for name in PROMISED if name.startswith(("all", "broadcast", "grouped"))])
def test_collectives_say_so(hvd: object, name: str) -> None:
    assert "Collective." in getattr(hvd, name).__doc__


def test_editors_see_the_documentation(hvd: object) -> None:
    """They read the source: a text that is made when the module is imported is none to them."""
    functions = [value for name in hvd.__all__ if inspect.isfunction(value := getattr(hvd, name))]  # type: ignore[attr-defined]
    assert len(functions) > 40
    for function in map(inspect.unwrap, functions):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert ast.get_docstring(definition) == inspect.getdoc(function), function.__name__  # type: ignore[arg-type]


@pytest.mark.parametrize("module", ["horovod.torch", "horovod.numpy"])
def test_names_of_other_libraries_say_what_to_use(module: str) -> None:
    imported = importlib.import_module(module)
    for name, word in {
        "all_reduce": "use hvd.allreduce",
        "world_size": r"use hvd.size\(\)",
        "get_rank": r"use hvd.rank\(\)",
        "run": r"use horovod.run \(import horovod\)",
        "DistributedDataParallel": "use hvd.DistributedOptimizer",
    }.items():
        assert not hasattr(imported, name)
        with pytest.raises(AttributeError, match=f"'{module}' has no attribute '{name}'; {word}"):
            getattr(imported, name)
    with pytest.raises(AttributeError, match="no attribute 'allreduze'$") as caught:
        imported.allreduze  # noqa: B018
    assert caught.value.name == "allreduze" and caught.value.obj is imported


@pytest.mark.parametrize("module", ["horovod.torch", "horovod.numpy"])
def test_completion_shows_public_names_only(module: str) -> None:
    imported = importlib.import_module(module)
    shown = [name for name in dir(imported) if not name.startswith("__")]
    assert shown == sorted(imported.__all__)
    assert {"__name__", "__file__", "__all__"} <= set(dir(imported))


def test_constants_are_upstreams_numbers(hvd: object) -> None:
    names = ("Average", "Sum", "Adasum", "Min", "Max", "Product")
    assert [int(getattr(hvd, name)) for name in names] == [0, 1, 2, 3, 4, 5]
    assert all(isinstance(getattr(hvd, name), enum.IntEnum) for name in names)


@pytest.mark.parametrize(
    "path", ["mpi_ops", "functions", "optimizer", "compression", "elastic", "elastic.state", "sync_batch_norm"]
)
def test_import_path_of_upstream(path: str) -> None:
    module = importlib.import_module(f"horovod.torch.{path}")
    assert all(hasattr(module, name) for name in module.__all__)


PRIVATE_NAMES = [
    *("compression.Compressor", "compression.NoneCompressor", "compression.FP16Compressor"),
    *("optimizer._DistributedOptimizer", "optimizer._DistributedAdasumOptimizer"),
    *("mpi_ops.Compression", "mpi_ops.gpu_available", "mpi_ops.num_rank_is_power_2", "mpi_ops._handle_map"),
    *("mpi_ops.handle_average_backwards_compatibility", "mpi_ops._allreduce_async", "mpi_ops._broadcast_async"),
    *("mpi_ops._grouped_allreduce_async", "mpi_ops.HorovodAllreduce", "mpi_ops.HorovodGroupedAllreduce"),
    *("mpi_ops.HorovodAllgather", "mpi_ops.HorovodGroupedAllgather", "mpi_ops.HorovodBroadcast"),
    *("mpi_ops.HorovodAlltoall", "mpi_ops.HorovodReducescatter", "mpi_ops.HorovodGroupedReducescatter"),
]


@pytest.mark.parametrize("path", PRIVATE_NAMES)
def test_name_that_existing_programs_import(path: str) -> None:
    module, _, name = path.partition(".")
    assert getattr(importlib.import_module(f"horovod.torch.{module}"), name) is not None


def test_what_existing_programs_ask_at_that_path() -> None:
    mpi_ops = importlib.import_module("horovod.torch.mpi_ops")
    assert mpi_ops.gpu_available("torch") is False and mpi_ops.gpu_available("torch", True) is False
    assert [mpi_ops.num_rank_is_power_2(n) for n in (2, 3)] == [True, False]
    assert issubclass(mpi_ops.Compression.fp16, importlib.import_module("horovod.torch").Compression.none.__mro__[1])


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("mpi_ops", "_allgather_async", "hvd.allgather_async"),
        ("mpi_ops", "_alltoall_async", "hvd.alltoall_async"),
        ("sync_batch_norm", "_SyncBatchNorm", "hvd.SyncBatchNorm"),
    ],
)
def test_absent_name_says_what_to_use(module: str, name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=instead):
        exec(f"from horovod.torch.{module} import {name}")


@pytest.mark.parametrize("statement", ["import horovod.torch.mpi_lib_v2", "from horovod.torch import mpi_lib_v2"])
def test_the_absent_library_says_what_to_use(statement: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"mpi_lib_v2 is not in this version: .* Remedy: "):
        exec(statement)


def test_other_names_are_simply_unknown() -> None:
    assert not hasattr(importlib.import_module("horovod.torch.mpi_ops"), "nothing")


def test_average_becomes_an_operation() -> None:
    convert = importlib.import_module("horovod.torch.mpi_ops").handle_average_backwards_compatibility
    assert [int(convert(op, None)) for op in (None, 1, 2)] == [0, 1, 2]
    with pytest.warns(DeprecationWarning):
        assert int(convert(None, False)) == 1
    with pytest.raises(ValueError):
        convert(1, True)


@pytest.mark.parametrize(
    ("module", "package", "title"),
    [
        ("horovod.torch", "torch", "PyTorch"),
        ("horovod.tensorflow", "tensorflow", "TensorFlow"),
        ("horovod.keras", "keras", "Keras"),
        ("horovod.numpy", "numpy", "NumPy"),
    ],
)
def test_a_framework_that_is_missing_is_named(module: str, package: str, title: str) -> None:
    done = run(
        f"import sys\nsys.modules[{package!r}] = sys.modules['numpy'] = None\n"
        f"try:\n    import {module}\nexcept ModuleNotFoundError as error:\n"
        "    print(error.name, error, error.__suppress_context__ or error.__context__ is None)\n"
    )
    assert done.stdout == (
        f"{package} {module} needs {title}, which this Python ({sys.executable}) does not have; pip install {package} "
        "True\n"
    ), done.stderr


def test_another_module_that_a_framework_lacks_is_not_taken_for_the_framework(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torch.py").write_text("import something_else\n")
    done = run(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport horovod.torch\n")
    assert "No module named 'something_else'" in done.stderr and "pip install" not in done.stderr


def test_the_package_alone_says_what_to_import() -> None:
    done = run("import horovod as hvd\nhvd.init()\n")
    assert "import horovod.torch (or .tensorflow, .keras, .numpy) as hvd" in done.stderr


def test_wrong_arguments_of_an_optimizer() -> None:
    code = """
import torch, horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 1)
sgd = torch.optim.SGD(model.parameters())
wrong_optimizers = [(wrong,) for wrong in (model, torch.optim.SGD, None)]
wrong_names = [(sgd, wrong) for wrong in (model, torch.nn.Sequential(model), 3)]
for arguments in wrong_optimizers + wrong_names:
    try:
        hvd.DistributedOptimizer(*arguments)
    except ValueError as error:
        print(error)
"""
    done = run(code, WARM)
    assert done.code == 0, done.stderr
    assert done.stdout.count("DistributedOptimizer needs an optimizer, e.g. torch.optim.SGD(") == 3
    assert done.stdout.count("named_parameters must hold (name, parameter) tuples") == 3


def run(code: str, warm: str = "", **environ: str) -> jobs.Ended:
    return jobs.run(jobs.python("-c", code, warm=warm), environ)


def test_missing_library_is_a_warning_at_import_and_an_error_in_init() -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import horovod.torch as hvd
assert any("nowhere.so" in str(w.message) for w in seen), [str(w.message) for w in seen]
for call in (hvd.init, hvd.size):
    try:
        call()
    except (ImportError, hvd.HorovodInternalError) as error:
        print(type(error).__name__, error)
"""
    done = run(code, HOROVOD_LIBRARY="/nowhere.so")
    assert done.code == 0, done.stderr
    assert "ImportError" in done.stdout and "/nowhere.so" in done.stdout and "NotInitializedError" in done.stdout


def test_everything_needs_init() -> None:
    code = """
import torch, horovod.torch as hvd
model = torch.nn.Linear(2, 2)
calls = [hvd.rank, lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.broadcast_object(1), hvd.barrier,
         lambda: hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))]
for call in calls:
    try:
        call()
    except ValueError as error:
        assert "hvd.init()" in str(error), error
    else:
        raise SystemExit("no error")
"""
    done = run(code, WARM)
    assert done.code == 0, done.stdout + done.stderr


def test_an_optimizer_tells_how_it_reduces() -> None:
    code = """
import torch, horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 2)
model.bias.requires_grad_(False)
for op in (hvd.Average, hvd.Adasum):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), op=op)
    assert (optimizer.op, optimizer.gradient_predivide_factor) == (op, 1.0)
    assert optimizer.process_set is hvd.global_process_set
    assert optimizer._requires_update == {model.weight}
"""
    done = run(code, WARM)
    assert done.code == 0, done.stdout + done.stderr


def test_one_rank_trains_without_hooks_and_with_them_when_elastic() -> None:
    code = """
import os, torch, horovod.torch as hvd
hvd.init()
assert (hvd.rank(), hvd.size()) == (0, 1)
assert hvd.allreduce_(torch.ones(2), op=hvd.Sum, name="a").tolist() == [1.0, 1.0]
assert hvd.alltoall(torch.ones(2), splits=[2])[1].tolist() == [2]
assert hvd.join() == 0
weight = torch.nn.Parameter(torch.zeros(2))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
weight.sum().backward()
assert optimizer._access.step_has_begun == (os.environ.get("HOROVOD_ELASTIC") == "1")
optimizer.step()
assert weight.tolist() == [-1.0, -1.0]
layer = hvd.SyncBatchNorm(3)
assert torch.allclose(layer(torch.eye(3)), torch.nn.BatchNorm1d(3)(torch.eye(3)))
"""
    for elastic in ("0", "1"):
        done = run(code, WARM, HOROVOD_ELASTIC=elastic)
        assert done.code == 0, done.stdout + done.stderr
