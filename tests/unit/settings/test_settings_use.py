"""What is done with settings: the core's fields, the variables for other processes, notices, the generated page."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from horovod._core import settings as table
from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS, Settings, from_environ
from horovod._core.settings.values import resident_bytes_for

ROOT = Path(__file__).resolve().parents[3]


def test_engine_fields_are_those_of_the_header() -> None:
    header = (ROOT / "include/horovod/horovod.h").read_text()
    block = header.split("/* settings, from the one table")[1].split("} hvd_config;")[0]
    fields = set(re.findall(r"^\s*(?:const )?[a-z0-9_]+\*? \*?([a-z_]+);", block, re.MULTILINE))
    assert {setting.name for setting in SETTINGS if setting.engine_field} == fields
    assert set(from_environ({}).engine_fields()) == fields


def test_engine_fields_are_plain_numbers_and_texts() -> None:
    fields = from_environ(
        {
            "HOROVOD_LOG_LEVEL": "debug",
            "HOROVOD_STORE_MODE": "streaming",
            "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
            "HOROVOD_HIERARCHICAL_ALLGATHER": "1",
            "HOROVOD_TIMELINE": "/tmp/t.json",
            "HOROVOD_RESIDENT_BYTES": "3000000",
        }
    ).engine_fields()
    assert fields["log_level"] == 1
    assert fields["store_mode"] == 2
    assert fields["hierarchical_allreduce"] == 0
    assert fields["hierarchical_allgather"] == 1
    assert fields["timeline_path"] == "/tmp/t.json"
    assert fields["resident_bytes"] == 2 << 20
    assert from_environ({}).engine_fields()["hierarchical_allreduce"] == -1
    assert all(type(value) in (int, float, str) for value in fields.values())


def test_dynamic_timeline_is_not_a_file() -> None:
    settings = from_environ({"HOROVOD_TIMELINE": "DYNAMIC"})
    assert settings.timeline_path == "DYNAMIC"
    assert settings.engine_fields()["timeline_path"] == ""


def test_without_resident_gradients_there_is_room_for_results_alone() -> None:
    assert 0 < from_environ({}).engine_fields()["resident_bytes"] <= 1 << 30
    assert from_environ({"HOROVOD_RESIDENT_BYTES": "0"}).engine_fields()["resident_bytes"] == 0
    assert 0 < from_environ({"HOROVOD_RESIDENT_GRADIENTS": "1"}).engine_fields()["resident_bytes"] <= 64 << 30


@pytest.mark.parametrize(
    ("memory", "limit", "local_size", "expected"),
    [
        (32 << 30, None, 2, 16 << 30),
        (1 << 40, None, 8, 64 << 30),
        (32 << 30, 8 << 30, 2, 1 << 30),
        (32 << 30, 8 << 30, 4, 1 << 29),
        (32 << 30, 1 << 50, 4, 16 << 30),
    ],
)
def test_resident_bytes_fit_into_the_address_space(
    memory: int, limit: Optional[int], local_size: int, expected: int
) -> None:
    assert resident_bytes_for(memory, limit, local_size, 64 << 30) == expected


def test_zero_timeout_means_no_deadline() -> None:
    assert from_environ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "0"}).engine_fields()["collective_timeout_s"] >= 1e9


@pytest.mark.parametrize(
    ("text", "local_rank", "core"), [("", 0, -1), ("4", 0, 4), ("4", 3, 7), ("4,9", 0, 4), ("4,9", 1, 9)]
)
def test_core_of_the_background_thread(text: str, local_rank: int, core: int) -> None:
    assert from_environ({"HOROVOD_THREAD_AFFINITY": text}).engine_fields(local_rank)["thread_affinity"] == core


def test_too_few_cores_are_an_error() -> None:
    with pytest.raises(InvalidArgumentError, match="names 2 cores, but this is local rank 2"):
        from_environ({"HOROVOD_THREAD_AFFINITY": "4,9"}).engine_fields(2)


def test_stronger_layers_win_and_sources_are_named() -> None:
    settings = Settings(
        [("environment", {"cycle_time_ms": 1.0, "cache_capacity": 5}), ("flag", {"cycle_time_ms": 2.0})]
    )
    assert settings.cycle_time_ms == 2.0
    assert settings.describe(only_given=True).splitlines() == [
        "cycle_time_ms = 2 milliseconds (flag)",
        "cache_capacity = 5 names (environment HOROVOD_CACHE_CAPACITY)",
    ]
    assert "collective_timeout_s = 30 seconds (default)" in settings.describe()


def test_to_environ_carries_what_was_given_and_has_a_meaning() -> None:
    given = {
        "fusion_threshold_bytes": 1 << 20,
        "stall_check_disable": True,
        "num_proc": 4,
        "autotune_warmup_samples": 9,
        "timeline_mark_cycles": True,
        "start_timeout_s": 90.0,  # the launcher and the ranks must wait equally long
    }
    assert Settings([("flag", given)]).to_environ() == {
        "HOROVOD_START_TIMEOUT": "90",
        "HOROVOD_FUSION_THRESHOLD": "1048576",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
    }
    with_leaders = Settings([("flag", {**given, "autotune": True, "timeline_path": "t.json"})]).to_environ()
    assert with_leaders["HOROVOD_AUTOTUNE_WARMUP_SAMPLES"] == "9"
    assert with_leaders["HOROVOD_TIMELINE_MARK_CYCLES"] == "1"


def test_unknown_variable_is_said_once_with_a_suggestion(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIMES", "3")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            table.say_notices(table.of_this_process())
    assert [record.message for record in caplog.records] == [
        "HOROVOD_CYCLE_TIMES is not a variable that Horovod knows, so it has no effect. "
        "Did you mean HOROVOD_CYCLE_TIME?"
    ]


@pytest.mark.parametrize(
    "variable",
    ["HOROVOD_RANK", "HOROVOD_WITH_PYTORCH", "HOROVOD_GPU_OPERATIONS", "HOROVOD_CPU_OPERATIONS", "_HOROVOD_SECRET_KEY"],
)
def test_known_variables_are_not_remarked_upon(variable: str) -> None:
    assert table.unknown_variables({variable: "gloo"}) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("OROVOD_CACHE_CAPACITY", "HOROVOD_CACHE_CAPACITY"),
        ("HOROVOD_CACHE_CAPACTY", "HOROVOD_CACHE_CAPACITY"),
        ("HORVOD_CACHE_CAPACTY", "HOROVOD_CACHE_CAPACITY"),
        ("HOROVD_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("horovod_timeline", "HOROVOD_TIMELINE"),
        ("HOROVODRUN_ROOT", None),
        ("OROVOD_HOME", None),
        ("HOROSCOPE_TIMELINE", None),
        ("FUSION_THRESHOLD", None),
    ],
)
def test_a_mistyped_variable_gets_its_suggestion(name: str, meant: Optional[str]) -> None:
    texts = table.unknown_variables({name: "1"})
    if meant is None:
        assert texts == []
    else:
        told = f"{name} is not a variable that Horovod knows, so it has no effect. Did you mean {meant}?"
        assert texts == [told]


def test_variables_of_a_kubernetes_service_are_not_remarked_upon() -> None:
    service = {"SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_PROTO"}
    for prefix in ("HOROVOD", "HOROVOD_LAUNCHER"):
        made = {f"{prefix}_{name}": "x" for name in (*service, "PORT_80_TCP_PORT", "PORT_80_TCP_ADDR")}
        assert table.unknown_variables(made) == []
        del made[f"{prefix}_SERVICE_HOST"]  # then they are somebody's mistakes
        assert len(table.unknown_variables(made)) == len(made)


def test_a_variable_that_nobody_reads_is_remarked_upon() -> None:
    (text,) = table.unknown_variables({"HOROVOD_RENDEZVOUS_ADDR": "server1"})
    assert text.startswith("HOROVOD_RENDEZVOUS_ADDR is not a variable that Horovod knows")


def test_what_the_launcher_has_said_is_not_said_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_NO_SUCH", "3")
    monkeypatch.setenv(table.NOTICED_VARIABLE, "1")
    with caplog.at_level(logging.WARNING):
        table.say_notices(table.of_this_process())
    assert caplog.records == []


@pytest.mark.parametrize(
    ("environ", "notice"),
    [
        ({"HOROVOD_AUTOTUNE": "1"}, ""),
        ({"HOROVOD_ELASTIC_TIMEOUT": "9"}, "HOROVOD_ELASTIC_TIMEOUT has no effect without --min-num-proc."),
        ({"HOROVOD_NUM_NCCL_STREAMS": "4"}, ""),
        ({"HOROVOD_ENABLE_ASYNC_COMPLETION": "1"}, ""),
        (
            {"HOROVOD_ENABLE_ASYNC_COMPLETION": "0"},
            "HOROVOD_ENABLE_ASYNC_COMPLETION has no effect. Operations",
        ),
        ({"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}, "HOROVOD_BATCH_D2D_MEMCOPIES has no effect. Tensors that travel"),
        ({"HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_GPU_ALLREDUCE": "NCCL"}, ""),
        ({"HOROVOD_TORUS_ALLREDUCE": "0"}, ""),
        ({"HOROVOD_CPU_OPERATIONS": "gloo"}, ""),
        ({"HOROVOD_CPU_OPERATIONS": "mpi"}, ""),
        ({"HOROVOD_CPU_OPERATIONS": "CCL"}, "HOROVOD_CPU_OPERATIONS=ccl has no effect. This version has no oneCCL"),
    ],
)
def test_inert_hints_are_named_when_they_ask_for_something(environ: dict[str, str], notice: str) -> None:
    found = table.notices(from_environ(environ))
    assert len(found) == (1 if notice else 0)
    assert "".join(found).startswith(notice)


def test_the_page_is_up_to_date() -> None:
    script = ROOT / "tools" / "gen_settings.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_is_light() -> None:
    code = (
        "import sys, horovod, horovod._core.settings, horovod.runner.cli\n"
        "heavy = {'numpy', 'torch', 'tensorflow', 'yaml', 'cloudpickle', 'ctypes', 'horovod._native'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
