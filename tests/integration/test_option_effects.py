"""What options do, not how they are read: one job for each that no other test shows at work, given in turn by flag,
file and environment. `tests/unit/settings/test_option_audit.py` says where the effect of every option is shown."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from faults.fault_job import WORKER, Fault
from jobs import Ended, Job, Place, on_hosts, python, run
from jobs.variables import ROOT

# Eight tensors, submitted while nobody waits; then each rank polls. Rank 1 is late where DELAY says so.
_STREAM = """
import os, threading, time
import numpy as np
import horovod.numpy as hvd
from jobs.report import report

hvd.init()
if hvd.rank() == 1:
    time.sleep(float(os.environ.get("DELAY", "0")))
begun = time.monotonic()
handles = [hvd.allreduce_async(np.ones(1000, np.float32), op=hvd.Sum, name=f"t.{i}") for i in range(8)]
while not all(hvd.poll(handle) for handle in handles):
    time.sleep(0.001)
took = time.monotonic() - begun
right = all((hvd.synchronize(handle) == hvd.size()).all() for handle in handles)
report("stream", right=bool(right), took=took)
hvd.shutdown()
"""
_BATCH = re.compile(r"batch \d+: allreduce of (\d+) tensors?,")
_TIMED = re.compile(r"^(?:\[\d\]<stderr>:)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \[rank \d\] ", re.MULTILINE)


def launched(options: str, code: str, environ: dict[str, str] | None = None) -> Ended:
    """A job of two ranks of horovodrun that must end well."""
    ended = run([*python("-m", "horovod.runner", "-np", 2), *options.split(), *python("-c", code)], environ)
    assert ended.code == 0, str(ended)
    return ended


def as_file(place: Path, text: str) -> str:
    """The option that names a file of settings with this text."""
    (place / "job.yaml").write_text(text)
    return f"--config-file {place}/job.yaml"


@pytest.mark.parametrize("way", ["flag", "file", "environment"])
def test_fusion_threshold_bounds_a_batch(way: str, tmp_path: Path) -> None:
    # The linger collects all eight, and the threshold, in units of a megabyte but for the variable, forbids fusing.
    linger = "--log-level trace --cycle-time-ms 100"
    options = {
        "flag": f"{linger} --fusion-threshold-mb 0",
        "file": f"{linger} {as_file(tmp_path, 'params: {fusion_threshold_mb: 0}')}",
        "environment": linger,
    }[way]
    environ = {"HOROVOD_FUSION_THRESHOLD": "0"} if way == "environment" else {}
    assert set(_BATCH.findall(launched(options, _STREAM, environ).stderr)) == {"1"}
    assert "8" in _BATCH.findall(launched(linger, _STREAM).stderr)


def test_cycle_time_lingers() -> None:
    for options, environ in (("--cycle-time-ms 300", {}), ("", {"HOROVOD_CYCLE_TIME": "300"})):
        assert min(event["took"] for event in launched(options, _STREAM, environ).of("stream")) > 0.25


def test_a_flag_wins_over_the_file_and_the_file_over_the_environment(tmp_path: Path) -> None:
    file = as_file(tmp_path, "params: {cycle_time_ms: 0}")
    slow = {"HOROVOD_CYCLE_TIME": "2000"}
    assert max(event["took"] for event in launched(file, _STREAM, slow).of("stream")) < 1.5
    by_flag = launched(f"{file} --cycle-time-ms 300", _STREAM, slow)
    assert 0.25 < min(event["took"] for event in by_flag.of("stream")) < 1.5


@pytest.mark.parametrize(
    ("variables", "allreduce", "allgather"),
    [
        ({}, "inside the hosts", "inside the hosts"),
        ({"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}, "over the connections", "inside the hosts"),
        ({"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}, "inside the hosts", "over the connections"),
        ({"HOROVOD_HIERARCHICAL_ALLREDUCE": "0", "HOROVOD_TORUS_ALLREDUCE": "1"}, "inside the hosts", "inside"),
    ],
)
def test_the_ways_between_hosts(variables: dict[str, str], allreduce: str, allgather: str) -> None:
    code = """
import numpy as np
import horovod.numpy as hvd
hvd.init()
hvd.synchronize(hvd.allreduce_async(np.ones(100_000, np.float32), name="a"))
hvd.synchronize(hvd.allgather_async(np.ones((1000, 100), np.float32), name="g"))
hvd.shutdown()
"""
    ended = run(on_hosts((2, 2), "-c", code, warm="numpy"), {"HOROVOD_LOG_LEVEL": "trace", **variables})
    assert ended.code == 0, str(ended)
    went = dict(re.findall(r"\[rank 0\] batch \d+: (all\w+) of 1 tensor, 400000 bytes of float32, (.*)", ended.stderr))
    assert went["allreduce"].startswith(allreduce) and went["allgather"].startswith(allgather), went


def test_cycle_marks_stand_in_the_timeline(tmp_path: Path) -> None:
    for options, marks in (("", False), ("--timeline-mark-cycles", True)):
        path = tmp_path / f"{marks}.json"
        launched(f"--timeline-filename {path} {options}", _STREAM)
        assert ("CYCLE_START" in path.read_text()) is marks


def test_nvtx_ranges_reach_a_profiler_unless_switched_off(tmp_path: Path) -> None:
    profiler = ROOT / "build" / "release" / "libfake_profiler.so"
    if not profiler.exists():
        pytest.skip(f"{profiler.name} is not built (make fakes)")
    waits = _STREAM.replace("hvd.shutdown()", 'hvd.allreduce(np.ones(10, np.float32), name="waited for")')
    ranges = {}
    for off in ("0", "1"):
        told = tmp_path / off
        told.touch()
        environ = {"NVTX_INJECTION64_PATH": str(profiler), "FAKE_PROFILER_FILE": str(told)}
        launched("", waits, {**environ, "HOROVOD_DISABLE_NVTX_RANGES": off})
        ranges[off] = told.read_text().splitlines()
    assert ranges["1"] == []
    # The launch of a batch, of one tensor or several, by each of the two ranks; and the blocking call.
    assert any(re.fullmatch(r"\d allreduce 'allreduce\.t\.\d'( and \d more)?", line) for line in ranges["0"]), ranges[
        "0"
    ]
    assert ranges["0"].count("1 allreduce 'allreduce.waited for'") >= 2, ranges["0"]
    assert 2 * sum(" " in line for line in ranges["0"]) == len(ranges["0"])  # each ends


@pytest.mark.slow
def test_the_stall_check_can_be_left_out_and_its_time_chosen() -> None:
    late = {"DELAY": "2.5"}
    stalled = "--stall-check-warning-time-seconds 1"
    assert "rank 1 has not submitted: allreduce 't." in launched(stalled, _STREAM, late).stderr
    for options in (f"{stalled} --no-stall-check", "--stall-check-warning-time-seconds 60"):
        assert "has not submitted" not in launched(options, _STREAM, late).stderr


def test_gloo_timeout_fails_a_collective_without_progress() -> None:
    # By flag; tests/faults shows the variable at work for every rank that may be stopped.
    fault = Fault("batch", 1, "STOP")
    words = [*python("-m", "horovod.runner", "-np", 2, "--gloo-timeout-seconds", 2), *python(WORKER)]
    with Place() as place:
        job = Job(place, {"FAULT": fault.text(), "FAULT_BATCH_MB": "64"})
        job.start(words)
        victim = job.await_events("fault", 1)[0]
        raised = job.await_events("raised", 1)[0]
        job.signal(victim["pid"], signal.SIGCONT)
        ended = job.end()
    assert 1.5 < raised["at"] - victim["at"] < 4, str(ended)
    assert raised["error"] == "CollectiveTimeoutError" and "HOROVOD_GLOO_TIMEOUT_SECONDS" in raised["message"]


@pytest.mark.parametrize("way", ["flag", "environment"])
def test_thread_affinity_keeps_the_background_thread_on_its_core(way: str) -> None:
    code = """
import os
import horovod.numpy as hvd
from jobs.report import report
hvd.init()
allowed = []
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/status") as status:
        allowed += [line.split()[1] for line in status if line.startswith("Cpus_allowed_list:")]
report("cores", rank=hvd.rank(), allowed=allowed)
hvd.shutdown()
"""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("Threads cannot be told apart by their cores on a machine with one.")
    chosen = f"{cores[1]},{cores[0]}"
    options = f"--thread-affinity {chosen}" if way == "flag" else ""
    environ = {"HOROVOD_THREAD_AFFINITY": chosen} if way == "environment" else {}
    for event in launched(options, code, environ).of("cores"):
        own = str(cores[1 - event["rank"]])
        assert event["allowed"].count(own) == 1, event  # the background thread, and no other


def test_log_lines_have_the_time_unless_it_is_hidden() -> None:
    with_time = launched("--log-level debug", _STREAM).stderr
    assert len(_TIMED.findall(with_time)) == with_time.count("[rank ") > 0
    hidden = launched("--log-level debug --log-without-timestamp", _STREAM).stderr
    assert _TIMED.findall(hidden) == [] and hidden.count("[rank ") > 0
    by_variable = launched("--log-level debug", _STREAM, {"HOROVOD_LOG_HIDE_TIME": "1"}).stderr
    assert _TIMED.findall(by_variable) == []


@pytest.mark.parametrize(("spin_us", "sleeps"), [("0", True), ("5000000", False)])
def test_a_waiting_thread_spins_as_long_as_it_may(spin_us: str, sleeps: bool) -> None:
    code = """
import json, time
import numpy as np
import horovod.numpy as hvd
from horovod._core.life import session
from jobs.report import report
hvd.init()
def asleep():
    return json.loads(session.require().engine.describe())["counters"]["sleeps"]
before = asleep()
if hvd.rank() == 1:
    time.sleep(0.3)
hvd.allreduce(np.ones(1 << 20, np.float32), name="late")
report("sleeps", rank=hvd.rank(), slept=asleep() - before)
hvd.shutdown()
"""
    ended = launched("", code, {"HOROVOD_SPIN_US": spin_us})
    (waiting,) = [event for event in ended.of("sleeps") if event["rank"] == 0]
    assert (waiting["slept"] > 0) is sleeps, str(ended)


def test_what_has_no_effect_is_remarked_upon_by_its_name() -> None:
    for name, value in (("HOROVOD_BATCH_D2D_MEMCOPIES", "0"), ("HOROVOD_ELASTIC_TIMEOUT", "9")):
        ended = run([*python("-m", "horovod.runner", "-np", 1), "true"], {name: value})
        assert ended.code == 0 and f"{name} has no effect" in ended.stderr, str(ended)
