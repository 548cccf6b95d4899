"""What `horovod.ray` decides: the contract of `RayExecutor`, ranks and placements, first failures, words."""

from __future__ import annotations

import inspect
import operator
import time
from typing import Any

import pytest
from fake_ray import Answer, FakeRay

import horovod.ray.elastic_v2
from horovod._core.errors import InvalidArgumentError, PeerLostError, UnsupportedError
from horovod.ray import RayExecutor, cluster, placing
from horovod.ray.arguments import Wanted
from horovod.ray.gathering import death, gather
from horovod.ray.placing import Facts

SETTINGS = RayExecutor.create_settings()
# The contract: name -> parameters with defaults.
CONTRACT = {
    "RayExecutor.create_settings": "timeout_s=30, ssh_identity_file=None, ssh_str=None, "
    "placement_group_timeout_s=100, nics=None",
    "RayExecutor.__init__": "self, settings, num_workers=None, num_hosts=None, num_workers_per_host=1, "
    "cpus_per_worker=1, use_gpu=False, gpus_per_worker=None, use_current_placement_group=True, min_workers=None, "
    "max_workers=None, reset_limit=None, cooldown_range=None, elastic_timeout=600, override_discovery=True",
    "RayExecutor.start": "self, executable_cls=None, executable_args=None, executable_kwargs=None, extra_env_vars=None",
    "RayExecutor.run": "self, fn, args=None, kwargs=None, callbacks=None",
    "RayExecutor.run_remote": "self, fn, args=None, kwargs=None",
    "RayExecutor.execute": "self, fn, callbacks=None",
    "RayExecutor.execute_single": "self, fn",
    "RayExecutor.shutdown": "self",
    "elastic.ElasticRayExecutor.create_settings": "min_num_proc=1, max_num_proc=None, reset_limit=None, "
    "elastic_timeout=600, timeout_s=30, ssh_identity_file=None, nics=None, min_np=None, max_np=None, **kwargs",
    "elastic.ElasticRayExecutor.__init__": "self, settings, use_gpu=False, cpus_per_slot=1, gpus_per_slot=None, "
    "env_vars=None, override_discovery=True",
    "elastic.ElasticRayExecutor.start": "self",
    "elastic.ElasticRayExecutor.run": "self, worker_fn, callbacks=None",
    "elastic.RayHostDiscovery.__init__": "self, use_gpu=False, cpus_per_slot=1, gpus_per_slot=1",
    "elastic.TestDiscovery.__init__": "self, min_hosts, max_hosts, change_frequency_s, use_gpu=False, cpus_per_slot=1, "
    "gpus_per_slot=1, verbose=True, _graceful=True",
    "elastic_v2.RayHostDiscovery.__init__": "self, use_gpu=False, cpus_per_worker=1, gpus_per_worker=1",
    "elastic_v2.TestDiscovery.__init__": "self, min_hosts, max_hosts, change_frequency_s, use_gpu=False, "
    "cpus_per_worker=1, gpus_per_worker=1, verbose=True, _graceful=True",
    "ray_logger.configure": "queue",
    "ray_logger.log": "info_dict",
}


@pytest.mark.parametrize("name", CONTRACT)
def test_names_and_defaults_are_those_of_the_contract(name: str) -> None:
    parameters = inspect.signature(operator.attrgetter(name)(horovod.ray)).parameters.values()
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    assert ", ".join(map(str, plain)) == CONTRACT[name]


def test_settings_have_what_programs_read() -> None:
    made = RayExecutor.create_settings(40, placement_group_timeout_s=5, nics=["eth0"])
    assert (made.timeout_s, made.placement_group_timeout_s, made.nics, made.verbose) == (40, 5, ["eth0"], 1)
    assert made.elastic is False


@pytest.mark.parametrize("name", ["ssh_identity_file", "ssh_str"])
def test_ssh_is_deprecated(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"{name} is deprecated and has no effect") as caught:
        RayExecutor.create_settings(**{name: "x"})
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "the number of workers is missing"),
        ({"num_workers": 2, "num_hosts": 2}, "num_workers and num_hosts exclude each other"),
        ({"num_workers": 0}, "num_workers must be an integer, 1 or more. Received: 0"),
        ({"num_workers": True}, "num_workers must be an integer"),
        ({"num_hosts": 2, "num_workers_per_host": 0}, "num_workers_per_host must be an integer"),
        ({"num_workers": 2, "gpus_per_worker": 1}, "gpus_per_worker is 1, but use_gpu is not set"),
        ({"num_workers": 2, "use_gpu": True, "gpus_per_worker": 0}, "gpus_per_worker must be an integer, 1 or more"),
        ({"num_workers": 2, "cpus_per_worker": -1}, "cpus_per_worker must be a number, 0 or more"),
        ({"num_workers": 2, "cpus_per_worker": 0}, "asks for nothing that Ray could reserve"),
        ({"num_workers": 2, "max_workers": 4}, "max_workers is for elastic jobs, which have min_workers"),
        ({"max_workers": 4}, "max_workers is for elastic jobs"),
        ({"num_workers": 2, "reset_limit": 4}, "reset_limit is for elastic jobs"),
        ({"num_workers": 2, "cooldown_range": (1, 2)}, "cooldown_range is for elastic jobs"),
        ({"min_workers": 0, "max_workers": 4}, "min_workers must be an integer, 1 or more"),
        ({"min_workers": 1, "num_workers": 2}, "min_workers and num_workers exclude each other"),
    ],
)
def test_arguments_that_contradict_one_another(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        RayExecutor(SETTINGS, **arguments)
    assert isinstance(caught.value, InvalidArgumentError)


@pytest.mark.parametrize("kind", ["num_workers", "min_workers"])
def test_an_argument_without_effect_is_warned_of(kind: str, recwarn: pytest.WarningsRecorder) -> None:
    for harmless in (None, 1):
        RayExecutor(SETTINGS, num_workers_per_host=harmless, **{kind: 4})  # type: ignore[arg-type]
    assert not recwarn.list
    with pytest.warns(UserWarning, match="RayExecutor: num_workers_per_host has no effect without num_hosts") as caught:
        found = RayExecutor(SETTINGS, num_workers_per_host=2, **{kind: 4})._wanted  # type: ignore[arg-type]
    assert caught[0].filename == __file__ and found.workers == 4


def test_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"settings must be what RayExecutor.create_settings\(...\) returns"):
        RayExecutor(None, num_workers=2)  # type: ignore[arg-type]
    for name in ("timeout_s", "placement_group_timeout_s"):
        with pytest.raises(ValueError, match=f"{name} must be a number of seconds above 0. Received: 0"):
            RayExecutor.create_settings(**{name: 0})


def test_what_is_reserved() -> None:
    few = RayExecutor(SETTINGS, num_workers=3, cpus_per_worker=2)._wanted
    assert few == Wanted(3, 1, {"CPU": 2.0}, "PACK", True) and few.workers == 3 and few.bundle() == {"CPU": 2.0}
    hosts = RayExecutor(SETTINGS, num_hosts=2, num_workers_per_host=4, use_gpu=True)._wanted
    assert hosts == Wanted(2, 4, {"CPU": 1.0, "GPU": 1.0}, "STRICT_SPREAD", False)
    assert hosts.workers == 8 and hosts.bundle() == {"CPU": 4.0, "GPU": 4.0}
    assert not RayExecutor(SETTINGS, num_workers=1, use_current_placement_group=False)._wanted.takes_current
    only_gpus = RayExecutor(SETTINGS, num_workers=1, cpus_per_worker=0, use_gpu=True, gpus_per_worker=2)._wanted
    assert only_gpus.resources == {"GPU": 2.0}


@pytest.mark.parametrize("method", ["run", "run_remote", "execute", "execute_single"])
def test_nothing_runs_before_start(method: str) -> None:
    executor = RayExecutor(SETTINGS, num_workers=1)
    executor.shutdown()
    with pytest.raises(RuntimeError, match=rf"RayExecutor.{method}: there are no ranks.* Call start\(\) first"):
        getattr(executor, method)(print)


WORKERS = [
    Facts("m2", "b" * 40, "10.0.0.2", 1, ("5",)),
    Facts("m1", "a" * 40, "10.0.0.1", 2, ("0",)),
    Facts("m2", "b" * 40, "10.0.0.2", 3, ("1",)),
    Facts("m2", "c" * 40, "10.0.0.2", 4, ()),
    Facts("m2", "b" * 40, "10.0.0.2", 5, ()),
]


def test_ranks_of_a_machine_and_of_a_node_are_consecutive() -> None:
    assert placing.order(WORKERS) == [0, 2, 4, 3, 1]
    assert placing.order(WORKERS[1:]) == [0, 1, 3, 2]


def test_what_each_rank_gets() -> None:
    ranks = [WORKERS[each] for each in placing.order(WORKERS)]
    told = placing.places(ranks, "Ray x", b"s" * 32, ("10.0.0.2", 20001), {"OURS": "1"}, ["eth0"])
    assert [each.placement.rank for each in told] == [0, 1, 2, 3, 4]
    numbers = [(p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in (each.placement for each in told)]
    assert numbers == [(0, 4, 0, 2), (1, 4, 0, 1), (2, 4, 0, 1), (3, 4, 0, 1), (0, 1, 1, 2)]
    assert {each.placement.meeting_point.host for each in told if each.placement.meeting_point} == {"10.0.0.2"}
    assert all(each.placement.interfaces == ("eth0",) and each.placement.job_key == "Ray x" for each in told)
    assert [each.environ["HOROVOD_HOSTNAME"][0] for each in told] == ["b", "b", "b", "c", "a"]
    assert told[4].environ["HOROVOD_CROSS_RANK"] == "1" and told[4].environ["OURS"] == "1"
    assert [each.environ["CUDA_VISIBLE_DEVICES"] for each in told] == ["5,1"] * 4 + ["0"]
    assert told[3].title == "rank 3, node cccccccc at 10.0.0.2"
    assert not any("s" * 8 in text for each in told for text in (repr(each), str(each), *each.environ.values()))


def test_ranks_of_one_machine_need_no_address() -> None:
    ranks = [WORKERS[0], WORKERS[3]]
    assert placing.is_one_host(ranks) and not placing.is_one_host(WORKERS)
    told = placing.places(ranks, "Ray x", b"s" * 32, None, {})
    assert told[0].placement.one_host and told[0].placement.meeting_point is None
    assert "CUDA_VISIBLE_DEVICES" not in placing.places([WORKERS[3]], "Ray x", b"s" * 32, None, {})[0].environ


def test_where_they_are_in_words() -> None:
    ranks = [WORKERS[each] for each in placing.order(WORKERS)]
    assert placing.in_words(ranks) == (
        "5 workers on 3 nodes: node bbbbbbbb at 10.0.0.2 has ranks 0-2; node cccccccc at 10.0.0.2 has rank 3; "
        "node aaaaaaaa at 10.0.0.1 has rank 4."
    )
    assert placing.in_words(ranks[:1]) == "1 worker on 1 node: node bbbbbbbb at 10.0.0.2 has rank 0."


def test_results_come_by_rank() -> None:
    gathered = gather(FakeRay(), [Answer("a", 0.1), Answer("b"), Answer("c", 0.05)])
    assert gathered.failure is None and [gathered.values[rank] for rank in range(3)] == ["a", "b", "c"]


def test_the_first_failure_does_not_wait_for_the_others() -> None:
    start_s = time.monotonic()
    gathered = gather(FakeRay(), [Answer("a", 60.0), Answer(ValueError("x"), 0.05)])
    assert gathered.failure is not None and gathered.failure.rank == 1 and time.monotonic() - start_s < 2


def test_a_rank_that_has_lost_another_one_is_not_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Answer(PeerLostError("rank 2 is gone"))
    gathered = gather(FakeRay(), [lost, Answer("b", 60.0), Answer(ValueError("x"), 0.3)])
    assert gathered.failure is not None and gathered.failure.rank == 2
    monkeypatch.setattr("horovod.ray.gathering._REASON_S", 0.2)
    gathered = gather(FakeRay(), [lost, Answer("b", 60.0)])
    assert gathered.failure is not None and gathered.failure.error is lost.value


def test_time_that_is_over() -> None:
    gathered = gather(FakeRay(), [Answer("a"), Answer("b", 60.0)], 0.1)
    assert gathered.values == {0: "a"} and gathered.failure is None


def test_what_is_to_be_done_meanwhile() -> None:
    calls: list[float] = []
    gather(FakeRay(), [Answer("a", 0.35)], meanwhile=lambda: calls.append(time.monotonic()))
    assert 3 <= len(calls) <= 5


def test_why_an_actor_has_died() -> None:
    said = "The actor died.\n\tpid: 7\nIts worker process has died. Some common causes include: (1) memory, (2) more"
    assert death(RuntimeError(said)) == "Its worker process has died." and death(RuntimeError()) == "RuntimeError"


def test_too_few_resources_in_words() -> None:
    nodes = [
        {"Alive": True, "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 2.0, "memory": 5.0}},
        {"Alive": False, "NodeManagerAddress": "10.0.0.9", "Resources": {"CPU": 64.0}},
    ]
    text = cluster.too_few(Wanted(2, 4, {"CPU": 1.0, "GPU": 1.0}, "STRICT_SPREAD", False), 5, nodes, {"CPU": 1.5})
    assert "within 5 s (placement_group_timeout_s). Wanted: 2 x (CPU 4, GPU 4) on as many nodes, CPU 8, GPU 8" in text
    assert "There: 1 node, 10.0.0.1 (CPU 2); free in all: CPU 1.5." in text
    many = [nodes[0]] * 12
    assert "and 4 more; free" in cluster.too_few(Wanted(1, 1, {"CPU": 1.0}, "PACK", True), 5, many, {})


@pytest.mark.parametrize("version, old", [("2.8.1", True), ("1.13.0", True), ("2.9.0", False), ("3.0.0.dev0", False)])
def test_versions_that_are_too_old(version: str, old: bool) -> None:
    if not old:
        cluster.refuse_old(version, "it")
        return
    with pytest.raises(UnsupportedError, match=rf"it: Ray {version} is too old; 2.9 is the first .* Remedy: pip"):
        cluster.refuse_old(version, "it")
