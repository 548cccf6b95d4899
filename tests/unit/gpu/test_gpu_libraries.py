"""Which NCCL is taken, and why, or why there is none; copies of a program's header stand in for libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from stub_libraries import needs_compiler, put, put_driver, put_nccl

from horovod._core.gpu import devices, probe
from horovod._core.gpu.libraries import HIP, NCCL, RCCL, Found, Kind, Machine, Named, find, named_in

HEAD = Path("/proc/self/exe").read_bytes()[:64]
OTHER = HEAD[:18] + b"\xff\xfe" + HEAD[20:]
NOBODY = Named()
REMEDY = (
    "libnccl.so.2 not found (pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for a driver of CUDA 13, or set "
    "HOROVOD_NCCL_PATH)"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file system that has nothing."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def library(path: Path, head: bytes = HEAD) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    return str(path)


def found(root: Path, named: Named = NOBODY, environ: dict[str, str] | None = None, kind: Kind = NCCL) -> Found:
    return find(kind, named, environ or {}, Machine(str(root), ["", str(root / "user"), str(root / "site")]))


def test_the_best_place_wins(root: Path) -> None:
    """From the last to the first, each put beside those before."""
    environ = {"LD_LIBRARY_PATH": f":{root}/ld"}
    home, folder = str(root / "home"), str(root / "folder")
    named = Named(home=home, folder=folder)
    steps = [
        ("usr/local/cuda/lib64", "it lies where the system has its libraries"),
        ("usr/lib/some-linux-gnu", "it lies where the system has its libraries"),
        ("opt/cached", "the system's loader knows it"),
        ("ld", "LD_LIBRARY_PATH leads to it"),
        ("site/torch/lib", "it is installed beside Python"),
        ("site/nvidia/nccl/lib", "it is installed beside Python"),
        ("user/nvidia/nccl/lib", "it is installed beside Python"),
        ("loaded by torch", "this process had loaded it"),
        ("folder", "HOROVOD_NCCL_LIB leads to it"),
        ("home/lib64", "HOROVOD_NCCL_HOME leads to it"),
        ("home/lib", "HOROVOD_NCCL_HOME leads to it"),
    ]
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\1\0libnccl.so.2\0/opt/cached/libnccl.so.2\0/x\0")
    (root / "proc/self").mkdir(parents=True)
    maps = f"7f00-7f01 r-xp 0 08:01 1 /lib/libc.so.6\n7f02-7f03 r-xp 0 08:01 2 {root}/loaded by torch/libnccl.so.2\n"
    (root / "proc/self/maps").write_text(maps + f"7f04-7f05 rw-p 0 0:0 0\n7f06-7f07 r--p 0 08:01 3 {root}/gone.so\n")
    for place, how in steps:
        path = library(root / place / "libnccl.so.2")
        assert found(root, named, environ)[:2] == (path, how)


def test_what_the_user_names_is_the_only_one(root: Path) -> None:
    library(root / "site/nvidia/nccl/lib/libnccl.so.2")
    path = library(root / "mine/my_nccl.so")
    assert found(root, Named(path=path))[:2] == (path, "HOROVOD_NCCL_PATH names it")
    mine = f"{root}/mine"
    assert found(root, Named(path=mine)).why_not == f"HOROVOD_NCCL_PATH={mine}: the folder holds no libnccl.so.2"
    inside = library(root / "mine/libnccl.so.2")
    assert found(root, Named(path=mine)).path == inside
    assert found(root, Named(path="/no/such")).why_not == "HOROVOD_NCCL_PATH=/no/such: no such file or folder"
    library(root / "mine/libnccl.so.2", OTHER)
    assert found(root, Named(path=mine)).why_not.endswith(f"{inside} is not a library for this processor")


def test_where_there_is_none_it_is_said_what_to_do_and_what_was_looked_at(root: Path) -> None:
    assert found(root) == ("", "", REMEDY)
    named = Named(home="/opt/none", folder="/opt/neither")
    assert found(root, named).why_not == (
        f"{REMEDY}; HOROVOD_NCCL_HOME=/opt/none holds none; HOROVOD_NCCL_LIB=/opt/neither holds none"
    )


def test_a_library_of_another_processor_is_passed_over_and_named(root: Path) -> None:
    other = library(root / "usr/lib/a-linux-gnu/libnccl.so.2", OTHER)
    assert found(root).why_not == f"{REMEDY}; {other} is not a library for this processor"
    library(root / "usr/lib/b-linux-gnu/libnccl.so.2", b"INPUT(libnccl.so)")
    right = library(root / "usr/lib64/libnccl.so.2")
    assert found(root).path == right


def test_rocms_libraries_lie_in_its_own_folder(root: Path) -> None:
    paths = [library(root / "opt/rocm/lib" / name) for name in ("librccl.so.1", "libamdhip64.so.6")]
    assert [found(root, kind=kind).path for kind in (RCCL, HIP)] == paths


@pytest.mark.parametrize("of_processors", ["", "_gfx94X_dcgpu"])
def test_rocms_own_wheels_are_found(of_processors: str, root: Path) -> None:
    rccl = library(root / f"site/_rocm_sdk_libraries{of_processors}/lib/librccl.so.1")
    hip = library(root / "site/_rocm_sdk_core/lib/libamdhip64.so.7")
    assert [found(root, kind=kind).path for kind in (RCCL, HIP)] == [rccl, hip]


def test_an_empty_variable_names_nothing() -> None:
    environ = {"HOROVOD_NCCL_PATH": " ", "HOROVOD_NCCL_HOME": "/h", "HOROVOD_NCCL_LIB": "/l"}
    assert named_in(environ) == Named(None, "/h", "/l")


def test_devices_are_files(root: Path) -> None:
    assert devices.nvidia(str(root)) == devices.amd(str(root)) == []
    (root / "dev").mkdir()
    for name in ("nvidia1", "nvidia0", "nvidiactl", "nvidia-uvm", "kfd"):
        (root / "dev" / name).touch()
    assert (devices.nvidia(str(root)), devices.amd(str(root))) == (["nvidia0", "nvidia1"], ["kfd"])


@needs_compiler
def test_libraries_say_their_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nccl, driver = put_nccl(tmp_path / "libnccl.so.2"), put_driver(tmp_path, devices=2)
    assert probe.main(["nccl", str(nccl)]) == probe.main(["cuda", str(driver)]) == 0
    assert capsys.readouterr().out == '{"version": 22809}\n{"version": 13000, "devices": ["A", "B"]}\n'


@needs_compiler
def test_libraries_that_fail_say_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing, text = put_nccl(tmp_path / "a.so", status=3), tmp_path / "b.so"
    text.write_text("not a library")
    empty = put(tmp_path / "c.so", "int none;")
    blind = put_driver(tmp_path / "blind", status=100)
    odd = put_driver(tmp_path / "odd", status=999)
    for words, why in (
        (("nccl", failing), f"{failing}: ncclGetVersion failed with 3"),
        (("nccl", text), f"{text}: "),
        (("nccl", empty), f"{empty} is not NCCL: it has no ncclGetVersion"),
        (("cuda", empty), f"{empty} is no CUDA driver: "),
        (("cuda", blind), "cuInit failed with 100, no CUDA-capable device is detected"),
        (("cuda", odd), "cuInit failed with 999, unknown error"),
        (("cuda", "libnosuch.so.1"), "libnosuch.so.1: cannot open shared object file"),
    ):
        assert probe.main([str(word) for word in words]) == 1
        assert capsys.readouterr().err.startswith(why), words
