"""Builds the C++ tests for aarch64 with the compiler of the wheels and runs them under qemu-user.

By hand, on a machine of another architecture: an emulated rank is slow, and qemu lacks some of the kernel. Words on
the command line choose tests by parts of their names. Needs qemu-aarch64 and the C library of aarch64 (Debian:
qemu-user, libc6-arm64-cross); AARCH64_ROOT names another folder that holds it. Every test has a process of its own,
so that one that qemu cannot run takes no other with it. Exit code 1 when one fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zig_compiler import cmake_arguments

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "aarch64"
# The tests themselves call memfd_create, which the core does without.
GLIBC = "2.27"
DEADLINE_S = 120.0


def build(jobs: int) -> Path:
    """The test program."""
    options = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DHVD_TESTS=ON"]
    subprocess.run(["cmake", "-S", ROOT, "-B", BUILD, *options, *cmake_arguments("aarch64", GLIBC)], check=True)
    subprocess.run(["cmake", "--build", BUILD, "--target", "hvd_tests", "-j", str(jobs)], check=True)
    return BUILD / "hvd_tests"


def emulator() -> list[str]:
    """The start of a command that runs a program for aarch64."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    root = Path(os.environ.get("AARCH64_ROOT", "/usr/aarch64-linux-gnu"))
    if qemu is None:
        sys.exit("qemu-aarch64 is not on the PATH. Remedy: install qemu-user.")
    if not (root / "lib/ld-linux-aarch64.so.1").exists():
        sys.exit(f"{root} holds no C library for aarch64. Remedy: install libc6-arm64-cross, or set AARCH64_ROOT.")
    return [qemu, "-L", str(root)]


def names() -> list[str]:
    """Every test that the sources register."""
    found: list[str] = []
    for path in sorted((ROOT / "tests" / "native").rglob("*_test.cc")):
        found += re.findall(r"^TEST\((\w+)\)", path.read_text(), re.M)
    return found


def run(command: list[str], name: str) -> str:
    """Why the test failed; empty when it passed."""
    try:
        done = subprocess.run([*command, name], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {DEADLINE_S:.0f} s"
    lines = (done.stderr + done.stdout).strip().splitlines()
    return "" if done.returncode == 0 else " | ".join([f"exit code {done.returncode}", *lines[-4:]])


def main(words: list[str]) -> int:
    """Runs the tests and prints which failed, and how many did not."""
    command = [*emulator(), str(build(os.cpu_count() or 1))]
    chosen = [name for name in names() if not words or any(word in name for word in words)]
    with ThreadPoolExecutor(max_workers=2) as pool:
        failures = dict(zip(chosen, pool.map(lambda name: run(command, name), chosen)))
    failed = {name: why for name, why in failures.items() if why}
    for name, why in failed.items():
        print(f"{name}: {why}")
    print(f"{len(chosen) - len(failed)} of {len(chosen)} tests passed under qemu")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
