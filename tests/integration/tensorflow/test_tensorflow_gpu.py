"""TensorFlow on GPUs, over fakes: there is no TensorFlow here that computes on one."""

from __future__ import annotations

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
