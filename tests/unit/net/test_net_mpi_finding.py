"""Which MPI library is taken, and why; files stand in for libraries."""

from __future__ import annotations

import pathlib

import pytest

from horovod._net.clusters.launchers import MPICH, OPEN_MPI, mpi_family
from horovod._net.failures import MeetingError
from horovod._net.mpi import finding, library
from horovod._net.mpi.finding import candidates, is_installed, loaded_libraries

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libc.so.6
7f01-7f02 r--p 00000000 08:01 2 /opt/my mpi/lib/libmpi.so.40.30.8
7f02-7f03 r-xp 00001000 08:01 2 /opt/my mpi/lib/libmpi.so.40.30.8
7f03-7f04 rw-p 00000000 00:00 0
7f04-7f05 r-xp 00000000 08:01 3 /opt/my mpi/lib/libmpifort.so.12
7f05-7f06 r-xp 00000000 08:01 4 /opt/x/libmpi_abi.so.1
7f06-7f07 r-xp 00000000 08:01 5 /opt/mpi4py/MPI.mpich.cpython-311-x86_64-linux-gnu.so
"""


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has no MPI library, and whose ancestors have none beside them."""
    monkeypatch.setattr(finding, "_read", lambda path: "")


def put(folder: pathlib.Path, *names: str) -> list[str]:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return [str(folder / name) for name in names]


def paths(environ: dict[str, str]) -> list[str]:
    return [each.path for each in candidates(None, environ) if "/" in each.path]


def test_libraries_that_the_process_has_loaded_are_recognised() -> None:
    assert loaded_libraries(MAPS) == ["/opt/my mpi/lib/libmpi.so.40.30.8", "/opt/x/libmpi_abi.so.1"]


def test_what_the_user_names_is_the_only_one() -> None:
    assert [each.path for each in candidates("/x/libmpi.so", {"OPAL_PREFIX": "/y"})] == ["/x/libmpi.so"]


def test_what_is_loaded_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_read", lambda path: MAPS)
    found = list(candidates(None, {"OPAL_PREFIX": "/y"}))
    assert [each.path for each in found] == ["/opt/my mpi/lib/libmpi.so.40.30.8"] and found[0].sure


def test_the_launchers_own_comes_before_that_of_the_path(tmp_path: pathlib.Path, nothing_loaded: None) -> None:
    own = put(tmp_path / "own" / "lib", "libmpi.so.40")
    other = put(tmp_path / "other" / "lib", "libmpi.so.12", "libmpi_abi.so.1", "libmpifort.so.12")
    put(tmp_path / "other" / "bin", "mpiexec")
    (tmp_path / "other" / "bin" / "mpiexec").chmod(0o755)
    extra = put(tmp_path / "extra", "libmpi.so.20")
    environ = {
        "OPAL_PREFIX": str(tmp_path / "own"),
        "PATH": f"/nowhere:{tmp_path / 'other' / 'bin'}",
        "LD_LIBRARY_PATH": f"{tmp_path / 'own' / 'lib'}:{tmp_path / 'extra'}",
    }
    assert paths(environ) == [*own, *other[:2], *extra]


def test_the_program_that_started_this_process_leads_to_its_library(
    tmp_path: pathlib.Path, nothing_loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = put(tmp_path / "lib" / "x86_64-linux-gnu", "libmpich.so.12")
    monkeypatch.setattr(finding.os, "readlink", lambda path: str(tmp_path / "bin" / "hydra_pmi_proxy"))
    found = next(iter(candidates(None, {})))
    assert found.path == own[0] and "which started this process" in found.why


def test_in_the_end_the_systems_loader_is_asked(nothing_loaded: None) -> None:
    assert [each.path for each in candidates(None, {}) if "/" not in each.path] == list(finding.NAMES)


def test_a_library_is_installed_when_its_file_is_there(tmp_path: pathlib.Path, nothing_loaded: None) -> None:
    assert is_installed({}, str(*put(tmp_path / "lib", "libmpi.so.40")))
    assert not is_installed({}, str(tmp_path / "libmpi.so"))


def test_a_file_that_is_no_library_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "libmpi.so").write_text("INPUT(libmpi.so.40)")
    with pytest.raises(MeetingError, match=r"libmpi.so cannot be opened: .*"):
        library.open_library(str(tmp_path / "libmpi.so"), OPEN_MPI, {})


def test_a_library_of_something_else_is_named() -> None:
    with pytest.raises(MeetingError, match=r"libc.so.6 is not an MPI library: it has no MPI_Init_thread"):
        library.open_library("libc.so.6", "", {})


def test_where_there_is_none_the_remedies_are(nothing_loaded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "NAMES", ("libmpi.so.of.nobody",))
    with pytest.raises(MeetingError, match=r"No MPI library of the kind of MPICH was found. Set HOROVOD_MPI_LIBRARY"):
        library.open_library(None, MPICH, {})


@pytest.mark.parametrize(
    ("launcher", "family"),
    [("Open MPI", OPEN_MPI), ("Intel MPI", MPICH), ("MPICH", MPICH), ("srun", ""), ("torchrun", None), ("?", None)],
)
def test_launchers_start_their_own_kind(launcher: str, family: str | None) -> None:
    assert mpi_family(launcher) == family
