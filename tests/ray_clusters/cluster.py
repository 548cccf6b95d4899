"""`horovod.ray` on a real Ray cluster of two nodes on this machine: `make test-ray`.

By the name of the file, no other run of the tests collects it: Ray is not in the environment of the rest.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

# Nobody else of this machine may use the cluster. Ray reads these when it is imported.
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "200"  # of a busy machine
sys.path.append(os.path.join(os.path.dirname(__file__), os.pardir, "docs"))
import programs
import ray
from pages import ROOT, Block, Page
from ray.cluster_utils import Cluster

from horovod.ray import RayExecutor

# Actors find the package and the functions.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(Path(__file__).parent)])

with socket.create_server(("127.0.0.1", 0)) as _free:
    CLIENT_PORT = _free.getsockname()[1]
SETTINGS = RayExecutor.create_settings(placement_group_timeout_s=60)
_OURS = ("ray::Worker", "ray::Elastic", "ray::worker", "ray::Crew", "ray::_QueueActor", "ray::rank")
Start = Callable[..., RayExecutor]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    head = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False, "ray_client_server_port": CLIENT_PORT}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(num_cpus=2)
    ray.init(address=made.address)
    made.wait_for_nodes()
    print(f"ray {ray.__version__}")
    yield made
    ray.shutdown()
    made.shutdown()
    assert processes("raylet", "gcs_server", "ray::") == []


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Start]:
    """Starts executors, and ends them; nothing of them is left."""
    made: list[RayExecutor] = []

    def started(*words: Any, **kwargs: Any) -> RayExecutor:
        executor = RayExecutor(SETTINGS, **kwargs)
        made.append(executor)
        executor.start(*words)
        return executor

    yield started
    for executor in made:
        executor.shutdown()
        executor.shutdown()
    nothing_is_left()


def processes(*words: str) -> list[str]:
    """Those of this user whose command line begins with one of these, or has it as its program."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("latin1")
            environ = (place / "environ").read_bytes()
        except OSError:
            continue
        is_one = any(line.startswith(word) or line.partition(" ")[0].endswith(f"/{word}") for word in words)
        if is_one and os.environ["RAY_AUTH_TOKEN"].encode() in environ:
            found.append(line)
    return found


def nothing_is_left() -> None:
    """No actor, no reservation."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        groups = [each for each in ray.util.placement_group_table().values() if each["state"] != "REMOVED"]
        left = (processes(*_OURS), groups, ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0))
        if left == ([], [], 0):
            return
        time.sleep(0.1)
    raise AssertionError(f"left: {left}")


def test_workers_on_few_nodes(start: Start) -> None:
    executor = start(None, None, None, {"OURS": "yes"}, num_workers=4)
    found = executor.run(programs.placed, ["a"])
    assert len(processes(*_OURS)) == 4
    assert [each[:2] for each in found] == [((rank, 4, rank, 4, 1), 10.0) for rank in range(4)]
    assert [each[2][0] for each in found] == ["0", "1", "2", "3"] and {each[2][2] for each in found} == {"yes"}
    nodes = [each[2][1] for each in found]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3] and {each[3] for each in found} == {"a"}
    again = executor.run(programs.placed, kwargs={"word": "b"})
    assert [each[5] for each in again] == [each[5] for each in found] and again[0][3] == "b"
    assert [each[1] for each in ray.get(executor.run_remote(programs.placed))] == [10.0] * 4


def test_as_many_workers_on_each_node(start: Start) -> None:
    found = start(num_hosts=2, num_workers_per_host=2).run(programs.placed)
    nodes = [each[2][1] for each in found]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3] and [each[1] for each in found] == [10.0] * 4


def test_an_object_in_each_worker(start: Start) -> None:
    executor = start(programs.Counter, (10,), {"step": 5}, num_workers=2)
    assert executor.execute(lambda counter: counter.count()) == [15, 16]
    assert executor.execute_single(lambda counter: counter.count()) == 20
    assert executor.execute(programs.Counter.count) == [25, 21]
    with pytest.raises(ZeroDivisionError):
        executor.execute_single(lambda counter: counter.value // 0)
    assert executor.execute(programs.Counter.summed) == [46.0, 46.0]  # the failure of rank 0 alone ends nothing


def test_the_secret_is_nowhere_to_be_read(cluster: Cluster, start: Start) -> None:
    found = start(num_workers=2).run(programs.secret_in_sight)
    secrets_seen = {secret for secret, _ in found}
    assert len(secrets_seen) == 1 and [places for _, places in found] == [[], []]
    logs = [path for path in Path(cluster.head_node.get_session_dir_path()).rglob("*") if path.is_file()]
    assert len(logs) > 10
    assert [path for path in logs if programs.has_secret(path.read_bytes(), *secrets_seen)] == []


def test_callbacks_get_what_rank_0_logs(start: Start) -> None:
    logged: list[Any] = []
    executor = start(num_workers=2)
    executor.run(programs.placed, callbacks=[logged.append, logged.append])
    assert logged == [{"rank": 0, "total": 3.0}] * 2
    executor.execute(lambda _: programs.placed(), callbacks=[logged.append])
    assert len(logged) == 3


def test_all_gpus_of_a_machine_are_visible_to_its_workers(start: Start) -> None:
    found = start(num_workers=2, use_gpu=True).run(programs.placed)
    assert sorted(found[0][2][3].split(",")) == ["0", "1"] and found[0][2][3] == found[1][2][3]


def test_a_function_that_fails_ends_all(start: Start) -> None:
    executor = start(num_workers=3)
    start_s = time.monotonic()
    with pytest.raises(ValueError, match="the data end here") as caught:
        executor.run(programs.fails_on_rank_1)
    assert time.monotonic() - start_s < 5 and "repr=rank 1, node " in str(caught.value)
    with pytest.raises(RuntimeError, match=r"there are no ranks.*Call start\(\) first"):
        executor.run(programs.placed)
    executor.start()
    assert executor.run(programs.placed)[2][1] == 6.0


def test_a_reference_that_fails_frees_the_others(start: Start) -> None:
    executor = start(num_workers=2)
    with pytest.raises(RuntimeError, match="rank 1 ended with ValueError: the data end here"):
        ray.get(executor.run_remote(programs.fails_on_rank_1)[0], timeout=20)
    assert [each[1] for each in executor.run(programs.placed)] == [3.0, 3.0]


def test_a_result_that_cannot_be_read(start: Start) -> None:
    with pytest.raises(RuntimeError, match=r"rank 0 \(pid .*\) has returned a result that cannot be unpickled here: "):
        start(num_workers=1).run(programs.Unreadable)


def test_a_worker_that_is_killed(start: Start) -> None:
    executor = start(num_workers=3)
    start_s = time.monotonic()
    with pytest.raises(RuntimeError, match=r"RayExecutor: rank 1 \(pid \d+, node .*\) has died: "):
        executor.run(programs.dies_on_rank_1)
    assert time.monotonic() - start_s < 10


def test_there_is_no_room(cluster: Cluster) -> None:
    few = RayExecutor.create_settings(placement_group_timeout_s=2)
    for arguments in ({"num_hosts": 3}, {"num_workers": 5}, {"num_workers": 1, "cpus_per_worker": 3}):
        with pytest.raises(TimeoutError, match=r"Wanted: \d x \(CPU \d\).* There: 2 nodes, .*\(CPU 2, GPU 2\)"):
            RayExecutor(few, **arguments).start()
        nothing_is_left()


def test_a_class_that_cannot_be_made(cluster: Cluster) -> None:
    executor = RayExecutor(SETTINGS, num_workers=2)
    with pytest.raises(ValueError, match="cannot be made"):
        executor.start(programs.Refuses)
    nothing_is_left()


def test_an_interrupt_ends_all(start: Start) -> None:
    executor = start(num_workers=2)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.alarm(2)
    with pytest.raises(KeyboardInterrupt):
        executor.run(programs.stands)
    nothing_is_left()


def test_the_group_of_a_trial_of_tune(cluster: Cluster, tmp_path: Path) -> None:
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        executor = RayExecutor(SETTINGS, num_workers=2)
        executor.start()
        found = executor.run(programs.placed)
        executor.shutdown()
        groups = [each for each in ray.util.placement_group_table().values() if each["state"] == "CREATED"]
        tune.report({"total": found[0][1] * config["factor"], "groups": len(groups)})

    room = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}, {"CPU": 1}])
    space = {"factor": tune.grid_search([1, 2])}
    config = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    results = tune.Tuner(tune.with_resources(trial, room), param_space=space, run_config=config).fit()
    assert not results.errors and sorted(each.metrics["total"] for each in results) == [3.0, 6.0]
    assert all(each.metrics["groups"] == 1 for each in results)  # the trial's own: four CPUs have no room for another
    nothing_is_left()


_CLIENT = """
import sys, ray, programs
from horovod.ray import RayExecutor
from horovod.ray.cluster import beside_this_process
ray.init(sys.argv[1])
executor = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=int(sys.argv[2])), num_workers=3)
executor.start(programs.Counter, (5,))
logged = []
print([each[1] for each in executor.run(programs.placed, callbacks=[logged.append])], logged)
where = ray.remote(lambda: ray.get_runtime_context().get_node_id())
print(ray.get(where.options(num_cpus=0, **beside_this_process(ray)).remote()))
print(executor.execute(programs.Counter.count), executor.execute_single(programs.Counter.count))
print([each[1] for each in ray.get(executor.run_remote(programs.placed))])
def text(function):
    try:
        executor.run(function)
    except Exception as error:
        return isinstance(error, ValueError), " ".join(str(error).split())
print("failed", *text(programs.fails_on_rank_1))
executor.start()
print("died", *text(programs.dies_on_rank_1))
executor.start()
executor.shutdown()
few = RayExecutor(RayExecutor.create_settings(placement_group_timeout_s=2), num_hosts=3)
try:
    few.start()
except TimeoutError as error:
    print("room", error)
executor.start()
print("left open", flush=True)
"""


def test_a_client_of_the_cluster(cluster: Cluster) -> None:
    command = [sys.executable, "-c", _CLIENT, f"ray://127.0.0.1:{CLIENT_PORT}", "60"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=100)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("\x1b") and not line.startswith("(")]
    assert done.returncode == 0, done.stdout
    assert lines[0] == "[6.0, 6.0, 6.0] [{'rank': 0, 'total': 6.0}]"
    assert lines[1] == cluster.head_node.node_id  # where the server of clients is
    assert lines[2:4] == ["[6, 7, 8] 7", "[6.0, 6.0, 6.0]"]
    texts = {line.partition(" ")[0]: line for line in lines[4:]}
    assert "True" in texts["failed"] and "the data end here" in texts["failed"] and "repr=rank 1" in texts["failed"]
    assert "RayExecutor: rank 1 (pid" in texts["died"] and "has died: " in texts["died"]
    assert "RayExecutor: Ray has not found room" in texts["room"]
    nothing_is_left()  # though the last executor was not shut down


def test_a_node_that_is_killed(cluster: Cluster, start: Start) -> None:
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    executor = start(num_hosts=3)
    references = executor.run_remote(programs.placed)
    ray.get(references)
    with pytest.raises(RuntimeError, match=r"RayExecutor: rank \d \(pid \d+, node .*\) has died: "):
        signal.signal(signal.SIGALRM, lambda *_: cluster.remove_node(node, allow_graceful=False))
        signal.alarm(2)
        executor.run(programs.stands)


BLOCKS = [block for path in sorted((ROOT / "docs").glob("ray*.md")) for block in Page(path).blocks("python")]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_the_documentation(cluster: Cluster, block: Block, tmp_path: Path) -> None:
    run_program(cluster, tmp_path, block.text)
    nothing_is_left()


@pytest.mark.parametrize("address", ["auto", f"ray://127.0.0.1:{CLIENT_PORT}"], ids=["node", "client"])
@pytest.mark.parametrize("name, ranks", [("executor_digits", 2), ("elastic_digits", 4)])
def test_the_example(cluster: Cluster, tmp_path: Path, name: str, ranks: int, address: str) -> None:
    program = (ROOT / "examples" / "ray" / f"{name}.py").read_text()
    output = run_program(cluster, tmp_path, program, "--address", address)
    found = re.search(rf"^accuracy (\S+) on {ranks} workers", output, re.MULTILINE)
    assert found is not None and float(found[1]) > 0.9, output
    nothing_is_left()


def run_program(cluster: Cluster, place: Path, text: str, *words: str) -> str:
    """A program that finds the cluster as a user's does; what it writes."""
    program = place / "program.py"
    program.write_text(text)
    environ = {**os.environ, "RAY_ADDRESS": cluster.address, "HOME": str(place)}
    command = [sys.executable, str(program), *words]
    done = subprocess.run(
        command, env=environ, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
