"""The command line and the YAML file: from words to a job."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.errors import HorovodError, InvalidArgumentError
from horovod._core.settings import SETTINGS, notices
from horovod.runner.job import effective_settings, make_job
from horovod.runner.options import config_file, flags, usage


def values(line: str) -> dict[str, Any]:
    return flags.parse(line.split()).values


def test_the_command_begins_at_the_first_positional() -> None:
    line = flags.parse(["-np", "2", "--verbose", "python", "train.py", "-np", "9", "--verbose", "--", "-H", "x"])
    assert line.command == ("python", "train.py", "-np", "9", "--verbose", "--", "-H", "x")
    assert line.values == {"num_proc": 2, "verbose": True}
    assert flags.parse(["-np", "2", "--", "--odd"]).command == ("--odd",)
    assert flags.parse(["-np", "2"]).command == ()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--num-proc 3", {"num_proc": 3}),
        ("--num-proc=3", {"num_proc": 3}),
        ("-H a:1,b:2", {"hosts": "a:1,b:2"}),
        ("-hostfile f", {"hostfile": "f"}),
        ("-p 22 -i id", {"ssh_port": 22, "ssh_identity_file": "id"}),
        ("--fusion-threshold-mb 32", {"fusion_threshold_bytes": 32 << 20}),
        ("--fusion-threshold-mb 0", {"fusion_threshold_bytes": 0}),
        ("--cycle-time-ms 0.5", {"cycle_time_ms": 0.5}),
        ("--cache-capacity 2048", {"cache_capacity": 2048}),
        ("--hierarchical-allreduce", {"hierarchical_allreduce": True}),
        ("--no-hierarchical-allreduce", {"hierarchical_allreduce": False}),
        ("--no-hierarchical-allgather", {"hierarchical_allgather": False}),
        ("--torus-allreduce", {"torus_allreduce": True}),
        ("--autotune --autotune-log-file a.csv", {"autotune": True, "autotune_log": "a.csv"}),
        ("--no-autotune", {"autotune": False}),
        ("--autotune-gaussian-process-noise 0.1", {"autotune_gaussian_process_noise": 0.1}),
        ("--timeline-filename t --timeline-mark-cycles", {"timeline_path": "t", "timeline_mark_cycles": True}),
        ("--no-stall-check", {"stall_check_disable": True}),
        ("--stall-check", {"stall_check_disable": False}),
        ("--stall-check-warning-time-seconds 5", {"stall_warning_s": 5.0}),
        ("--stall-check-shutdown-time-seconds 9", {"stall_shutdown_s": 9.0}),
        ("--gloo-timeout-seconds 60", {"collective_timeout_s": 60.0}),
        ("--thread-affinity 4", {"thread_affinity": (4,)}),
        ("--log-level DEBUG", {"log_level": "debug"}),
        ("--log-without-timestamp", {"log_hide_time": True}),
        ("--no-log-hide-timestamp", {"log_hide_time": False}),
        ("-prefix-timestamp", {"prefix_output_with_timestamp": True}),
        ("--network-interfaces a,b", {"network_interfaces": ("a", "b")}),
        ("--network-interface a --network-interface b", {"network_interfaces": ("a", "b")}),
        ("--blacklist-cooldown-range 10 100", {"blacklist_cooldown_range": (10, 100)}),
        ("--gloo", {"use_gloo": True}),
        ("--max-restarts 3 --dry-run --stdin-rank 1", {"max_restarts": 3, "dry_run": True, "stdin_rank": 1}),
        ("--ranks 3", {"shown_ranks": (3,)}),
        ("--ranks 0,3-5,4", {"shown_ranks": (0, 3, 4, 5)}),
        ("--start-timeout 5 --disable-cache --tcp", {"start_timeout_s": 5.0, "disable_cache": True, "tcp": True}),
    ],
)
def test_flags(line: str, expected: dict[str, Any]) -> None:
    assert values(line) == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--cycle-time-ms fast", "--cycle-time-ms must be a number of milliseconds >= 0. Received: 'fast'."),
        (
            "--fusion-threshold-mb -1",
            "--fusion-threshold-mb must be an integer number of megabytes >= 0. Received: '-1'",
        ),
        ("-np 0 x", "-np must be an integer number of processes >= 1, or auto. Received: '0'."),
        ("--hosts a --hostfile f", "--hosts and --hostfile exclude each other; give one of them."),
        ("--gloo --mpi", "--gloo and --mpi exclude each other; give one of them."),
        (
            "--log-without-timestamp -prefix-timestamp",
            "--log-without-timestamp and --prefix-output-with-timestamp exclude",
        ),
        ("--autotune --no-autotune", "--autotune and --no-autotune exclude each other; give one of them."),
        ("--fusion-treshold-mb 3", "There is no flag --fusion-treshold-mb. Did you mean --fusion-threshold-mb?"),
        ("-np 2 --timline", "There is no flag --timline. Did you mean --timeline-filename or --timeline-mark-cycles"),
        ("-np 2 --hierachical x", "There is no flag --hierachical. Did you mean --hierarchical-allgather or "),
        ("-np 2 --zzzz x", "There is no flag --zzzz. If it is meant for your program"),
        ("--cycle-time-ms", "Argument --cycle-time-ms: a value must follow it. See horovodrun --help."),
        *(
            (f"--ranks {text}", "--ranks must be a comma-separated list of ranks and of ranges, such as 0,3-5.")
            for text in ("", "x", "3-", "-3", "5-3", "1,,2", "0-99999")
        ),
        ("--max-restarts -1", "--max-restarts must be an integer number of restarts from 0 to 1000000."),
        ("-np 2 -m", "-m must be followed by a module"),
        ("-np 2 --module=", "--module must be followed by a module"),
        ("--blacklist-cooldown-range 100 10", "the first >= 1 and not above the second"),
    ],
)
def test_bad_flags(line: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        flags.parse(line.split(" "))
    assert message in str(caught.value)


@pytest.mark.parametrize("line", ["-np 2 -m pack.mod -m -np 3", "-np 2 --module pack.mod -m -np 3",
                                  "-np 2 --module=pack.mod -m -np 3"])  # fmt: skip
def test_a_module_is_run_with_this_python(line: str) -> None:
    found = flags.parse(line.split())
    assert found.command == (sys.executable, "-m", "pack.mod", "-m", "-np", "3")
    assert found.values == {"num_proc": 2}


def test_deprecated_flags_are_named() -> None:
    line = flags.parse(["--log-hide-timestamp", "--network-interface", "a,b"])
    assert line.deprecations == (
        "--log-hide-timestamp is deprecated; use --log-without-timestamp.",
        "A list after --network-interface is deprecated; use --network-interfaces.",
    )


def test_help_shows_every_flag_but_the_hidden_ones() -> None:
    text = flags.parser().format_help()
    for setting in SETTINGS:
        for flag in setting.flags:
            shown = any(f"{name} " in text or f"{name}\n" in text for name in flag.names)
            assert shown != flag.hidden, flag.names
    assert "--no-dump-on-stall    Opposite of --dump-on-stall." in text


def test_help_begins_with_what_one_does_first() -> None:
    text = flags.parser().format_help()
    places = [text.index(f"\n{section}:\n") for section in usage.SECTIONS]
    assert places == sorted(places)
    assert {setting.section for setting in SETTINGS if setting.flags} - {"Hosts"} <= set(usage.SECTIONS)
    first = text[: places[1]]
    assert first.index("--num-proc") < first.index("--hosts") < first.index("--output-filename") < first.index("--help")
    assert "rank.0/stdout" in " ".join(text.split()) and "rank.NN" not in text


def test_the_short_help_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        flags.parse(["-h"])
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert caught.value.code == 0 and len(lines) <= 20 and max(map(len, lines)) <= 79
    examples = [line.split("  ")[1].split() for line in lines if line.startswith("  horovodrun -np")]
    assert len(examples) == 3
    for words in examples:
        assert flags.parse(words[1:]).command[0] == "python"
    for word in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text):
        assert word in flags._WIDTHS or word == "--epochs", word


@given(st.lists(st.text(max_size=12) | st.sampled_from(["-np", "2", "-H", "--", "--gloo", "-p", "x"]), max_size=6))
def test_any_words_are_a_command_line_or_a_clean_error(words: list[str]) -> None:
    if {"-h", "--help"} & set(words):
        return
    try:
        flags.parse(words)
    except InvalidArgumentError:
        return


YAML = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 3
  cache_capacity: 2048
  hierarchical_allreduce: true
autotune:
  enabled: false
timeline:
  filename: /tmp/t.json
  mark_cycles: yes
stall_check:
  enabled: false
  warning_time_seconds: 120
library_options:
  gloo_timeout_seconds: 60
  thread_affinity: 5
logging:
  level: INFO
  with_timestamp: true
"""


def test_yaml() -> None:
    values, remarks = config_file.parse(YAML.encode(), "c.yaml")
    assert values == {
        "controller": "gloo",
        "fusion_threshold_bytes": 32 << 20,
        "cycle_time_ms": 3.0,
        "cache_capacity": 2048,
        "hierarchical_allreduce": True,
        "autotune": False,
        "timeline_path": "/tmp/t.json",
        "timeline_mark_cycles": True,
        "stall_check_disable": True,
        "stall_warning_s": 120.0,
        "collective_timeout_s": 60.0,
        "thread_affinity": (5,),
        "log_level": "info",
        "log_hide_time": False,
    }
    assert remarks == []
    assert config_file.parse(b"", "c.yaml") == ({}, [])


def test_keys_of_other_versions_are_said_to_have_no_effect() -> None:
    text = b"params:\n  cycle_time: 3\n  cache_capacity: 9\nparms:\n  x: 3\nlogging:\n  hide_timestamp: true\n"
    values, remarks = config_file.parse(text, "c.yaml")
    assert values == {"cache_capacity": 9}
    assert remarks == [
        "c.yaml: 'params.cycle_time' is not a key that Horovod knows, so it has no effect. "
        "Did you mean params.cycle_time_ms?",
        "c.yaml: 'parms' is not a key that Horovod knows, so it has no effect. Did you mean params?",
        "c.yaml: 'logging.hide_timestamp' is not a key that Horovod knows, so it has no effect. "
        "Did you mean logging.with_timestamp?",
    ]


def merge_bomb() -> str:
    """Each mapping merges the one before ten times; the last has 10 ** 20 keys."""
    lines = ["m0: &m0 {k: 1}"]
    for level in range(20):
        lines.append(f"m{level + 1}: &m{level + 1} {{<<: [{', '.join([f'*m{level}'] * 10)}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params: 3\n", "params in c.yaml must hold keys and values, such as 'params.fusion_threshold_mb'."),
        (
            "params:\n  cycle_time_ms: fast\n",
            "params.cycle_time_ms in c.yaml must be a number of milliseconds >= 0. Received: 'fast'.",
        ),
        ("controller: nccl\n", "controller in c.yaml must be one of gloo, mpi. Received: 'nccl'."),
        ("- 1\n", "must hold keys and values"),
        ("a: [\n", "--config-file c.yaml is not valid YAML"),
        ("params: {cycle_time_ms: 2001-99-99}\n", "is not valid YAML"),
        ("? [a]\n: 1\n", "is not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']\n", "is not valid YAML"),
        ("a: " + "[" * 5000, "is not valid YAML"),
        ("a: " + ":".join(["1"] * 20_000), "is not valid YAML: a number of 39999 characters"),
        ("a: " + ":".join(["1"] * 20_000) + ".0", "is not valid YAML: a number of 40001 characters"),
    ],
)
def test_bad_yaml(text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        config_file.parse(text.encode(), "c.yaml")
    assert message in str(caught.value)


def test_merges_of_merges_end_after_a_moment() -> None:
    # PyYAML 6.0.4 takes a key that is merged twice once; older ones need our bound.
    started = time.monotonic()
    try:
        config_file.parse(merge_bomb().encode(), "c.yaml")
    except InvalidArgumentError as error:
        assert "is not valid YAML: more than 200 keys in one mapping" in str(error)
    assert time.monotonic() - started < 5


@given(st.binary(max_size=60) | st.text(alphabet="params:\n -[]{}&*!?|>'\"%@,0x1.e_", max_size=60).map(str.encode))
def test_any_bytes_are_yaml_or_a_clean_error(data: bytes) -> None:
    try:
        config_file.parse(data, "c.yaml")
    except InvalidArgumentError:
        return


_LEAF = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
)


@given(
    st.dictionaries(
        st.sampled_from(["params", "autotune", "logging", "controller", "library_options"]) | st.text(max_size=5),
        _LEAF | st.dictionaries(st.sampled_from(["cycle_time_ms", "enabled", "level", "thread_affinity"]), _LEAF),
    )
)
def test_any_tree_is_settings_or_a_clean_error(tree: dict[str, Any]) -> None:
    try:
        found = config_file.parse(yaml.safe_dump(tree).encode(), "c.yaml")
    except InvalidArgumentError:
        return
    assert all(isinstance(name, str) for name in found.values)


def test_precedence_flag_file_environment_default(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("params:\n  cycle_time_ms: 3\n  cache_capacity: 7\n")
    environ = {"HOROVOD_CYCLE_TIME": "1", "HOROVOD_CACHE_CAPACITY": "1", "HOROVOD_FUSION_THRESHOLD": "1"}
    line = flags.parse(["--config-file", str(path), "--cycle-time-ms", "5"])
    settings = effective_settings(line.values, "flag", environ).settings
    assert (settings.cycle_time_ms, settings.source("cycle_time_ms")) == (5.0, "flag")
    assert (settings.cache_capacity, settings.source("cache_capacity")) == (7, f"file {path}")
    assert (settings.fusion_threshold_bytes, settings.source("fusion_threshold_bytes")) == (1, "environment")
    assert settings.source("stall_warning_s") == "default"


def test_hints_without_effect_here_are_named() -> None:
    found = notices(effective_settings({}, "flag", {"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}).settings)
    assert len(found) == 1 and found[0].startswith("HOROVOD_BATCH_D2D_MEMCOPIES has no effect. Tensors that travel ")


def test_what_asks_for_the_default_asks_for_nothing(tmp_path: Path) -> None:
    """Files that were written for upstream spell its defaults out."""
    path = tmp_path / "job.yaml"
    path.write_text("library_options: {num_nccl_streams: 1}")
    settings = effective_settings(values(f"--elastic-timeout 600 --config-file {path}"), "flag", {}).settings
    assert (settings.elastic_timeout_s, settings.num_nccl_streams) == (600, 1)


@pytest.mark.parametrize(
    ("line", "notice"),
    [
        ("-np 2 --max-np 2 x", "--max-num-proc has no effect without --min-num-proc."),
        ("-np 2 --min-np 1 --max-np 2 --reset-limit 3 --elastic-timeout 5 x", ""),
        ("-np 2 --min-np 1 --slots-per-host 3 x", "--slots-per-host has no effect without --host-discovery-script."),
    ],
)
def test_flags_of_elastic_jobs_alone_are_remarked_upon(line: str, notice: str) -> None:
    assert list(job(line, {}).remarks) == ([notice] if notice else [])


def test_an_elastic_job_knows_all_slots_and_begins_with_some() -> None:
    made = job("-np 2 --min-np 1 -H a:3,b:4 x", {"HOROVOD_ELASTIC": "0"})
    assert [slot.hostname for slot in made.slots] == ["a", "a"]
    assert [host.to_string() for host in made.hosts] == ["a:3", "b:4"]
    assert made.environ["HOROVOD_ELASTIC"] == "1"
    assert "HOROVOD_ELASTIC" not in job("-np 2 x", {"HOROVOD_ELASTIC": "1"}).environ


def test_controller_of_the_file_yields_to_the_flag(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("controller: mpi\n")
    assert effective_settings({"config_file": str(path)}, "flag", {}).settings.use_mpi
    assert not effective_settings({"config_file": str(path), "use_gloo": True}, "flag", {}).settings.use_mpi


def job(line: str, environ: dict[str, str]) -> Any:
    parsed = flags.parse(line.split())
    return make_job(effective_settings(parsed.values, "flag", environ), parsed.command, environ, "/")


def test_job_environment() -> None:
    environ = {
        "PATH": "/bin",
        "OLDPWD": "/x",
        "BASH_FUNC_f%%": "() { :; }",
        "HOROVOD_RANK": "3",
        "HOROVOD_ELASTIC": "1",
        "HOROVOD_CONTROLLER": "mpi",
        "_HOROVOD_SECRET_KEY": "00",
        "CUDA_VISIBLE_DEVICES": "1",
        "HOROVOD_CYCLE_TIME": "1",
    }
    made = job("-np 2 --cycle-time-ms 4 --tcp x", environ)
    kept = dict(made.environ)
    assert kept.pop("_HOROVOD_SETTINGS_NOTICED")
    assert kept == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "HOROVOD_CYCLE_TIME": "4",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "HOROVOD_RESTART_COUNT": "0",
        "NCCL_IB_DISABLE": "1",
    }
    assert [slot.hostname for slot in made.slots] == ["localhost", "localhost"]
    for chosen in ("", "0", "1"):
        assert job("-np 2 x", {"PYTHONFAULTHANDLER": chosen}).environ["PYTHONFAULTHANDLER"] == chosen


@pytest.mark.parametrize(
    ("line", "environ", "message"),
    [
        ("-np 2", {}, "horovodrun -np 2 python train.py. horovodrun -h shows the options."),
        ("-np 2 -H localhost x", {}, "lower -np. A host without a number has one slot: write -H localhost:2."),
        (
            "-np 4 -H a:1,b x",
            {},
            "lower -np. A host without a number has one slot: write -H b:3.",
        ),
        ("-np 2 -H a:1 b:1 x", {}, "The command 'b:1' looks like a host. Commas separate hosts: -H a:1,b:1"),
        ("x", {}, "The number of processes is missing; give it with -np N"),
        ("x", {"LSB_JOBID": "7"}, "The number of processes is missing; give it with -np N"),
        ("-H a:2 x", {"LSB_JOBID": "7", "LSB_HOSTS": "b n1"}, "The number of processes is missing; give it with -np N"),
        ("-np 4 x", {"LSB_JOBID": "7", "LSB_HOSTS": "a b b"}, "the hosts have 3 (a:1, b:2)"),
        ("-np 2 --stdin-rank 2 x", {}, "--stdin-rank names rank 2, but the job has the ranks 0 to 1."),
        ("-np 2 --ranks 1,2 x", {}, "--ranks names rank 2, but the job has the ranks 0 to 1."),
        (
            "-np 3 -H a:1,b:1 x",
            {},
            "slots, but the hosts have 2 (a:1, b:1). Name more slots or lower -np.",
        ),
        ("-np 2 --hostfile /no/such/file x", {}, "The hostfile /no/such/file cannot be read"),
        ("-np 2 --config-file /no/such/file x", {}, "--config-file /no/such/file cannot be read"),
    ],
)
def test_bad_jobs(line: str, environ: dict[str, str], message: str) -> None:
    with pytest.raises(HorovodError) as caught:
        job(line, environ)
    assert message in str(caught.value)
