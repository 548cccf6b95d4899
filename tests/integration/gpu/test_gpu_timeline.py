"""What a timeline shows of GPUs: when they worked, by their own clocks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs import Ended, horovodrun, run
from jobs.gpus import gpus
from jobs.traces import Trace

WORKER = Path(__file__).with_name("timeline_worker.py")
TENSORS = ("t0", "t1", "t2")
# Of two clocks that are compared while the machine is busy, at most.
ERROR_US = 10_000
IN_ORDER = (
    "QUEUE",
    "WAIT_FOR_DATA",
    "MEMCPY_IN_FUSION_BUFFER",
    "MEMCPY_IN_HOST_BUFFER",
    "NCCL_ALLREDUCE",
    "MEMCPY_OUT_FUSION_BUFFER",
    "MEMCPY_OUT_HOST_BUFFER",
)

Events = Sequence[Mapping[str, Any]]


def job(part: str, directory: Path, **variables: str) -> Ended:
    """Two ranks."""
    variables = {"HOROVOD_TIMELINE_RANKS": "0", **variables}
    ended = run(horovodrun(2, WORKER, part), gpus(directory / "libraries", **variables))
    assert ended.code == 0, str(ended)
    return ended


def by_tensor(path: Path) -> Mapping[str, Events]:
    """The events of a trace."""
    events = json.loads(path.read_text())
    names = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    found = defaultdict(list)
    for event in events:
        found[names[event["pid"]].removeprefix("allreduce.")].append(event)
    return found


def rows(events: Events) -> dict[str, list[Mapping[str, Any]]]:
    """What devices did for a tensor, by the names of the rows: in order, and without overlaps."""
    names = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["tid"] > 0:
            found[names[event["tid"]]].append(event)
    for row in found.values():
        row.sort(key=lambda event: (event["ts"], event["ts"] + event["dur"]))
        for one, next_one in zip(row, row[1:]):
            assert one["ts"] + one["dur"] <= next_one["ts"], row
    return found


def submissions(events: Events) -> list[int]:
    return [event["ts"] for event in events if event.get("name", "").startswith("NEGOTIATE_")]


@pytest.mark.parametrize("way", ["NCCL", "GLOO"])
def test_phases_lie_between_submission_and_result(way: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    ended = job("steps", tmp_path, HOROVOD_TIMELINE=str(trace), HOROVOD_GPU_OPERATIONS=way)
    assert [(told["sums"], told["faults"]) for told in ended.of("stepped")] == [([2.0], "")] * 2, str(ended)
    events = by_tensor(trace)
    (after,) = submissions(events["after"])
    for tensor in TENSORS:
        found = rows(events[tensor])
        # One stream, or one for each direction. What the clock is off by may put a phase of the one stream before an
        # earlier one of the other.
        device = [row for name, row in found.items() if name.startswith("GPU stream ")]
        (queued,) = [row for row in device if row[0]["name"] == "QUEUE"]
        others = [row for row in device if row is not queued]
        begins = [i for i, event in enumerate(queued) if event["name"] == "QUEUE"]
        limits = [*submissions(events[tensor]), after]
        assert len(begins) == 3 and len(limits) == 4 and all(len(row) == 3 for row in others), device
        for k, first in enumerate(begins):
            phases = [*queued[first : (begins + [len(queued)])[k + 1]], *(row[k] for row in others)]
            names = [event["name"] for event in phases]
            assert names == sorted(names, key=IN_ORDER.index) and len(set(names)) == len(names), names
            needed = {"NCCL_ALLREDUCE"} if way == "NCCL" else {"MEMCPY_IN_HOST_BUFFER", "MEMCPY_OUT_HOST_BUFFER"}
            assert {"QUEUE", "WAIT_FOR_DATA", *needed} <= set(names), names
            assert limits[k] - ERROR_US <= phases[0]["ts"]
            assert phases[-1]["ts"] + phases[-1]["dur"] <= limits[k + 1] + ERROR_US
        host = [event["name"] for event in found.get("host", ())]
        assert host == ["GLOO_ALLREDUCE"] * 3 if way == "GLOO" else set(host) <= {"INIT_NCCL"}, host
    assert set(rows(events["after"])) == set()  # it lies in the host's memory


def test_gpus_of_all_ranks_are_threads_of_their_ranks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    variables = {"HOROVOD_TIMELINE_RANKS": "all", "HOROVOD_GPU_OPERATIONS": "NCCL"}
    ended = job("steps", tmp_path, HOROVOD_TIMELINE=str(path), **variables)
    assert [told["faults"] for told in ended.of("stepped")] == [""] * 2, str(ended)
    trace = Trace(path)
    for rank in range(2):
        assert len(trace.slices(rank, "NCCL_ALLREDUCE")) >= 3
        streams = [name for name in trace.threads(rank) if ": GPU stream " in name]
        assert {name.split(":")[0].removeprefix("allreduce.") for name in streams} == set(TENSORS)


def test_a_reduction_goes_beside_what_the_framework_computes(tmp_path: Path) -> None:
    ended = job("overlaps", tmp_path, TRACE=str(tmp_path / "trace.json"), HOROVOD_TIMELINE="DYNAMIC")
    told = ended.of("overlapped")
    assert [(one["shown"], one["busy"], one["sum"]) for one in told] == [(True, True, 2.0)] * 2, str(ended)


def test_a_trace_is_whole_although_a_rank_dies_while_the_gpu_works(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    worker = Path(__file__).with_name("gpu_worker.py")
    variables = {"HOROVOD_TIMELINE_RANKS": "0", "HOROVOD_TIMELINE": str(trace)}
    ended = run(horovodrun(2, worker, "killed"), gpus(tmp_path / "libraries", **variables))
    (failed,) = ended.of("failed")
    assert "rank 1" in failed["why"] and failed["free_s"] < 5, str(ended)
    events = by_tensor(trace)
    assert "held" in events
    for of_tensor in events.values():
        rows(of_tensor)
