"""Elastic jobs of `horovod.ray` on a real Ray cluster whose nodes come and go: `make test-ray`. See `cluster`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import elastic_programs as programs
import pytest
from cluster import Start, cluster, nothing_is_left, start  # noqa: F401 - fixtures
from ray.cluster_utils import Cluster

from horovod.ray import RayExecutor

SETTINGS = RayExecutor.create_settings()


@pytest.fixture
def marks(tmp_path: Path, cluster: Cluster) -> Iterator[Path]:  # noqa: F811
    """Where ranks and the test leave marks for one another. The nodes that a test has added are gone after it."""
    before = list(cluster.worker_nodes)
    yield tmp_path
    for node in [each for each in cluster.worker_nodes if each not in before]:
        cluster.remove_node(node)
    nothing_is_left()


def trained(marks: Path, disturb: Callable[[dict[str, Any]], None], **kwargs: Any) -> list[Any]:
    """A training whose callbacks see each step of rank 0."""
    executor = RayExecutor(SETTINGS, **{"min_workers": 2, **kwargs})
    executor.start(extra_env_vars={"OURS": "yes"})
    try:
        return executor.run(programs.train, [str(marks)], callbacks=[disturb])
    finally:
        executor.shutdown()


def nothing(logged: dict[str, Any]) -> None:
    """Disturbs nothing."""


def test_ranks_on_all_nodes_and_results_in_their_order(marks: Path) -> None:
    found = trained(marks, nothing)
    assert [each["rank"] for each in found] == [0, 1, 2, 3]
    assert {each["size"] for each in found} == {4} and {each["ours"] for each in found} == {"yes"}
    assert len({each["node"] for each in found}) == 2 and [each["sizes"] for each in found] == [[4]] * 4


def test_no_more_than_the_most(marks: Path) -> None:
    assert [each["size"] for each in trained(marks, nothing, max_workers=2)] == [2, 2]


def test_an_actor_that_is_killed(marks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start_s = time.monotonic()
    found = trained(marks, once(lambda seen: os.kill(seen["pids"][3], 9)), cooldown_range=(3600, 3600))
    assert time.monotonic() - start_s < 60
    assert [each["rank"] for each in found] == list(range(len(found))) and len(found) in (2, 3)
    assert {tuple(each["sizes"]) for each in found} <= {(4, 2), (4, 3), (4, 3, 2)}
    text = capfd.readouterr().err
    assert "RayExecutor: epoch 1: " in text and "has died: " in text


def test_a_node_that_is_killed(marks: Path, cluster: Cluster) -> None:  # noqa: F811
    node = cluster.add_node(num_cpus=2)
    cluster.wait_for_nodes()
    found = trained(marks, once(lambda _: cluster.remove_node(node, allow_graceful=False)))
    assert [each["rank"] for each in found] == [0, 1, 2, 3]
    assert {tuple(each["sizes"]) for each in found} <= {(6, 4), (6, 5, 4)}


def test_a_new_node_is_let_in_at_a_commit(marks: Path, cluster: Cluster) -> None:  # noqa: F811
    (marks / "wait_for").write_text("6")
    found = trained(marks, once(lambda _: cluster.add_node(num_cpus=2)))
    assert [each["rank"] for each in found] == list(range(6)) and found[0]["sizes"] == [4, 6]
    assert {each["sizes"][-1] for each in found} == {6} and len({each["total"] for each in found}) == 1


def test_the_autoscaler_is_asked_for_what_is_missing(marks: Path, cluster: Cluster) -> None:  # noqa: F811
    """The test is the autoscaler: it reads requests where Ray's own does, and adds a node for what they lack."""
    import ray

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(trained, marks, nothing, min_workers=6, elastic_timeout=60)
        while not (requests := requested()) and not job.done():
            time.sleep(0.2)
        lacking = sum(each["CPU"] for each in requests) - ray.cluster_resources()["CPU"]
        if lacking > 0:
            cluster.add_node(num_cpus=int(lacking))
        found = job.result()
    assert requests == [{"CPU": 1}] * 6 and [each["size"] for each in found] == [6] * 6
    assert requested() == []  # nothing of it keeps the new node


def requested() -> list[dict[str, float]]:
    """What the autoscaler is asked for."""
    from ray._private.ray_constants import AUTOSCALER_RESOURCE_REQUEST_CHANNEL
    from ray.experimental.internal_kv import _internal_kv_get

    return json.loads(_internal_kv_get(AUTOSCALER_RESOURCE_REQUEST_CHANNEL) or b"[]")


def test_the_limit_of_resets(marks: Path) -> None:
    with pytest.raises(RuntimeError, match=r"RayExecutor: the job was reset 0 times, which is the limit \(reset_limit"):
        trained(marks, once(lambda seen: os.kill(seen["pids"][3], 9)), reset_limit=0)


def test_an_exception_of_the_function(marks: Path) -> None:
    (marks / "raise").touch()
    start_s = time.monotonic()
    with pytest.raises(ValueError, match="the data end here") as caught:
        trained(marks, nothing)
    assert time.monotonic() - start_s < 40 and "repr=rank 1, node " in str(caught.value)


def test_too_few_workers(marks: Path) -> None:
    with pytest.raises(RuntimeError, match=r"9 ranks are needed, but after 3 s \(elastic_timeout\) there (is|are) "):
        trained(marks, nothing, min_workers=9, elastic_timeout=3)


def test_an_object_in_each_worker(start: Start) -> None:  # noqa: F811
    executor = start(programs.Model, (3,), min_workers=2, max_workers=2)
    assert executor.execute(programs.Model.trained) == [(0, 2, 3), (1, 2, 3)]
    assert executor.execute(programs.Model.trained) == [(0, 2, 3), (1, 2, 3)]
    for call in (executor.run_remote, executor.execute_single):
        with pytest.raises(NotImplementedError, match="the ranks of an elastic job"):
            call(print)


def once(disturb: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    """Disturbs at the third step of the first epoch."""
    done: list[int] = []

    def on_step(logged: dict[str, Any]) -> None:
        if logged["step"] == 3 and not done:
            done.append(1)
            disturb(logged)

    return on_step
