"""Tests of tools/gen_abi.py: abi.py is what it makes of the header, and it makes nothing of what it does not know."""

from __future__ import annotations

import importlib
import pathlib
import sys
from types import ModuleType

import pytest

from horovod._native import abi

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADER = "".join(
    (ROOT / "include" / "horovod" / name).read_text(encoding="utf-8") for name in ("horovod.h", "counters.h")
)


@pytest.fixture
def gen_abi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("gen_abi")


def test_the_file_is_up_to_date_or_named(
    gen_abi: ModuleType, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gen_abi.py", "--check"])
    assert gen_abi.generated.main(gen_abi.TARGET, gen_abi.text(HEADER)) == 0
    assert gen_abi.generated.main(gen_abi.TARGET, gen_abi.text(HEADER.replace("HVD_SUM = 1", "HVD_SUM = 6"))) == 1
    assert capsys.readouterr().out == f"{gen_abi.TARGET} is out of date; run make docs\n"
    assert gen_abi.generated.main(tmp_path / "absent.py", "") == 1 and not list(tmp_path.iterdir())


def test_everything_in_the_header_is_read() -> None:
    assert len(abi.FUNCTIONS) == HEADER.count("\nHVD_API")
    assert len(abi.STRUCTURES) == HEADER.count("\ntypedef struct")
    assert len(abi.ENUMS) == HEADER.count("enum hvd_") + HEADER.count("\nenum {")
    assert sum(map(len, abi.ENUMS.values())) == HEADER.count("  HVD_")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("#define HVD_ABI_VERSION ", "#define HVD_ABI_VERSION 9", f"ABI_VERSION: Final = 9{abi.ABI_VERSION}"),
        ("HVD_MISMATCH = 9", "HVD_MISMATCH = 19", "MISMATCH: Final = 19"),
        ("int32_t n_splits;", "size_t a, b[3];", '("a", c_size_t), ("b", c_size_t * 3)'),
        (
            "hvd_poll(hvd_handle handle)",
            "hvd_poll(const hvd_steps* a, void** b)",
            "(POINTER(HvdSteps), POINTER(c_void_p))",
        ),
        ("HVD_API int64_t hvd_region_bytes", "HVD_API const char* hvd_region_bytes", '"hvd_region_bytes": (c_char_p,'),
        ("(int32_t level, const char* text)", "(hvd_handle h)", "HvdLogFn = ctypes.CFUNCTYPE(None, c_int64)"),
    ],
)
def test_a_change_arrives(gen_abi: ModuleType, old: str, new: str, line: str) -> None:
    assert HEADER.count(old) == 1, "the header has changed; change this test with it"
    before, after = (" ".join(gen_abi.text(header).split()) for header in (HEADER, HEADER.replace(old, new)))
    assert line in after and line not in before


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("float x;", "cannot read 'float x;"),
        ("typedef float hvd_x;", "unknown type 'float'"),
        ("typedef union hvd_x { int32_t a; } hvd_x;", "cannot read 'typedef union"),
        ("typedef enum hvd_x { HVD_X } hvd_x;", "cannot read the constant 'HVD_X'"),
        ("typedef enum hvd_x { HVD_X = 1 << 3 } hvd_x;", "cannot read the constant 'HVD_X = 1 << 3'"),
        ("typedef struct hvd_x { int32_t a : 3; } hvd_x;", "cannot read the declaration 'int32_t a : 3'"),
        ("typedef struct hvd_x { void *a, b; } hvd_x;", "cannot read the declaration 'void \\*a, b'"),
        ("typedef struct hvd_x { unsigned int a; } hvd_x;", "cannot read the declaration 'unsigned int a'"),
        ("typedef struct hvd_x { hvd_later a; } hvd_x;", "unknown type 'hvd_later'"),
        ("HVD_API int32_t hvd_x(int32_t a[3]);", "cannot read 'HVD_API"),
        ("HVD_API int32_t hvd_x();", "cannot read the declaration ''"),
        ("int32_t hvd_x(void);", "cannot read 'int32_t"),
        ("#define HVD_X(a) a", "cannot read '#define HVD_X"),
    ],
)
def test_an_unknown_form_is_refused(gen_abi: ModuleType, written: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gen_abi.text(HEADER.replace("/* ---- life */", written))
