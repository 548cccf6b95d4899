"""Rank 0 switches the way of an allreduce while operations stream: all ranks go the same way in every batch, and the
results are right."""

from __future__ import annotations

import re

from jobs import on_hosts, run

# A stream of allreduces, each of a length of its own; the switch comes while some are under way.
_PROGRAM = """
import dataclasses, numpy as np
import horovod.numpy as hvd
from horovod._core.life.autotuning import parameters
from jobs.report import report

hvd.init()
was = parameters.in_force()
length, ways, wrong = 100_000, {}, 0
for turn in range(6):
    way = (False, True)[turn % 2]
    running = []
    for part in range(8):
        if part == 4 and hvd.rank() == 0:
            parameters.change(dataclasses.replace(was, hierarchical_allreduce=way))
        length += 1
        if part >= 4:
            ways[4 * length] = way  # negotiated after the change: rank 0 had asked for it before it submitted this one
        data = np.arange(length, dtype=np.float32)
        running.append((hvd.allreduce_async(data, op=hvd.Sum, name=f"{turn}.{part}"), data))
    for handle, data in running:
        wrong += not np.array_equal(hvd.synchronize(handle), data * hvd.size())
report("stream", rank=hvd.rank(), ways=ways, wrong=wrong, now=dataclasses.asdict(parameters.in_force()))
hvd.shutdown()
"""
# Rank 1 was started with another setting. Its broadcasts are small enough to be on their way before anybody reads them.
_UNLIKE = """
import os, numpy as np
if os.environ["HOROVOD_RANK"] == "1":
    os.environ["HOROVOD_HIERARCHICAL_ALLGATHER"] = "0"
import horovod.numpy as hvd
from horovod._core.life.autotuning import parameters
from jobs.report import report

hvd.init()
wrong = 0
for turn in range(3):
    mine = np.full(17_000, 100 * turn + hvd.rank(), np.float32)
    sent = hvd.broadcast_async(mine, root_rank=1, name=f"broadcast.{turn}")
    summed = hvd.allreduce_async(mine, op=hvd.Sum, name=f"allreduce.{turn}")
    wrong += not np.all(hvd.synchronize(sent) == 100 * turn + 1)
    wrong += not np.all(hvd.synchronize(summed) == 300 * turn + 3)
report("unlike", wrong=wrong, way=parameters.in_force().hierarchical_allgather)
hvd.shutdown()
"""
_WENT = re.compile(r"\[rank (\d)\].*batch \d+: allreduce of 1 tensor, (\d+) bytes of float32, (inside|over)")


def test_the_way_of_an_allreduce_switches_at_one_batch() -> None:
    environ = {"HOROVOD_LOG_LEVEL": "trace", "HOROVOD_FUSION_THRESHOLD": "0"}
    ended = run(on_hosts((2, 2), "-c", _PROGRAM, warm="numpy"), environ)
    reports = ended.of("stream")
    assert ended.code == 0 and len(reports) == 4, str(ended)
    asked = {int(size): "inside" if way else "over" for size, way in reports[0]["ways"].items()}
    went: dict[int, dict[int, str]] = {}
    for rank, size, way in _WENT.findall(ended.stderr):
        went.setdefault(int(size), {})[int(rank)] = way
    assert len(went) == 48
    for size, by_rank in went.items():
        assert len(by_rank) == 4 and len(set(by_rank.values())) == 1, (size, by_rank)
    assert {size: went[size][0] for size in asked} == asked
    assert len(set(asked.values())) == 2
    assert all(report["wrong"] == 0 and report["now"]["hierarchical_allreduce"] is True for report in reports)


def test_ranks_that_were_given_another_setting_go_the_way_of_rank_0() -> None:
    ended = run(on_hosts((2, 1), "-c", _UNLIKE, warm="numpy"), {"HOROVOD_GLOO_TIMEOUT_SECONDS": "10"})
    reports = ended.of("unlike")
    assert ended.code == 0 and len(reports) == 3, str(ended)
    assert all(report["wrong"] == 0 and report["way"] is None for report in reports), str(reports)
