"""TensorFlow's runtime gets no exception of the core's, also when the core has no memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import ROOT, horovodrun, run
from jobs.needs import needs

pytestmark = needs("tensorflow")

WORKERS = Path(__file__).parent / "workers"


@pytest.mark.slow
def test_a_rank_without_memory_raises_an_error_in_every_way() -> None:
    library = ROOT / "build" / "release" / "libfake_memory.so"
    if not library.exists():
        pytest.skip(f"{library.name} is not built (make fakes)")
    variables = {"LD_PRELOAD": str(library), "TF_CPP_MIN_LOG_LEVEL": "2"}
    ended = run(horovodrun(2, WORKERS / "memory_worker.py"), variables)
    assert ended.stdout.count("passed: ") == 2 * (4 + 2), str(ended)
    assert ended.code == 1 and "ResourceExhaustedError" in ended.stderr, str(ended)
    assert "Horovod: out of memory." in ended.stderr and "terminate called" not in ended.output, str(ended)
