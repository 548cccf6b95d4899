"""Tests of horovod._native against a small library compiled from the real header: layouts, arguments, errors,
loading.
"""

from __future__ import annotations

import ctypes
import pathlib
import shutil
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from horovod._core.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    MismatchError,
    ShutdownError,
    UnsupportedError,
    error_from_status,
)
from horovod._core.tensors.adapter import ResultBlock
from horovod._native import abi, library
from horovod._native.config import make_config, tree
from horovod._native.engine import Engine

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parents[2] / "include"
COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="No C compiler is installed.")


def compile_fake(path: pathlib.Path, *flags: str, source: str = "fake_library.c") -> pathlib.Path:
    command = [
        str(COMPILER),
        "-shared",
        "-fPIC",
        "-O1",
        "-w",
        f"-I{INCLUDE}",
        *flags,
        str(HERE / source),
        "-o",
        str(path),
    ]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(compile_fake(tmp_path_factory.mktemp("fake") / "libhorovod.so")))
    library.declare(loaded)
    return loaded


@pytest.fixture
def engine(fake: ctypes.CDLL) -> Engine[Any, Any]:
    return Engine(fake, error_from_status, ResultBlock)


def config_fields(**changes: Any) -> dict[str, Any]:
    names = [
        name for name, *_ in abi.HvdConfig._fields_ if name not in ("struct_bytes", "peers", "n_peers", "host_of_rank")
    ]
    return {
        **{name: number for number, name in enumerate(names, 10)},
        "hostname": "node7",
        "nvtx_library": "/profiler.so",
        "timeline_path": "/t",
        "timeline_job": "5ob",
        "counters": (ctypes.c_uint64 * 2)(0, 4711),
        **changes,
    }


def test_layouts_are_the_compilers(tmp_path: pathlib.Path) -> None:
    lines = []
    for name, structure in abi.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{f[0]} %zu\\n", offsetof({name}, {f[0]}));' for f in structure._fields_]
    (tmp_path / "p.c").write_text(
        f'#include <stdio.h>\n#include "horovod/horovod.h"\nint main() {{ {" ".join(lines)} }}'
    )
    subprocess.run([str(COMPILER), f"-I{INCLUDE}", str(tmp_path / "p.c"), "-o", str(tmp_path / "p")], check=True)
    printed = subprocess.run([str(tmp_path / "p")], capture_output=True, text=True, check=True).stdout
    expected = dict(line.split() for line in printed.splitlines())
    mirrored = {name: str(ctypes.sizeof(structure)) for name, structure in abi.STRUCTURES.items()}
    for name, structure in abi.STRUCTURES.items():
        mirrored.update({f"{name}.{f[0]}": str(getattr(structure, f[0]).offset) for f in structure._fields_})
    assert mirrored == expected


def test_the_whole_configuration_arrives(engine: Engine[Any, Any]) -> None:
    key = bytes(range(100, 116))
    peer = SimpleNamespace(
        rank=1, memory_fd=2, doorbell_fd=3, liveness_fd=4, control_fd=5, data_fd=6, pid=1 << 33, key=key
    )
    fields = config_fields(size=3, epoch=2**63 + 1)
    engine.init(make_config([peer, peer], [0, 1, 2], **fields))
    peers = f"| 1 2 3 4 5 6 {1 << 33} 100..115" * 2
    others = " ".join(map(str, list({**fields, "counters": 4711}.values())[7:]))
    assert engine.describe() == f"10 3 12 13 14 15 {2**63 + 1}|0 1 2 {peers}| {others}"
    assert others.startswith("17 18 19 /profiler.so 4711 22 5ob node7 ")


def test_an_mpi_library_arrives_or_why_there_is_none(engine: Engine[Any, Any]) -> None:
    with pytest.raises(BackendUnavailableError, match=r"^/lib/libmpi_abi\.so"):
        engine.mpi.use(2, "/lib/libmpi_abi.so", 0xFEDCBA9876543210)
    engine.mpi.refuse("no such library")


def test_a_gpu_and_its_libraries_arrive(engine: Engine[Any, Any]) -> None:
    engine.gpu.use(0, "libcuda.so.1", "/lib/libnccl.so.2", "", 8, 2)
    assert engine.describe() == "0 libcuda.so.1 /lib/libnccl.so.2|NULL 8 2"
    engine.gpu.use(1, "libcuda.so.1", "", "none is found", 0, 1)
    assert engine.describe() == "1 libcuda.so.1 NULL|none is found 0 1"
    with pytest.raises(BackendUnavailableError, match="no such device"):
        engine.gpu.use(7, "libcuda.so.1", "", "none", 0, 1)


def test_orders_and_copies_of_results_arrive(engine: Engine[Any, Any]) -> None:
    stream = 0xFEDCBA9876543210
    engine.gpu.order(3, stream)
    with pytest.raises(InvalidArgumentError, match="no such stream"):
        engine.gpu.order(3, 0)
    engine.gpu.copy_result(1 << 40, 2, 0x7F0000001000, 1 << 33, stream)
    assert engine.describe() == f"{1 << 40} 2 0x7f0000001000 {1 << 33} 0xfedcba9876543210"
    with pytest.raises(InvalidArgumentError, match="bytes"):
        engine.gpu.copy_result(1, 0, 0, 0, stream)


def test_a_configuration_must_be_complete_and_known() -> None:
    fields = config_fields()
    del fields["spin_us"]
    with pytest.raises(TypeError, match=r"missing fields \['spin_us'\], unknown fields \['speed'\]"):
        make_config([], [0], **fields, speed=1)


def test_a_failed_start_raises_with_the_message(engine: Engine[Any, Any]) -> None:
    config = make_config([], [0] * 11, **config_fields(rank=99, timeline_path=None))
    with pytest.raises(Exception, match="no thread") as caught:
        engine.init(config)
    assert type(caught.value).__name__ == "HorovodInternalError"


def test_an_operation_arrives(engine: Engine[Any, Any]) -> None:
    data, out = ctypes.create_string_buffer(b"in"), ctypes.create_string_buffer(b"out")
    ops = (abi.HvdOp * 2)()
    op = ops[1]
    op.type, op.dtype, op.reduce_op, op.root_rank, op.process_set, op.ndim = 3, 7, 1, 2, 5, 2
    op.prescale, op.postscale, op.name = 0.5, 2.0, b"layer"
    op.input, op.output = ctypes.addressof(data), ctypes.addressof(out)
    op.shape = (ctypes.c_int64 * 2)(1 << 40, 3)
    op.splits, op.n_splits = (ctypes.c_int32 * 2)(4, 5), 2
    handle = ctypes.c_int64()
    assert engine.submit(ctypes.addressof(ops), 2, abi.SUBMIT_WILL_WAIT, ctypes.addressof(handle)) == abi.OK
    assert handle.value == (1 << 40) + 2
    assert engine.describe() == f"3 7 1 2 5 0.5 2 layer in out {1 << 40} 3 s4 s5"
    assert engine.run(ctypes.addressof(ops), 2, 1.5, ctypes.addressof(handle)) == abi.IN_PROGRESS
    status = engine.run(ctypes.addressof(ops), 2, 0.5, ctypes.addressof(handle))
    assert isinstance(engine.error(status), MismatchError) and str(engine.error(status)) == "differ"


def test_handles_are_64_bits_wide(engine: Engine[Any, Any]) -> None:
    assert engine.poll(1 << 40) == abi.OK and engine.wait(1 << 40, 0.25) == abi.OK
    assert engine.poll(0) == abi.IN_PROGRESS and engine.release(7) == abi.OK
    assert engine.finish(7, 0.5) == abi.OK and engine.finish(8, 0.5) == abi.IN_PROGRESS
    assert engine.finish_all([1, 1 << 40], 0.5) == abi.OK and engine.finish_all([1], 0.5) == abi.UNKNOWN_HANDLE
    assert engine.result_value(2) == 1 << 34


def test_errors_belong_to_the_thread_that_failed(engine: Engine[Any, Any]) -> None:
    status = engine.release(8)

    def other() -> None:
        with pytest.raises(ShutdownError, match="timeout"):
            engine.shutdown(1.0)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert isinstance(engine.error(status), InvalidArgumentError) and str(engine.error(status)) == "unknown handle"


def test_a_result_is_freed_once_with_its_block(engine: Engine[Any, Any]) -> None:
    block = engine.take_result(1, 0)
    assert (block.shape, block.dtype, block.nbytes) == ((2, 3), 7, 24)
    view = block.buffer()
    del block
    assert engine.result_value(3) == 0
    assert (ctypes.c_float * 6).from_buffer(view)[5] == 5.0
    del view
    assert engine.result_value(3) == 1
    with pytest.raises(InvalidArgumentError, match="no such result"):
        engine.take_result(1, 1)


def test_a_result_is_freed_when_a_signal_handler_raises_before_its_block_is_there(fake: ctypes.CDLL) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    engine: Engine[Any, Any] = Engine(fake, error_from_status, interrupted)
    before = engine.result_value(3)
    with pytest.raises(KeyboardInterrupt):
        engine.take_result(1, 0)
    assert engine.result_value(3) == before + 1


def test_connections_that_come_later(engine: Engine[Any, Any], fake: ctypes.CDLL) -> None:
    engine.connected(3, 8, "")
    assert engine.describe() == "3 8 "
    engine.connected(4, -1, "nobody there")
    assert engine.describe() == "4 -1 nobody there"
    with pytest.raises(InvalidArgumentError, match="no such rank"):
        engine.connected(7, -1, "")
    assert tree(fake, [0, 4, 9]) == [-1, 3, 8]
    with pytest.raises(MemoryError):
        tree(fake, [0] * 9)


def test_the_remaining_calls(engine: Engine[Any, Any]) -> None:
    assert engine.region_bytes(3, 5) == 3000000000005
    assert engine.received_splits(4, 2, 3) == [42, 43, 44]
    assert engine.process_set_add([3, 9]) == 9 and engine.process_set_add([3, 9], by_members=True) == 109
    assert engine.process_set_remove(4) == 5
    assert engine.process_set_list() == [0] and engine.initialized()
    engine.abort(7, "why")
    engine.shutdown(5.5)
    engine.refuse(1, 2, "name", "reason")
    assert engine.describe() == "1 2 name reason"
    engine.timeline_start("/tmp/x", True)
    assert engine.describe() == "/tmp/x 1"
    for call in (engine.timeline_stop, lambda: engine.process_set_add([]), lambda: engine.process_set_remove(0)):
        with pytest.raises(InvalidArgumentError):
            call()


def test_lists_longer_than_the_first_guess_are_read_again(engine: Engine[Any, Any]) -> None:
    assert engine.process_set_ranks(3) == [0, 2, 4]
    assert engine.process_set_ranks(200) == list(range(0, 400, 2))
    with pytest.raises(InvalidArgumentError, match="unknown id"):
        engine.process_set_ranks(-1)


def test_a_long_description_is_read_whole(engine: Engine[Any, Any]) -> None:
    engine.refuse(0, 0, "n" * 30000, "end")
    assert engine.dumps.text() == engine.describe()
    assert len(engine.describe()) == 30008 and engine.describe().endswith(" end")


def test_shared_memory_and_its_refusal(engine: Engine[Any, Any]) -> None:
    address = engine.shared_alloc(64)
    assert (ctypes.c_char * 64).from_address(address).raw == bytes(64)
    engine.shared_free(address)
    with pytest.raises(UnsupportedError, match="alone on the host"):
        engine.shared_alloc(2000)


def test_the_log_sink_receives_lines(engine: Engine[Any, Any]) -> None:
    lines: list[tuple[int, str]] = []
    engine.set_log_sink(lambda level, text: lines.append((level, text)))
    engine.init(make_config([], [0] * 11, **config_fields()))
    engine.set_log_sink(None)
    engine.init(make_config([], [0] * 11, **config_fields()))
    assert lines == [(2, "started")]


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(library, "_loaded", None)
    return monkeypatch


def test_the_named_library_is_loaded_once(unloaded: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    unloaded.setenv(library.PATH_VARIABLE, str(compile_fake(tmp_path / "other.so")))
    assert library.load() is library.load() and library.load().hvd_abi_version() == abi.ABI_VERSION


@pytest.mark.parametrize("kind", ["absent", "text", "foreign", "version", "incomplete"])
def test_an_unusable_library_says_where_why_and_what_to_do(
    unloaded: pytest.MonkeyPatch, tmp_path: pathlib.Path, kind: str
) -> None:
    path = tmp_path / "lib.so"
    reasons = {
        "absent": "no such file",
        "text": "invalid ELF header|file too short",
        "foreign": "it has no hvd_abi_version",
        "version": f"it speaks version 999 of the C interface, this Python package version {abi.ABI_VERSION}",
        "incomplete": "it is incomplete: .*hvd_",
    }
    if kind == "text":
        path.write_text("not a library" * 100)
    elif kind == "version":
        compile_fake(path, "-DFAKE_ABI_VERSION=999")
    elif kind in ("foreign", "incomplete"):
        name = "hvd_abi_version" if kind == "incomplete" else "unrelated"
        (tmp_path / "s.c").write_text(f"int {name}(void) {{ return {abi.ABI_VERSION}; }}")
        compile_fake(path, source=str(tmp_path / "s.c"))
    unloaded.setenv(library.PATH_VARIABLE, str(path))
    with pytest.raises(ImportError) as caught:
        library.load()
    message = str(caught.value)
    assert str(path) in message and "Remedy: correct or unset HOROVOD_LIBRARY" in message
    assert __import__("re").search(reasons[kind], message)


def test_without_the_variable_the_library_lies_beside_the_package(unloaded: pytest.MonkeyPatch) -> None:
    unloaded.delenv(library.PATH_VARIABLE, raising=False)
    assert library.candidate_paths() == [str(pathlib.Path(library.__file__).with_name("libhorovod.so"))]


def test_a_library_in_another_folder_of_the_package_is_found(
    unloaded: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    """As `pip install -e .` leaves it: the libraries are installed, the Python files are those of the checkout."""
    installed, checkout = tmp_path / "site-packages", tmp_path / "checkout"
    installed.mkdir()
    unloaded.delenv(library.PATH_VARIABLE, raising=False)
    (installed / library.FILE_NAME).symlink_to(library.used_path())
    for folders in ([installed, checkout], [checkout, installed]):
        unloaded.setattr("horovod._native.__path__", [str(folder) for folder in folders])
        unloaded.setattr(library, "_loaded", None)
        assert library.used_path() == str(installed / library.FILE_NAME)
        assert library.beside("libother.so") == str(installed / "libother.so")
        assert library.load()


def test_importing_loads_nothing() -> None:
    program = (
        "import horovod._native.engine, sys; assert not {'numpy', 'torch'} & set(sys.modules);"
        "print(open('/proc/self/maps').read())"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "libhorovod" not in output


def test_who_asks_for_dumps(engine: Any) -> None:
    assert engine.dumps.call_fd() == -1
    assert engine.dumps.on_signal(12)
    assert not engine.dumps.on_signal(10)


def test_steps_are_awaited(engine: Any) -> None:
    assert engine.tuning.await_steps(3, 9.0) == (3, 300, 1.5)
    with pytest.raises(Exception, match="over"):
        engine.tuning.await_steps(7, 9.0)


def test_parameters_are_asked_for_and_changed(engine: Any) -> None:
    found = engine.tuning.parameters()
    assert found == {
        "hierarchical_allreduce": -1,
        "hierarchical_allgather": 0,
        "torus_allreduce": 1,
        "fusion_threshold_bytes": 64,
        "cycle_time_ms": 2.5,
    }
    engine.tuning.set_parameters(found)
    with pytest.raises(Exception, match="other parameters"):
        engine.tuning.set_parameters({**found, "torus_allreduce": 0})
