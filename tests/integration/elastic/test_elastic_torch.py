"""An elastic job of PyTorch: model, optimizer and sampler go on after a rank was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Job, Place, python

TRAINING = Path(__file__).parent / "workers" / "torch_training.py"


@pytest.mark.slow
def test_no_sample_is_lost_and_all_ranks_hold_the_same() -> None:
    with Place() as place:
        job = Job(place)
        job.start([*python("-m", "horovod.runner"), "-np", "3", "--min-np", "2", *python(TRAINING)])
        ended = job.end(leftovers=True)
    assert ended.code == 0, str(ended)
    assert {event["size"] for event in ended.of("epoch")} >= {2, 3}, str(ended)
    assert [event["samples"] for event in ended.of("samples")] == [list(range(240))] * 3, str(ended)
    assert len({event["hash"] for event in ended.of("end")}) == 1, str(ended)
