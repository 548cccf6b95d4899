"""TensorFlow on GPUs, over fakes: there is no TensorFlow here that computes on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import ROOT, horovodrun, run
from jobs.gpus import gpus
from jobs.needs import needs

pytestmark = needs("tensorflow")

WORKERS = Path(__file__).parent / "workers"


@pytest.mark.slow
@pytest.mark.parametrize("way", ["NCCL", "GLOO"])
def test_the_call_of_compiled_functions(way: str, tmp_path: Path) -> None:
    late = {"FAKE_CUDA_DELAY_US": "20000"}  # nobody finds a result there who does not wait for it on the device
    variables = gpus(tmp_path / "libraries", HOROVOD_GPU_OPERATIONS=way, TF_CPP_MIN_LOG_LEVEL="2", **late)
    ended = run(horovodrun(2, WORKERS / "cuda_call_worker.py"), variables)
    assert ended.code == 0, str(ended)
    assert ended.stdout.count("passed") == 2 * (6 + 1 + 6), str(ended)


@pytest.mark.slow
def test_operators_that_are_placed_on_a_gpu() -> None:
    library = ROOT / "build" / "release" / "libfake_tensorflow_gpu.so"
    if not library.exists():
        pytest.skip(f"{library.name} is not built (make fakes)")
    variables = {"HVD_TEST_TENSORFLOW_GPU": str(library), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = run(horovodrun(2, WORKERS / "placed_worker.py"), variables)
    assert ended.code == 0, str(ended)
    assert ended.stdout.count("passed") == 2 * 7, str(ended)


# The test's GPU is plugged in, where TensorFlow's object for a stream has no CUDA stream but the plug-in's handle.
FLAGS = (
    "-include",
    "tensorflow/c/experimental/stream_executor/stream_executor_internal.h",
    "-DHVD_STREAM_HANDLE(stream)=static_cast<stream_executor::CStream*>(stream)->Handle()",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the helper in it."""
    home = tmp_path_factory.mktemp("home")
    program = "import sys; from horovod.tensorflow.gpu import helper; print(helper.build(sys.argv[1:]))"
    environment = {**os.environ, "HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = subprocess.run([sys.executable, "-c", program, *FLAGS], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    made = Path(ended.stdout.strip().splitlines()[-1])
    assert made.parent == home / ".cache" / "horovod" and os.listdir(made.parent) == [made.name]
    assert made.parent.stat().st_mode & 0o777 == 0o700
    return home


@pytest.mark.slow
@pytest.mark.parametrize("way", ["NCCL", "GLOO"])
def test_tensors_stay_on_the_gpu_with_the_helper(way: str, home: Path, tmp_path: Path) -> None:
    plug_in = ROOT / "build" / "release" / "libfake_tensorflow_gpu.so"
    if not plug_in.exists():
        pytest.skip(f"{plug_in.name} is not built (make fakes)")
    late = {"FAKE_CUDA_DELAY_US": "2000", "HVD_TEST_WAY": "nccl" if way == "NCCL" else "staged"}
    variables = gpus(tmp_path / "libraries", HOROVOD_GPU_OPERATIONS=way, TF_CPP_MIN_LOG_LEVEL="2", **late)
    more = {"HOME": str(home), "HVD_TEST_TENSORFLOW_GPU": str(plug_in)}
    ended = run(horovodrun(2, WORKERS / "device_worker.py"), {**variables, **more})
    assert ended.code == 0, str(ended)
    assert ended.stdout.count("passed") == 2 * 5, str(ended)
