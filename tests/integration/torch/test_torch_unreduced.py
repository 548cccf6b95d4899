"""A job that trains without reducing a gradient says so at its end, once; one that reduces something does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.commands import horovodrun
from jobs.job import run

SCRIPT = Path(__file__).parent / "workers" / "unreduced_worker.py"


@pytest.mark.parametrize(("what", "remarks"), [("", 1), ("shutdown", 1), ("reduced by hand", 0), ("another engine", 0)])
def test_a_thrown_away_optimizer(what: str, remarks: int, tmp_path: Path) -> None:
    command = horovodrun(2, SCRIPT, what, tmp_path / "ranks", warm="torch with optimizers")
    ended = run(command, {"GLOO_SOCKET_IFNAME": "lo"})
    assert ended.code == 0, ended
    told = [line for line in ended.stderr.splitlines() if "no gradient was reduced" in line]
    assert len(told) == remarks, ended
    for line in told:
        assert "[rank 1] PyTorch's SGD has made 10 steps or more" in line, line
        assert "over the 2 ranks" in line and "hvd.DistributedOptimizer(optimizer)" in line, line
