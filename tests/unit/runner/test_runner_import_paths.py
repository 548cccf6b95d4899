"""Import paths of the launcher that other people's code uses: what is there works, what is not says what to use."""

from __future__ import annotations

import importlib
import io
import os
import sys
import threading
import time
from pathlib import Path

import pytest

import horovod.runner.machines.hosts as own_hosts
from horovod._net.failures import PlacementError
from horovod.runner import import_paths
from horovod.runner.common.util import (
    codec,
    config_parser,
    env,
    host_hash,
    hosts,
    safe_shell_exec,
    secret,
    timeout,
    tiny_shell_exec,
)
from horovod.runner.launch import _HorovodArgs, parse_args
from horovod.runner.util import lsf, network, streams, threads


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HOROVOD", "OMPI_", "PMI", "LSB_", "SLURM_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    "name",
    [
        *("task_fn", "util.cache", "util.remote", "common.util.network", "common.util.settings"),
        *("gloo_run", "mpi_run", "js_run", "http", "driver", "task", "common.service"),
        *(f"elastic.{name}" for name in ("constants", "registration", "rendezvous", "settings", "worker")),
    ],
)
def test_what_is_not_there_says_what_to_use(name: str) -> None:
    parent, _, own = f"horovod.runner.{name}".rpartition(".")
    for statement in (f"import {parent}.{own}", f"import {parent}.{own}.below", f"from {parent} import {own}"):
        with pytest.raises(ModuleNotFoundError, match=rf"^{parent}\.{own} is not in this version: .* Remedy: "):
            exec(statement)


def test_every_name_of_the_table_is_there() -> None:
    for module, words in import_paths._NAMES.items():
        names = [word.partition("=")[0] for word in words.split()]
        space: dict[str, object] = {}
        exec(f"from horovod.runner.{module} import *", space)
        assert space.keys() - {"__builtins__"} == set(names), module
    assert safe_shell_exec.GRACEFUL_TERMINATION_TIME_S == 5 and "OLDPWD" in env.IGNORE_REGEXES


def test_what_nobody_knows_is_simply_not_there() -> None:
    with pytest.raises(ModuleNotFoundError, match="^No module named 'horovod.runner.nothing'$"):
        importlib.import_module("horovod.runner.nothing")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *(("launch", f"_{name}") for name in ("run_static", "run_elastic", "launch_job")),
        *(("launch", name) for name in ("run_controller", "is_gloo_used", "check_build")),
        *(("common.util.config_parser", name) for name in ("set_args_from_config", "validate_config_args")),
        ("common.util.safe_shell_exec", "terminate_executor_shell_and_children"),
        ("common.util.env", "LOG_LEVEL_STR"),
        *(("util.network", name) for name in ("get_driver_ip", "get_local_host_addresses")),
        *(("elastic.discovery", name) for name in ("HostDiscoveryScript", "HostManager")),
        ("elastic.driver", "ElasticDriver"),
    ],
)
def test_a_function_that_is_not_there_says_what_to_use(module: str, name: str) -> None:
    with pytest.raises(ImportError, match=rf"^horovod\.runner\.{module}\.{name} does not exist here\. Use "):
        exec(f"from horovod.runner.{module} import {name}")


def test_rank_and_size_without_init(monkeypatch: pytest.MonkeyPatch) -> None:
    assert env.get_env_rank_and_size() == (0, 1)
    for name, value in {"RANK": "2", "SIZE": "3", "LOCAL_RANK": "2", "LOCAL_SIZE": "3"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert env.get_env_rank_and_size() == (2, 3)
    for name, value in {"RANK": "1", "SIZE": "4", "LOCAL_RANK": "1", "LOCAL_SIZE": "4"}.items():
        monkeypatch.setenv(f"HOROVOD_{name}", value)
    assert env.get_env_rank_and_size() == (1, 4)
    monkeypatch.setenv("HOROVOD_SIZE", "many")
    with pytest.raises(PlacementError):
        env.get_env_rank_and_size()


def test_exportable_variables() -> None:
    assert env.is_exportable("PATH")
    assert not any(map(env.is_exportable, ("OLDPWD", "BASH_FUNC_f%%", "_HOROVOD_SECRET_KEY", "CUDA_VISIBLE_DEVICES")))


def test_hosts(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a slots=2\nb:3\n")
    assert hosts.parse_host_files(str(tmp_path / "hosts")) == "a:2,b:3"
    (tmp_path / "hosts").write_text("[fe80::1] slots=4\n[::1]\n")
    assert hosts.parse_host_files(str(tmp_path / "hosts")) == "[fe80::1]:4,[::1]:1"
    assert hosts.parse_hosts("[fe80::1]:4,[::1]:1") == [hosts.HostInfo("fe80::1", 4), hosts.HostInfo("::1", 1)]
    assert hosts.parse_hosts_and_slots("a:2,b:3") == (["a", "b"], {"a": 2, "b": 3})
    assert hosts.INVALID_SLOT_INFO.to_response_string() == "-1,-1,-1,-1,-1,-1"
    slot = hosts.get_host_assignments([hosts.HostInfo("a", 2), hosts.HostInfo("b", 1)], 3)[2]
    assert isinstance(slot, own_hosts.Slot)
    assert slot.to_response_string() == "2,3,0,1,1,2"


def test_secrets() -> None:
    key = secret.make_secret_key()
    assert len(key) == 32 and key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"text")
    assert len(digest) == secret.DIGEST_LENGTH_BYTES
    assert secret.check_digest(key, b"text", digest)
    assert not secret.check_digest(key, b"other", digest)
    assert secret.HOROVOD_SECRET_KEY == "_HOROVOD_SECRET_KEY"


def test_timeouts() -> None:
    later = timeout.Timeout(60, "Timed out waiting for {activity}.")
    assert not later.timed_out() and 59 < later.remaining() <= 60 and later.timeout() == 60
    later.check_time_out_for("hosts")
    with pytest.raises(timeout.TimeoutException, match="^Timed out waiting for hosts. Deadline: 0 s for hosts.$"):
        timeout.Timeout(0, "Timed out waiting for {activity}.").check_time_out_for("hosts")


def test_objects_as_text() -> None:
    text = codec.dumps_base64(lambda: {"a": 1})
    assert isinstance(text, str)
    assert codec.loads_base64(text)() == {"a": 1}
    assert isinstance(codec.dumps_base64(1, to_ascii=False), bytes)
    assert codec.loads_base64(None) is None


def test_names_of_variables_and_environment_of_arguments() -> None:
    assert config_parser.HOROVOD_FUSION_THRESHOLD == "HOROVOD_FUSION_THRESHOLD"
    with pytest.raises(AttributeError):
        config_parser.HOROVOD_NO_SUCH_THING  # noqa: B018
    args = _HorovodArgs()
    args.cycle_time_ms = 3
    assert config_parser.set_env_from_args({"A": "b"}, args) == {"A": "b", "HOROVOD_CYCLE_TIME": "3"}


def test_the_arguments_are_where_upstream_has_them() -> None:
    names: dict[str, object] = {}
    exec("from horovod.runner import _HorovodArgs", names)
    assert names["_HorovodArgs"] is _HorovodArgs


def test_host_hashes() -> None:
    assert host_hash.host_hash() == host_hash.host_hash() != host_hash.host_hash("salt")


def test_short_commands() -> None:
    assert tiny_shell_exec.execute("echo a; echo b >&2; exit 3") == ("a\nb\n", 3)


def test_a_command_of_the_shell_leaves_nothing_behind(tmp_path: Path) -> None:
    out, err = io.StringIO(), io.StringIO()
    code = safe_shell_exec.execute(
        f"sleep 1000 & echo $! >{tmp_path}/pid; echo $WORD; echo b >&2; exit 3", {"WORD": "a"}, out, err, index=7
    )
    assert (code, out.getvalue(), err.getvalue()) == (3, "[7]<stdout>:a\n", "[7]<stderr>:b\n")
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    deadline_s = time.monotonic() + 20
    while child.exists() and child.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_process_with_a_session_of_its_own_is_not_waited_for() -> None:
    out, start = io.StringIO(), time.monotonic()
    assert safe_shell_exec.execute("setsid sleep 10 & sleep 0.1; echo hi", stdout=out) == 0
    assert out.getvalue() == "hi\n" and time.monotonic() - start < 8


def test_an_event_stops_a_command() -> None:
    event = threading.Event()
    event.set()
    code = safe_shell_exec.execute([sys.executable, "-c", "import time; time.sleep(1000)"], events=[event])
    assert code == 128 + 15


def test_threads() -> None:
    assert threads.execute_function_multithreaded(pow, [[2, 3], [3, 2]]) == {0: 8, 1: 9}
    assert threads.execute_function_multithreaded(pow, [[2, 3]], block_until_all_done=False) is None
    event, stop, called = threading.Event(), threading.Event(), threading.Event()
    waiting = threads.on_event(event, called.set, stop=stop, check_stop_interval_s=0.01)
    event.set()
    waiting.join(20)
    assert called.is_set()
    called.clear()
    stop.set()
    threads.on_event(threading.Event(), called.set, stop=stop, check_stop_interval_s=0.01).join(20)
    assert not called.is_set()
    threads.in_thread(int, ("no number",), silent=True).join(20)


def test_pipes() -> None:
    pipe = streams.Pipe()
    writer = threads.in_thread(lambda: [pipe.write("abc"), pipe.write("d"), pipe.close()])
    assert [pipe.read(2), pipe.read(), pipe.read(), pipe.read()] == ["ab", "c", "d", None]
    writer.join(20)
    assert streams.Pipe().read(timeout=0.01) is None
    with pytest.raises(RuntimeError):
        pipe.write("e")


def test_addresses() -> None:
    assert network.filter_local_addresses(["localhost", "no-such-host.invalid"]) == ["no-such-host.invalid"]
    assert network.resolve_host_address("localhost").startswith("127.")
    assert "lo" in network.get_local_intfs()


def test_lsf(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not lsf.LSFUtils.using_lsf()
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.setenv("LSB_HOSTS", "batch n1 n1 n2")
    assert lsf.LSFUtils.using_lsf()
    assert lsf.LSFUtils.get_compute_hosts() == ["n1", "n2"]


def test_arguments_as_an_object() -> None:
    args = parse_args(["-np", "2", "--fusion-threshold-mb", "32", "--no-autotune", "x", "-v"])
    assert (args.num_proc, args.fusion_threshold_mb, args.autotune, args.command) == (2, 32, False, ["x", "-v"])
    args.num_proc, args.nics = 3, ["lo"]
    assert args.values["num_proc"] == 3
    args.log_with_timestamp = True
    assert args.values["log_hide_time"] is False and args.log_with_timestamp
    assert args.hosts is None
    with pytest.raises(ValueError, match=r"_HorovodArgs\.cycle_time_ms must be a number"):
        args.cycle_time_ms = "fast"
    with pytest.raises(AttributeError, match="Did you mean hostfile"):
        args.hostfiles  # noqa: B018
    with pytest.warns(UserWarning, match="_HorovodArgs has no hostfiles, so setting it has no effect."):
        args.hostfiles = "x"
