"""The checks of folders find one that is too full, and an include or an import that points up."""

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


def test_every_folder_has_its_place() -> None:
    for around, order in check_layers.CPP_WITHIN.items():
        folders = {path.name for path in (check_layers.ROOT / "src" / around).iterdir() if path.is_dir()}
        assert folders | {""} == set(order), around
