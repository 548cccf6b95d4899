"""The conversions of src/base/float8.h, compiled by themselves, against those of PyTorch and ml_dtypes, bit for bit."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Callable

import ml_dtypes
import numpy as np
import pytest
from jobs import ROOT

Array = np.ndarray[Any, Any]

_SOURCE = """
#include <cstddef>
#include "base/float8.h"
#define CONVERSIONS(name, Format) \\
  extern "C" void from_##name(const float* from, uint8_t* to, size_t n) { \\
    for (size_t i = 0; i < n; ++i) to[i] = hvd::Format::FromFloat(from[i]); \\
  } \\
  extern "C" void to_##name(const uint8_t* from, float* to, size_t n) { \\
    for (size_t i = 0; i < n; ++i) to[i] = hvd::Format::ToFloat(from[i]); \\
  }
CONVERSIONS(float8_e4m3fn, Float8E4m3)
CONVERSIONS(float8_e5m2, Float8E5m2)
"""
_NAMES = ("float8_e4m3fn", "float8_e5m2")


class Conversions:
    """One format of the header."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self._from, self._to = getattr(library, f"from_{name}"), getattr(library, f"to_{name}")

    def codes(self, values: Array) -> Array:
        return self._run(self._from, values, np.empty(values.size, np.uint8))

    def values(self, codes: Array) -> Array:
        return self._run(self._to, codes, np.empty(codes.size, np.float32))

    @staticmethod
    def _run(function: Any, source: Array, target: Array) -> Array:
        function(*(ctypes.c_void_p(a.ctypes.data) for a in (source, target)), ctypes.c_size_t(source.size))
        return target


@pytest.fixture(scope="module")
def of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Conversions]:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler is installed.")
    directory = tmp_path_factory.mktemp("float8")
    (directory / "float8.cc").write_text(_SOURCE)
    command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'src'}", "float8.cc", "-o", "float8.so"]
    subprocess.run(command, cwd=directory, check=True)
    library = ctypes.CDLL(str(directory / "float8.so"))
    return lambda name: Conversions(library, name)


def _floats() -> Iterator[Array]:
    """Every upper half of a float32, with lower halves on either side of a tie; random ones."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0xFFFF):
        yield (upper | lower).view(np.float32)
    yield np.random.default_rng(8).integers(0, 1 << 32, 1 << 22, np.uint32).view(np.float32)


def _same_values(a: Array, b: Array) -> bool:
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("name", _NAMES)
def test_like_ml_dtypes(of: Callable[[str], Conversions], name: str) -> None:
    dtype = getattr(ml_dtypes, name)
    every = np.arange(256, dtype=np.uint8)
    assert _same_values(of(name).values(every), every.view(dtype).astype(np.float32))
    for values in _floats():
        codes = of(name).codes(values)
        with np.errstate(invalid="ignore"):
            theirs = values.astype(dtype).view(np.uint8)
        number = ~np.isnan(values)
        assert np.array_equal(codes[number], theirs[number])
        # The bits of the other type's NaN are PyTorch's.
        assert np.all(codes[~number] & 0x7F == 0x7F)


@pytest.mark.parametrize("name", _NAMES)
def test_like_torch(of: Callable[[str], Conversions], name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed.")
    dtype = getattr(torch, name)
    every = np.arange(256, dtype=np.uint8)
    assert _same_values(of(name).values(every), torch.from_numpy(every).view(dtype).float().numpy())
    for values in _floats():
        codes = of(name).codes(values)
        theirs = torch.from_numpy(values).to(dtype).view(torch.uint8).numpy()
        same = codes == theirs
        if name == "float8_e4m3fn":  # what rounds to more than 448 is NaN here, and 448 in PyTorch since 2.12
            too_large = np.abs(values) > 464
            assert np.all(codes[too_large] & 0x7F == 0x7F)
            same |= too_large & (theirs & 0x7F == 0x7E)
        assert np.all(same)
