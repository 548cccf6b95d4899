"""The two-level allreduce and allgather are switched on and off over hosts by flag, file and variable."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .conftest import Hosts
from .test_training_over_hosts import python

pytestmark = pytest.mark.slow

WORK = """
    import json
    import numpy as np
    import horovod.numpy as hvd
    from horovod._core.life import engine_start
    hvd.init()
    total = hvd.synchronize(hvd.allreduce_async(np.full(100_000, 1.0, np.float32), op=hvd.Sum, name="a"))
    parts = hvd.synchronize(hvd.allgather_async(np.full((1000, 100), hvd.rank(), np.float32), name="g"))
    known = json.loads(engine_start.describe())
    chosen = [known["settings"][f"hierarchical_{name}"] for name in ("allreduce", "allgather")]
    print("chosen", *chosen, total[0], parts.sum(), flush=True)
    hvd.shutdown()
"""
BETWEEN, INSIDE = "over the connections", "inside the hosts"


@dataclass
class Asked:
    """How the two are asked for: flags of horovodrun, lines of its file, variables."""

    flags: str = ""
    file: str = ""
    variables: dict[str, str] = field(default_factory=dict)


OFF = {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0", "HOROVOD_HIERARCHICAL_ALLGATHER": "0"}
ON = dict.fromkeys(OFF, "1")
FILE = "params:\n  hierarchical_allreduce: {0}\n  hierarchical_allgather: {0}\n"


@pytest.mark.parametrize(
    ("asked", "on"),
    [
        # Without a word the hosts decide for two levels. So what says yes stands over something that says no.
        pytest.param(Asked("--hierarchical-allreduce --hierarchical-allgather", "", OFF), True, id="flags on"),
        pytest.param(Asked("", FILE.format("true"), OFF), True, id="file on"),
        pytest.param(Asked("", "", ON), True, id="variables on"),
        pytest.param(Asked("--no-hierarchical-allreduce --no-hierarchical-allgather", "", ON), False, id="flags off"),
        pytest.param(Asked("", FILE.format("false"), ON), False, id="file off"),
        pytest.param(Asked("", "", OFF), False, id="variables off"),
    ],
)
def test_two_levels_are_switched(asked: Asked, on: bool, hosts: Hosts, tmp_path: Path) -> None:
    options = f"-np 3 -H host1:2,host2:1 --log-level trace {asked.flags}"
    if asked.file:
        (tmp_path / "horovod.yaml").write_text(asked.file)
        options += f" --config-file {tmp_path / 'horovod.yaml'}"
    ended = hosts(options, python(WORK), environ=asked.variables)
    assert ended.code == 0, ended
    assert sorted(line.partition("chosen ")[2] for line in ended.out) == [f"{int(on)} {int(on)} 3.0 300000.0"] * 3, (
        ended
    )
    text = "\n".join(ended.err)
    went = dict(re.findall(r"\[rank 0\] batch \d+: (all\w+) of 1 tensor, 400000 bytes of float32, (.*)", text))
    assert all(went[name].startswith(INSIDE if on else BETWEEN) for name in ("allreduce", "allgather")), went
