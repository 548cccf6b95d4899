"""Builds the wheels for others into dist/: `build_wheels.py [ARCHITECTURE...]`, all architectures without words.

With the compiler of the `ziglang` package, so that they run on every Linux whose glibc is as old as their names say. A
wheel that does not keep what `check_wheel` asks for is not left behind.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from check_wheel import GLIBC, PLATFORM, offences
from zig_compiler import ARCHITECTURES, cmake_arguments

ROOT = Path(__file__).resolve().parent.parent


def build(source: Path, architecture: str, place: Path, aside: bool = False) -> Path:
    """The checked wheel of a source tree, in `place`; made with the lowest priority if `aside`."""
    environment = {
        **os.environ,
        # Tells the build backend for which platform it builds.
        "_PYTHON_HOST_PLATFORM": f"{PLATFORM}_{architecture}",
        "CMAKE_ARGS": shlex.join(cmake_arguments(architecture, GLIBC)),
    }
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place), str(source)]
    command.append(f"-Cbuild-dir={source / 'build' / f'wheel-{architecture}'}")
    if aside:
        command = ["nice", "-n", "19", *command]
    start = time.monotonic()
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"The wheel for {architecture} cannot be built:\n{done.stdout[-6000:]}")
    (wheel,) = place.glob(f"horovod-*_{architecture}.whl")
    print(f"built {wheel.name} in {time.monotonic() - start:.0f} s: {wheel.stat().st_size / 1e6:.2f} MB")
    if found := offences(wheel, foreign=[str(source), str(ROOT), str(Path.home()), sys.prefix]):
        wheel.unlink()
        sys.exit("\n".join([f"{wheel.name} is not fit for others:", *found]))
    return wheel


def main(architectures: list[str]) -> None:
    """Builds them one after the other."""
    if unknown := sorted(set(architectures) - set(ARCHITECTURES)):
        sys.exit(f"There are no wheels for {', '.join(unknown)}. Choose from {', '.join(ARCHITECTURES)}.")
    place = ROOT / "dist"
    for architecture in architectures or ARCHITECTURES:
        for old in place.glob(f"horovod-*_{architecture}.whl"):
            old.unlink()
        build(ROOT, architecture, place)


if __name__ == "__main__":
    main(sys.argv[1:])
