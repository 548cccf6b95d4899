"""Tests of tools/check_abi.py: the mirror agrees with the header, and every kind of difference is found."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
HEADER = (ROOT / "include" / "horovod" / "horovod.h").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def check_abi() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_abi", ROOT / "tools" / "check_abi.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_mirror_agrees_with_the_header(check_abi: ModuleType) -> None:
    assert check_abi.differences(HEADER) == []


def test_everything_in_the_header_is_looked_at(check_abi: ModuleType) -> None:
    text = check_abi.without_comments(HEADER)
    assert len(check_abi.parse_functions(text)) == text.count("HVD_API")
    assert len(check_abi.parse_structs(text)) == text.count("typedef struct")
    assert len(check_abi.parse_enums(text)) == text.count("enum ")
    assert len(check_abi.parse_callbacks(text)) == text.count("(*")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("#define HVD_ABI_VERSION 3", "#define HVD_ABI_VERSION 4", "HVD_ABI_VERSION: 4"),
        ("HVD_MISMATCH = 9", "HVD_MISMATCH = 11", "enum hvd_status"),
        ("HVD_BARRIER = 5,", "", "enum hvd_op_type"),
        ("HVD_SUBMIT_WILL_WAIT = 1", "HVD_SUBMIT_WILL_WAIT = 4", "SUBMIT_WILL_WAIT"),
        ("double prescale;", "float prescale;", "hvd_op.prescale"),
        ("int32_t n_splits;", "int64_t n_splits;", "hvd_op.n_splits"),
        ("uint8_t key[16];", "uint8_t key[32];", "hvd_peer.key"),
        ("int32_t rank, size,", "int32_t size, rank,", "hvd_config: fields"),
        ("double spin_us;", "", "hvd_config: fields"),
        ("hvd_poll(hvd_handle handle)", "hvd_poll(int32_t handle)", "hvd_poll: parameter 0"),
        ("hvd_wait(hvd_handle handle, double timeout_s)", "hvd_wait(hvd_handle handle)", "hvd_wait: 1 parameters"),
        ("HVD_API int64_t hvd_region_bytes", "HVD_API int32_t hvd_region_bytes", "hvd_region_bytes: returns"),
        ("hvd_timeline_stop(void)", "hvd_timeline_end(void)", "hvd_timeline_end: only in the header"),
        ("(int32_t level, const char* text)", "(const char* text)", "hvd_log_fn: 1 parameters"),
    ],
)
def test_a_difference_is_found(check_abi: ModuleType, old: str, new: str, found: str) -> None:
    assert old in HEADER, "the header has changed; change this test with it"
    assert any(found in line for line in check_abi.differences(HEADER.replace(old, new, 1)))
