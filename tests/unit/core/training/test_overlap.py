"""Where a reduction beside the computation can pay."""

from __future__ import annotations

import json
import types
from typing import Any

import pytest

from horovod._core.training.overlap import overlap_can_pay


@pytest.mark.parametrize(
    "size, here, cores_per_rank, expected",
    [
        (2, 2, 0, False),  # the ranks share cores
        (2, 2, 1, False),
        (2, 2, 2, True),
        (4, 2, 1, True),  # two hosts: the ranks wait for a network
    ],
)
def test_not_on_one_host_without_a_core_to_spare(size: int, here: int, cores_per_rank: int, expected: bool) -> None:
    facts = {"size": size, "shared_memory_ranks": here, "cores_per_rank": cores_per_rank}
    engine = types.SimpleNamespace(describe=lambda: json.dumps(facts))
    session: Any = types.SimpleNamespace(engine=engine)
    assert overlap_can_pay(session) is expected
