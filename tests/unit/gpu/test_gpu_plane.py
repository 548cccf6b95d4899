"""What a rank tells the core of its GPU, and what it says is usable here; over stubs, without a GPU."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stub_libraries import needs_compiler, put_driver, put_hip, put_nccl

from horovod._core.compat import legacy
from horovod._core.errors import BackendUnavailableError, InvalidArgumentError, UnsupportedError
from horovod._core.gpu import devices, libraries, platforms
from horovod._core.life import session as sessions
from horovod._core.life.planes import gpu_plane
from horovod._core.settings.values import from_environ

NONE = libraries.Found(
    why_not="libnccl.so.2 not found (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for a driver of CUDA 13, or set "
    "HOROVOD_NCCL_PATH)"
)


class Engine:
    """Notes what it is told of the GPU.

    Attributes:
        fault: what hvd_use_gpu fails with.
    """

    def __init__(self, fault: Exception | None = None) -> None:
        self.gpu = self
        self.fault = fault
        self.told: list[tuple[Any, ...]] = []

    def use(self, *words: Any) -> None:
        """Noted."""
        self.told.append(words)
        if self.fault is not None:
            raise self.fault


def session(engine: Engine, **environ: str) -> Any:
    """One with settings from variables, by what follows HOROVOD_ in their names."""
    settings = from_environ({f"HOROVOD_{name}": value for name, value in environ.items()})
    return SimpleNamespace(engine=engine, settings=settings, rank=0)


@pytest.fixture(autouse=True)
def an_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """One is found."""
    monkeypatch.setattr(libraries, "find", lambda *words: libraries.Found("/lib/libnccl.so.2", "so"))


def test_the_core_hears_once_in_each_session() -> None:
    engine = Engine()
    first, second = session(engine, NCCL_MAX_CTAS="4", NUM_NCCL_STREAMS="3"), session(engine)
    assert gpu_plane.use(first, 1) and gpu_plane.use(first, 1) and gpu_plane.why_not(first, 1) == ""
    assert gpu_plane.use(second, 0)
    told = ("libcuda.so.1", "/lib/libnccl.so.2", "")
    assert engine.told == [(1, *told, 4, 3), (0, *told, 0, 1)]


def test_no_stream_is_as_one() -> None:
    engine = Engine()
    assert gpu_plane.use(session(engine, NUM_NCCL_STREAMS="0"), 0)
    assert engine.told[0][-1] == 1


def test_a_second_device_is_the_adapters_own() -> None:
    one = session(Engine())
    assert gpu_plane.use(one, 1)
    assert not gpu_plane.use(one, 0) and gpu_plane.use(one, 1)
    assert gpu_plane.why_not(one, 0) == "this process uses cuda:1, and the core has one device for each process"


def test_threads_that_come_together_tell_it_once() -> None:
    engine, barrier, answers = Engine(), threading.Barrier(8), []
    one = session(engine)

    def body() -> None:
        barrier.wait()
        answers.append(gpu_plane.use(one, 0))

    threads = [threading.Thread(target=body) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 8 and len(engine.told) == 1


def test_compiled_functions_have_it_in_every_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "on_begin", [])
    device = 41  # a process remembers them
    first, later, broken = session(Engine()), session(Engine()), session(Engine(BackendUnavailableError("none")))
    assert not gpu_plane.use_in_every_life(broken, device) and sessions.on_begin == []
    assert gpu_plane.use_in_every_life(first, device) and gpu_plane.use_in_every_life(first, device)
    assert not gpu_plane.use_in_every_life(first, 0)
    (begin,) = sessions.on_begin
    begin(later)
    assert [told[0] for told in later.engine.told] == [device] and gpu_plane.use(later, device)


def test_a_driver_that_cannot_be_opened_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    one = session(Engine(BackendUnavailableError("libcuda.so.1: cannot open shared object file")))
    with caplog.at_level(logging.INFO, "horovod"):
        assert not gpu_plane.use(one, 0) and not gpu_plane.use(one, 0)
    assert gpu_plane.why_not(one, 0) == gpu_plane.why_not(one, 1) == "libcuda.so.1: cannot open shared object file"
    assert len(one.engine.told) == len(caplog.records) == 1


def test_other_faults_are_raised() -> None:
    one = session(Engine(InvalidArgumentError("another version")))
    with pytest.raises(InvalidArgumentError, match="another version"):
        gpu_plane.use(one, 0)


def test_without_nccl_the_core_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "find", lambda *words: NONE)
    one = session(Engine())
    assert gpu_plane.use(one, 0)
    assert one.engine.told == [(0, "libcuda.so.1", "", NONE.why_not, 0, 1)]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({}, ("/lib/libnccl.so.2", "")),
        ({"GPU_OPERATIONS": "NCCL", "GPU_ALLREDUCE": "nccl"}, ("/lib/libnccl.so.2", "")),
        ({"GPU_OPERATIONS": "GLOO", "GPU_BROADCAST": "host"}, ("", "HOROVOD_GPU_OPERATIONS=GLOO asks for copies")),
        ({"GPU_OPERATIONS": "host"}, ("", "HOROVOD_GPU_OPERATIONS=GLOO asks for copies")),
    ],
)
def test_the_way_is_chosen_for_all_operations(environ: dict[str, str], told: tuple[str, str]) -> None:
    one = session(Engine(), **environ)
    assert gpu_plane.use(one, 0)
    ((_, _, nccl, why_not, *_),) = one.engine.told
    assert nccl == told[0] and why_not.startswith(told[1]) and bool(why_not) == bool(told[1])


@pytest.mark.parametrize("operation", ["ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER"])
def test_one_operation_has_no_way_of_its_own(operation: str) -> None:
    for environ, way in (
        ({f"GPU_{operation}": "GLOO"}, "NCCL"),
        ({f"GPU_{operation}": "NCCL", "GPU_OPERATIONS": "GLOO"}, "GLOO"),
    ):
        one = session(Engine(), **environ)
        with pytest.raises(UnsupportedError, match=rf"^HOROVOD_GPU_{operation}=\w+ is not supported.* is {way}\."):
            gpu_plane.use(one, 0)
        assert one.engine.told == []


@pytest.mark.parametrize("variable", ["GPU_OPERATIONS", "GPU_ALLTOALL"])
@pytest.mark.parametrize("way", ["MPI", "DDL"])
def test_other_ways_are_refused_by_name(variable: str, way: str) -> None:
    one = session(Engine(), **{variable: way})
    for _ in range(2):
        with pytest.raises(UnsupportedError, match=f"^HOROVOD_{variable}={way} is not supported: .*Use NCCL or GLOO"):
            gpu_plane.use(one, 0)


def test_words_that_nobody_knows_are_refused_by_the_table() -> None:
    with pytest.raises(InvalidArgumentError, match="HOROVOD_GPU_OPERATIONS must be one of nccl, gloo, mpi, ddl"):
        from_environ({"HOROVOD_GPU_OPERATIONS": "fast"})


@needs_compiler
def test_what_is_usable_needs_a_device_its_driver_and_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nccl, driver = put_nccl(tmp_path / "libnccl.so.2"), put_driver(tmp_path)
    no_driver = put_nccl(tmp_path / "other.so")
    settings = from_environ({})

    def usable(nodes: list[str], driver: Path, nccl: Path | None) -> tuple[int, bool]:
        found = libraries.Found(str(nccl), "so") if nccl else NONE
        monkeypatch.setattr(devices, "nvidia", lambda: nodes)
        monkeypatch.setattr(libraries, "DRIVER", str(driver))
        monkeypatch.setattr(libraries, "find", lambda *words: found)
        return gpu_plane.nccl_version(settings), gpu_plane.cuda_usable()

    assert usable(["nvidia0"], driver, nccl) == (22809, True)
    assert usable(["nvidia0"], driver, None) == (0, True)
    assert usable(["nvidia0"], driver, tmp_path / "gone.so") == (0, True)
    assert usable([], driver, nccl) == (0, False)
    assert usable(["nvidia0"], tmp_path / "gone.so", nccl) == (0, False)
    assert usable(["nvidia0"], no_driver, nccl) == (0, False)


@pytest.mark.parametrize(
    ("loaded", "nvidia", "amd", "expected"),
    [
        (False, [], [], platforms.CUDA),
        (False, ["nvidia0"], ["kfd"], platforms.CUDA),
        (False, [], ["kfd"], platforms.ROCM),
        (True, ["nvidia0"], ["kfd"], platforms.ROCM),
        (True, [], ["kfd"], platforms.ROCM),
        (True, [], [], platforms.ROCM),
        (True, ["dxg"], [], platforms.ROCM),
        (True, ["nvidia0"], [], platforms.CUDA),
        (True, ["dxg", "nvidia0"], [], platforms.CUDA),
    ],
)
def test_the_platform_is_that_of_the_framework_or_of_the_machine(
    loaded: bool, nvidia: list[str], amd: list[str], expected: platforms.Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "is_loaded", lambda kind: loaded and kind is libraries.HIP)
    monkeypatch.setattr(devices, "nvidia", lambda *root: nvidia)
    monkeypatch.setattr(devices, "amd", lambda *root: amd)
    assert platforms.here() is expected


def test_the_core_hears_of_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "here", lambda: platforms.ROCM)
    monkeypatch.setattr(libraries, "find", lambda kind, *words: libraries.Found(f"/opt/rocm/lib/{kind.names[0]}", "so"))
    one = session(Engine())
    assert gpu_plane.use(one, 0)
    assert one.engine.told == [(0, "/opt/rocm/lib/libamdhip64.so.7", "/opt/rocm/lib/librccl.so.1", "", 0, 1)]


@needs_compiler
def test_rocm_is_usable_with_a_device_hip_and_rccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hip, rccl = put_hip(tmp_path), put_nccl(tmp_path / "librccl.so.1", version=22203)
    settings = from_environ({})

    def usable(nodes: list[str], hip: Path, rccl: Path) -> tuple[int, bool, bool]:
        paths = {libraries.HIP: str(hip), libraries.RCCL: str(rccl)}
        monkeypatch.setattr(devices, "amd", lambda *root: nodes)
        monkeypatch.setattr(devices, "nvidia", lambda *root: [])
        monkeypatch.setattr(libraries, "find", lambda kind, *words: libraries.Found(paths[kind], "so"))
        return gpu_plane.nccl_version(settings), gpu_plane.rocm_usable(settings), gpu_plane.cuda_usable()

    assert usable(["kfd"], hip, rccl) == (22203, True, False)
    assert usable(["kfd"], hip, tmp_path / "gone.so") == (0, False, False)
    assert usable(["kfd"], tmp_path / "gone.so", rccl) == (0, False, False)
    assert usable([], hip, rccl) == (0, False, False)


def test_gpus_are_available_to_frameworks_whose_tensors_are_taken_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "extension_available", lambda *words: True)
    for usable in (True, False):
        monkeypatch.setattr(legacy.context, "cuda_built", lambda usable=usable: usable)
        assert [legacy.gpu_available(name) for name in ("torch", "mxnet")] == [usable, False]


@pytest.mark.parametrize("seen", [["GPU:0"], []])
def test_a_gpu_is_available_to_tensorflow_if_it_sees_one(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = SimpleNamespace(list_physical_devices=lambda kind: seen if kind == "GPU" else ["CPU:0"])
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(config=config))
    monkeypatch.setattr(legacy, "extension_available", lambda *words: True)
    assert legacy.gpu_available("tensorflow") is bool(seen)


def test_an_import_looks_for_no_gpu() -> None:
    modules = "{'horovod._core.life.planes.gpu_plane', 'horovod._core.gpu'}"
    code = f"import sys; import horovod.numpy; print(sorted({modules} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
