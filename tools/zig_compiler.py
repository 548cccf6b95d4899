"""The C and C++ compiler of the `ziglang` package, as arguments for CMake. Used by the tools that build for others.

It knows the symbols of every version of glibc, for each architecture, and links its C++ runtime statically: what it
makes here runs on systems that are older than this one, or of the other architecture.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ARCHITECTURES = ("x86_64", "aarch64")


def cmake_arguments(architecture: str, glibc: str) -> list[str]:
    """What CMake needs to compile for that architecture and against that glibc, such as "2.17"."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        sys.exit("The ziglang package is not installed. Remedy: pip install -r requirements-wheels.txt.")
    zig = Path(found.origin).parent / "zig"
    target = f"{architecture}-linux-gnu.{glibc}"
    return [
        f"-DCMAKE_C_COMPILER={zig};cc",
        f"-DCMAKE_CXX_COMPILER={zig};c++",
        f"-DCMAKE_C_COMPILER_TARGET={target}",
        f"-DCMAKE_CXX_COMPILER_TARGET={target}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        f"-DCMAKE_SYSTEM_PROCESSOR={architecture}",
        # CMake tries its compilers by linking programs: zig would compile a second C++ runtime for them, which takes
        # a minute.
        "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
    ]
