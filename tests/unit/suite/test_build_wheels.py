"""tools/build_wheels.py finds what must not be in a wheel."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

build_wheels = pytest.importorskip("build_wheels", exc_type=ImportError)


def _library(place: Path, name: str, code: str, *options: str) -> Path:
    source, made = place / f"{name}.c", place / f"lib{name}.so"
    source.write_text(code)
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(made), str(source), *options], check=True)
    return made


def _offences(library: Path) -> list[str]:
    return list(build_wheels.library_offences(library.read_bytes(), platform.machine()))


def test_only_c_interfaces_are_shown(tmp_path: Path) -> None:
    code = "int hvd_one(void) { return 1; } int _ZNSt3oneEv(void) { return 1; } void PyInit__lane(void) {}"
    assert _offences(_library(tmp_path, "shows", code)) == ["shows _ZNSt3oneEv, which is not of a C interface"]


def test_symbols_of_a_newer_glibc_are_found(tmp_path: Path) -> None:
    (tmp_path / "versions").write_text("GLIBC_2.99 { global: later; local: *; };")
    code = "int later(void) { return 1; }"
    newer = _library(tmp_path, "newer", code, f"-Wl,--version-script={tmp_path / 'versions'}")
    code = "int later(void); int hvd_one(void) { return later(); }"
    found = _offences(_library(tmp_path, "needs", code, str(newer)))
    assert found == ["needs GLIBC_2.99; the newest allowed is GLIBC_2.17"]


def test_versions_are_compared_as_numbers() -> None:
    assert build_wheels.as_numbers("2.4") < build_wheels.as_numbers("2.17") < build_wheels.as_numbers("2.17.1")


def test_the_other_architecture_is_found(tmp_path: Path) -> None:
    other = {"x86_64": "aarch64", "aarch64": "x86_64"}[platform.machine()]
    library = _library(tmp_path, "plain", "int hvd_one(void) { return 1; }")
    (problem,) = build_wheels.library_offences(library.read_bytes(), other)
    assert problem.endswith(f"not for {other}")


def test_a_wheel_that_names_a_folder_or_lacks_a_library(tmp_path: Path) -> None:
    wheel = tmp_path / f"horovod-1-py3-none-manylinux_2_17_{platform.machine()}.whl"
    library = _library(tmp_path, "named", f'const char* hvd_text = "{tmp_path}/src";')
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(library, "horovod/_native/libhorovod.so")
    found = build_wheels.offences(wheel, [str(tmp_path)])
    assert f"horovod/_native/libhorovod.so names {tmp_path}" in found
    assert "horovod/_native/libhorovod_tensorflow.so is missing" in found


def test_a_name_of_one_machine_is_refused(tmp_path: Path) -> None:
    (problem,) = build_wheels.offences(tmp_path / "horovod-1-py3-none-linux_x86_64.whl", [])
    assert problem.startswith("its name is not ")
