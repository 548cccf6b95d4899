"""The environment of jobs whose ranks have GPUs: the fakes that the C++ tests are built with, or a real driver and NCCL
where HVD_TEST_CUDA_LIBRARY and HVD_TEST_NCCL_LIBRARY name them. With HIP and RCCL: fakes only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from .variables import ROOT

_BUILT = ROOT / "build" / "release"


def gpus(directory: Path, **more: str) -> Mapping[str, str]:
    """Variables for a job.

    Args:
        directory: for links to the libraries, under the names by which the core looks for them.
        more: variables besides.
    """
    cuda = Path(os.environ.get("HVD_TEST_CUDA_LIBRARY") or _BUILT / "libfake_cuda.so")
    nccl = Path(os.environ.get("HVD_TEST_NCCL_LIBRARY") or _BUILT / "libfake_nccl.so")
    for library in (cuda, nccl):
        if not library.exists():
            pytest.skip(f"{library.name} is not built (make fakes)")
    directory.mkdir(exist_ok=True)
    link = directory / "libcuda.so.1"
    link.symlink_to(cuda)
    return _variables(directory, link, nccl, more)


def rocm(directory: Path, without: str = "", **more: str) -> Mapping[str, str]:
    """The same for a job on AMD's GPUs.

    Args:
        directory: for copies of the libraries: the core knows HIP's by its file's name.
        without: a library that is not there.
        more: variables besides.
    """
    built = _BUILT / "fake_rocm"
    if not (built / "libamdhip64.so.6").exists():
        pytest.skip("libamdhip64.so.6 is not built (make fakes)")
    shutil.copytree(built, directory, ignore=shutil.ignore_patterns(without))
    more = {"HVD_TEST_PLATFORM": "hip", **more}
    return _variables(directory, directory / "libamdhip64.so.6", directory / "librccl.so.1", more)


def _variables(directory: Path, driver: Path, nccl: Path, more: Mapping[str, str]) -> Mapping[str, str]:
    return {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (str(directory), os.environ.get("LD_LIBRARY_PATH")))),
        "HVD_TEST_CUDA_LIBRARY": str(driver),
        "HVD_TEST_NCCL_LIBRARY": str(nccl),
        "HOROVOD_NCCL_PATH": str(nccl),
        # Late enough that who does not wait for the device is seen, and no later: thousands of operations wait for it.
        "FAKE_CUDA_DELAY_US": "20",
        **more,
    }
