"""Builds the wheels for others into dist/: `build_wheels.py [ARCHITECTURE...]`, all architectures without words.

With the compiler of the `ziglang` package, so that they run on every Linux whose glibc is as old as their names say. A
wheel is kept only if it is fit for the machines of others. Its name says every Python 3 and a manylinux platform;
auditwheel finds that its libraries keep that name; they are of that architecture, need no symbol of a newer glibc, and
show nothing but C interfaces: the C++ runtime inside of them must not meet another one. No file names a folder of the
machine that built it.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from zig_compiler import ARCHITECTURES, cmake_arguments

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}"
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
EXPORTS = re.compile(r"hvd_\w+|PyInit_\w+")
LIBRARIES = tuple(f"horovod/_native/{name}" for name in ("libhorovod.so", "libhorovod_tensorflow.so", "_lane.abi3.so"))


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


def offences(wheel: Path, foreign: Sequence[str]) -> list[str]:
    """All that is wrong with the wheel; `foreign` are folders that no file may name."""
    match = re.fullmatch(rf"horovod-[^-]+-py3-none-{PLATFORM}_(\w+)\.whl", wheel.name)
    if match is None or match.group(1) not in MACHINES:
        return [f"its name is not horovod-VERSION-py3-none-{PLATFORM}_ARCHITECTURE.whl"]
    architecture = match.group(1)
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    found = [f"{name} is missing" for name in LIBRARIES if name not in files]
    for name, content in files.items():
        found += [f"{name} names {folder}" for folder in foreign if folder.encode() in content]
        if name.endswith(".so"):
            found += [f"{name} {problem}" for problem in library_offences(content, architecture)]
    return found + audit_offences(wheel, architecture)


def library_offences(content: bytes, architecture: str) -> Iterator[str]:
    """What is wrong with one shared library."""
    elf = ELFFile(io.BytesIO(content))
    if elf["e_machine"] != MACHINES[architecture]:
        yield f"is for {elf['e_machine']}, not for {architecture}"
    for version in sorted(needed_versions(elf)):
        library, _, number = version.partition("_")
        if library != "GLIBC" or as_numbers(number) > as_numbers(GLIBC):
            yield f"needs {version}; the newest allowed is GLIBC_{GLIBC}"
    for symbol in exported(elf):
        if not EXPORTS.fullmatch(symbol):
            yield f"shows {symbol}, which is not of a C interface"


def as_numbers(version: str) -> tuple[int, ...]:
    """ "2.17" -> (2, 17)."""
    return tuple(int(part) for part in version.split("."))


def needed_versions(elf: ELFFile) -> set[str]:
    """Versions of symbols that the library takes from others, such as "GLIBC_2.17"."""
    section = elf.get_section_by_name(".gnu.version_r")
    if not isinstance(section, GNUVerNeedSection):
        return set()
    return {str(auxiliary.name) for _, auxiliaries in section.iter_versions() for auxiliary in auxiliaries}


def exported(elf: ELFFile) -> list[str]:
    """Symbols that the library shows to others."""
    return [
        symbol.name
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
        if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL"
    ]


def audit_offences(wheel: Path, architecture: str) -> list[str]:
    """What auditwheel says against the platform in the wheel's name."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [f"auditwheel cannot judge it: {done.stderr.strip()}"]
    tag = json.loads(done.stdout)["overall_tag"]
    match = re.fullmatch(r"manylinux_(\d+_\d+)_" + architecture, tag)
    if match is None or as_numbers(match.group(1).replace("_", ".")) > as_numbers(GLIBC):
        return [f"auditwheel finds it to be {tag}"]
    return []


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
