"""The checks of folders find one that is too full, an include or an import that points up, and names that clash."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).resolve().parents[3] / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_layers, check_sizes = _tool("check_layers"), _tool("check_sizes")


def test_a_folder_that_is_too_full_is_found() -> None:
    full = [f"src/engine/run/{i}.cc" for i in range(25)]
    assert check_sizes.folder_offences([*full, "src/engine/engine.cc"]) == []
    assert check_sizes.folder_offences([*full, "src/engine/run/one.h"]) == [
        "src/engine/run has 26 files; the limit is 25"
    ]


def test_the_folders_of_core_package_tests_and_tools_are_counted() -> None:
    some = {"src/engine/engine.cc", "python/horovod/runner/job.py", "tests/hosts/conftest.py", "tools/suites.py"}
    assert some <= set(check_sizes.counted())


@pytest.mark.parametrize(
    ("name", "included", "allowed"),
    [
        ("engine/run/executor.h", "engine/submit/submissions.h", True),
        ("engine/run/executor.h", "engine/run/batch_run.h", True),
        ("engine/engine.cc", "engine/entry/intake.h", True),
        ("engine/submit/submissions.h", "engine/run/executor.h", False),
        ("engine/entry/intake.h", "engine/engine.h", False),
        ("negotiation/frames/wire.h", "negotiation/state/marks.h", False),
        ("backend/cuda/driver/context.cc", "backend/cuda/stream.h", False),
        ("engine/wake/waker.h", "negotiation/node.h", True),  # of another layer: another rule
    ],
)
def test_an_include_that_points_up_is_found(name: str, included: str, allowed: bool) -> None:
    assert (check_layers.within_offence(name, included) == "") == allowed


@pytest.mark.parametrize(
    ("module", "name", "allowed"),
    [
        ("torch.gradients.hooks", "torch.collectives.ops", True),
        ("torch.collectives.ops", "torch.gradients.hooks", False),
        ("torch.collectives.ops", "torch.optimizer.DistributedOptimizer", False),
        ("torch.optimizer", "torch.gradients.hooks", True),
        ("tensorflow.collectives.ops", "tensorflow.gradients.tape", False),
        ("runner.machines.hosts", "runner.readers.named_files", True),
        ("runner.readers.named_files", "runner.machines.hosts", False),
        ("runner.processes.process", "runner.job", False),
        ("_core.life.planes.mpi_plane", "_core.life.context", False),
        ("_net.handshake.boards.kept_board", "_net.handshake.lobby", True),
        ("_net.handshake.frames.links", "_net.handshake.pairing", False),
    ],
)
def test_an_import_that_points_up_is_found(module: str, name: str, allowed: bool) -> None:
    assert check_layers.may_import(f"horovod.{module}", f"horovod.{name}") == allowed


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("int Read(const char* a) {\n", "bool Read(const char* b) {\n", "Read(const char*)"),
        ("int Read(int a) {\n", "int Read(long a) {\n", ""),
        ("struct Place {\n", "class Place final : public Base {\n", "Place"),
        ("constexpr int kMost = 3;\n", "constexpr size_t kMost[] = {1, 2};\n", "kMost"),
        ("  int Read(int a) {\n", "  int Read(int a) {\n", ""),  # members
    ],
)
def test_what_two_files_define_is_found(one: str, other: str, found: str) -> None:
    texts = {"one.cc": f"namespace hvd::engine {{\n{one}", "other.cc": f"namespace hvd::engine {{\n{other}"}
    offences = check_layers.twice(texts)
    assert [line.split(",")[0] for line in offences] == ([f"other.cc: defines {found} in hvd::engine"] if found else [])
    assert not check_layers.twice({**texts, "other.cc": f"namespace hvd::backend {{\n{other}"})


def test_every_folder_has_its_place() -> None:
    for around, order in check_layers.CPP_WITHIN.items():
        folders = {path.name for path in (check_layers.ROOT / "src" / around).iterdir() if path.is_dir()}
        assert folders | {""} == set(order), around
