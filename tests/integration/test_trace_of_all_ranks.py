"""A trace holds every rank as a process, by one clock, with flows from submissions to batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import horovodrun, on_hosts, run
from jobs.traces import Trace

WORKER = Path(__file__).with_name("trace_worker.py")
TENSORS = 5


def test_all_ranks_of_a_host_are_in_it_and_the_late_one_stands_out(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ended = run(horovodrun(4, WORKER, "plain"), {"HOROVOD_TIMELINE": str(path), "LATE": "2"})
    assert ended.code == 0, str(ended)
    trace = Trace(path)
    assert sorted(trace.processes) == [0, 1, 2, 3]
    assert all(name.startswith(f"rank {rank} (") for rank, name in trace.processes.items()), trace.processes
    waited = {}
    for rank in range(4):
        assert len(trace.slices(rank, "ALLREDUCE")) >= 20 * TENSORS
        assert {f"allreduce.w{i}" for i in range(TENSORS)} <= set(trace.threads(rank))
        trace.check_flows(rank)
        waits = sorted(slice["dur"] for slice in trace.slices(rank, "NEGOTIATE_ALLREDUCE"))
        waited[rank] = waits[len(waits) // 2]
        assert {event["name"] for event in trace.of(rank) if event["ph"] == "C"} == {"bytes/s", "tensors in flight"}
        assert trace.clock(rank) == (0, 0)
    # The others wait for it in every step; it waits for none.
    assert waited[2] < 10_000 and min(waited[rank] for rank in (0, 1, 3)) > 20_000, waited
    # Whoever submits last decides when all agree: by one clock that is at the same time on all ranks.
    ends = [trace.ends(rank, "allreduce.w0", "NEGOTIATE_ALLREDUCE")[-15:] for rank in range(4)]
    apart = sorted(max(times) - min(times) for times in zip(*ends))
    assert apart[len(apart) // 2] < 10_000, apart


def test_hosts_are_named_with_the_error_of_their_clocks(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ended = run(on_hosts((2, 2), WORKER, "plain", warm="numpy"), {"HOROVOD_TIMELINE": str(path)})
    assert ended.code == 0, str(ended)
    trace = Trace(path)
    assert sorted(trace.processes) == [0, 1, 2, 3]
    for rank in range(4):
        trace.check_flows(rank)
        offset_us, error_us = trace.clock(rank)
        if rank < 2:
            assert (offset_us, error_us) == (0, 0)
        else:  # it is the same clock, but nobody knows
            assert error_us is not None and 0 < error_us < 50_000 and abs(offset_us) <= error_us + 1


def test_a_part_of_a_job_is_traced(tmp_path: Path) -> None:
    traces = f"{tmp_path}/1.json:{tmp_path}/2.json"
    ended = run(horovodrun(3, WORKER, "dynamic"), {"HOROVOD_TIMELINE": "DYNAMIC", "TRACES": traces})
    assert ended.code == 0, str(ended)
    shown = [told["shown"] for told in ended.of("dynamic") if told["shown"]]
    assert shown == [[3 * 3 * TENSORS, 3 * 4 * TENSORS]], str(ended)


def test_a_rank_that_is_stopped_meanwhile_does_not_mix_two_traces(tmp_path: Path) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    variables = {"HOROVOD_TIMELINE": "DYNAMIC", "TRACES": f"{first}:{second}"}
    ended = run(horovodrun(2, WORKER, "paused"), variables)
    assert ended.code == 0, str(ended)
    assert "has no part in the timeline" not in str(ended)
    trace = Trace(second)
    for i in range(TENSORS):
        ends = [trace.ends(rank, f"allreduce.w{i}", "ALLREDUCE") for rank in range(2)]
        assert [len(times) for times in ends] == [4, 4], ends
        # By the clock of the second trace.
        assert all(abs(one - other) < 1_000_000 for one, other in zip(*ends)), ends


def test_it_is_json_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ended = run(horovodrun(3, WORKER, "watched"), {"HOROVOD_TIMELINE": str(path)})
    assert ended.code == 0, str(ended)
    watched = max(ended.of("watched"), key=lambda told: told["looks"])
    assert watched["looks"] == watched["whole"] > 10


def test_it_is_json_when_a_rank_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    ended = run(horovodrun(4, WORKER, "killed"), {"HOROVOD_TIMELINE": str(path)})
    assert ended.code != 0, str(ended)
    trace = Trace(path)
    assert all(len(trace.slices(rank, "ALLREDUCE")) >= 5 * TENSORS for rank in range(4))


def test_a_second_start_of_the_program_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("of another job")
    ended = run(horovodrun(2, WORKER, "again"), {"HOROVOD_TIMELINE": str(path)})
    assert ended.code == 0, str(ended)
    trace = Trace(path)
    for rank in range(2):
        slices = trace.slices(rank, "ALLREDUCE")
        assert len(slices) == 7 * TENSORS
        # Those of the second start lie behind those of the first.
        times = [slice["ts"] for slice in slices]
        assert max(times[: 3 * TENSORS]) < min(times[3 * TENSORS :])
        begun = [event for event in trace.of(rank) if event.get("name") == "epoch 0 begins"]
        assert len(begun) == 2


def test_each_part_of_a_divided_job_has_a_file(tmp_path: Path) -> None:
    ended = run(horovodrun(3, WORKER, "worlds"), {"HOROVOD_TIMELINE": str(tmp_path / "t.json")})
    assert ended.code == 0, str(ended)
    both, alone = Trace(tmp_path / "t.json"), Trace(tmp_path / "t.rank1.json")
    assert [len(both.slices(rank, "ALLREDUCE")) for rank in range(2)] == [5 * TENSORS] * 2
    assert sorted(alone.processes) == [0] and len(alone.slices(0, "ALLREDUCE")) == 5 * TENSORS


def test_a_file_that_grows_too_large_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    variables = {"HOROVOD_TIMELINE": str(path), "HOROVOD_TIMELINE_MAX_MB": "1"}
    ended = run(horovodrun(3, WORKER, "watched"), variables)
    assert ended.code == 0, str(ended)
    if not path.with_name("t.json.1").exists():
        pytest.skip("this machine was too slow to fill 1 MB")
    for one in (path, path.with_name("t.json.1")):
        assert one.stat().st_size <= 1 << 20
        trace = Trace(one)
        assert sorted(trace.processes) == [0, 1, 2]
        assert {f"allreduce.w{i}" for i in range(TENSORS)} <= set(trace.threads(1))


def test_the_form_of_rank_0_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    launcher = horovodrun(2)[:-1]
    ended = run([*launcher, "--timeline-filename", str(path), "--timeline-ranks", "0", *horovodrun(0, WORKER, "plain")])
    assert ended.code == 0, str(ended)
    trace = Trace(path)
    names = set(trace.processes.values())
    assert {"horovod", *(f"allreduce.w{i}" for i in range(TENSORS))} <= names, names
    begun = sum(event["ph"] == "B" for event in trace.events)
    assert begun == sum(event["ph"] == "E" for event in trace.events) >= 3 * 20 * TENSORS
