"""Elastic jobs on Ray, decided and driven without a cluster: nodes as hosts, actors as workers, the ends of a job."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Optional

import pytest
from fake_cluster import Actor, FakeCluster, RayError, RaySystemError, RayTaskError

from horovod._net.roster import News, Seat, words
from horovod.ray import RayExecutor, arguments, elastic, elastic_v2, placing
from horovod.ray.arguments import Changing
from horovod.ray.changing import discovery, nodes
from horovod.ray.changing.crew import Assignment, ElasticCrew
from horovod.ray.changing.job import in_names_of_ray
from horovod.ray.changing.nodes import Mine
from horovod.ray.changing.roster import Question
from horovod.ray.changing.source import NodeSource
from horovod.ray.changing.worker import Lost, Made, Returned
from horovod.ray.crew import Call, Plan
from horovod.ray.elastic import ElasticRayExecutor
from horovod.runner.machines.hosts import Host
from horovod.runner.processes.crew import Asks, Bereft, Exited, HostLost

SETTINGS = RayExecutor.create_settings()
NEEDS = {"CPU": 1.0}
FIRST, SECOND = "10.0.0.1/00000000", "10.0.0.1/11111111"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Modules of Ray, for what is imported where it is needed; what the autoscaler was asked for."""
    found: list[Any] = []
    parts: dict[str, dict[str, Any]] = {
        "ray": {},
        "ray.util": {},
        "ray.util.scheduling_strategies": {
            "NodeAffinitySchedulingStrategy": lambda node_id, soft: SimpleNamespace(node_id=node_id, soft=soft)
        },
        "ray.autoscaler": {},
        "ray.autoscaler.sdk": {"request_resources": lambda bundles: found.append(bundles)},
    }
    for name, content in parts.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    yield found


def changing(least: int = 2, discovery: Optional[Any] = None) -> Changing:
    return Changing(least, None, None, None, 600.0, discovery)


def made(cluster: FakeCluster) -> ElasticCrew:
    wanted = arguments.wanted(2, None, 1, NEEDS, False)
    plan = Plan(wanted, 60.0, (), {"OURS": "1"}, True, changing())
    return ElasticCrew(cluster, plan, Assignment(Made(), Call(print)), {FIRST: "0" * 40, SECOND: "1" * 40}.__getitem__)


def begun(cluster: FakeCluster, *hosts: str) -> ElasticCrew:
    """Workers that have asked for their first place."""
    crew = made(cluster)
    for number, host in enumerate(hosts):
        crew.begin(number, host)
        ask(cluster, cluster.actors[number])
    assert crew.events() == [Asks(number, (-1, 0)) for number in range(len(hosts))]
    return crew


def ask(cluster: FakeCluster, actor: Actor) -> None:
    if actor.calls["facts"][-1][1].value is not None:
        actor.answer("facts", cluster.facts(actor, gpu=f"{actor.number + 4}"))
    actor.answer("question", Question((-1, 0), "", ("10.0.0.1", 20000 + actor.number)))


def seat(epoch: int, rank: int, *workers: int) -> dict[str, Any]:
    return words(Seat(epoch, rank, len(workers), 0, 1, 0, 1, workers, False))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"min_workers": 0}, "min_workers must be an integer, 1 or more"),
        ({"min_workers": 2, "num_workers": 2}, "min_workers and num_workers exclude each other"),
        ({"min_workers": 2, "num_hosts": 2}, "min_workers and num_hosts exclude each other"),
        ({"min_workers": 2, "max_workers": 1}, "max_workers must be at least min_workers"),
        ({"min_workers": 2, "reset_limit": -1}, "reset_limit must be an integer, 0 or more"),
        ({"min_workers": 2, "elastic_timeout": 0}, "elastic_timeout must be a number of seconds above 0"),
        ({"min_workers": 2, "cooldown_range": 5}, "cooldown_range must be two numbers of seconds"),
        ({"min_workers": 2, "cooldown_range": (9, 5)}, "cooldown_range must not begin with the greater"),
        ({"min_workers": 2, "cooldown_range": (9, 5000)}, "cooldown_range must be two numbers of seconds from 1 to"),
        ({"min_workers": 2, "override_discovery": False}, "override_discovery=False needs settings.discovery"),
    ],
)
def test_arguments_that_contradict_one_another(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RayExecutor(SETTINGS, **arguments)


def test_slots_are_own_workers_and_room_for_more() -> None:
    found = nodes.alive(FakeCluster(4, 2, 0.5).nodes(), {"0" * 40: {"CPU": 2.0}, "1" * 40: {"CPU": 0.0}})
    assert nodes.hosts(found, NEEDS, {}) == (Host(FIRST, 2),)
    mine = {"0" * 40: Mine(2), "1" * 40: Mine(2)}
    assert nodes.hosts(found, NEEDS, mine) == (Host(FIRST, 4), Host(SECOND, 2))
    unsettled = {"0" * 40: Mine(1, is_settled=False)}
    assert nodes.hosts(found, NEEDS, unsettled) == (Host(FIRST, 1),)
    assert nodes.hosts(found, NEEDS, mine, {"0" * 40: 3}) == (Host(FIRST, 3),)
    assert nodes.hosts(found, NEEDS, mine, {"10.0.0.1": 5}) == (Host(FIRST, 4), Host(SECOND, 1))
    assert nodes.by_address(found, NEEDS) == {"10.0.0.1": 6}
    assert not nodes.lacking(found, NEEDS, 6) and nodes.lacking(found, NEEDS, 7)


def test_the_autoscaler_is_asked_only_while_the_cluster_is_too_small(asked: list[Any]) -> None:
    cluster = FakeCluster(1)
    source = NodeSource(cluster, NEEDS, changing(least=2), dict)
    assert source.serve() == (Host(FIRST, 1),) and source.serve() is None
    assert asked == [[NEEDS, NEEDS]] and "no room for 2 workers (min_workers)" in source.written()[0]
    cluster.alive["1" * 40] = 1.0
    source._next_s = 0.0
    assert source.serve() == (Host(FIRST, 1), Host(SECOND, 1)) and asked[1:] == [[]]
    source.close()
    assert len(asked) == 2 and source.numbers[SECOND] == "1" * 40


def test_a_discovery_that_fails_changes_nothing(asked: list[Any]) -> None:
    def fails() -> dict[str, int]:
        raise OSError("no network")

    for of_users, why in (
        (fails, "no network"),
        (lambda: None, "'NoneType' object is not iterable"),
        (lambda: sys.exit(3), "find_available_hosts_and_slots() has raised SystemExit: 3"),
    ):
        source = discovering(of_users)
        assert answered(source) is None and source.problem == f"the discovery does not answer: {why}"


def test_a_discovery_that_takes_long_holds_nobody_up(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    source = discovering(lambda: may_end.wait(20.0) and {FIRST.partition("/")[0]: 1})
    start_s = time.monotonic()
    assert source.serve() is None and source.problem == "" and time.monotonic() - start_s < 5
    assert source.next_s() < time.monotonic() + 0.2
    monkeypatch.setattr(discovery, "_SILENT_S", 0.0)
    source._next_s = 0.0
    silent = "the discovery does not answer: find_available_hosts_and_slots() has not returned for 0 s"
    assert source.serve() is None and source.problem == silent
    may_end.set()
    assert answered(source) == (Host(FIRST, 1),) and source.problem == ""


def test_a_discovery_without_a_thread_is_asked_again(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    source = discovering(lambda: {"10.0.0.1": 1})
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", fails)
        assert source.serve() is None and source.problem == "the discovery does not answer: can't start new thread"
    assert answered(source) == (Host(FIRST, 1),)


def test_a_discovery_that_outlives_its_job_is_waited_for(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[threading.Event] = []

    def find() -> dict[str, int]:
        calls.append(threading.Event())
        return {"10.0.0.1": len(calls)} if calls[-1].wait(20.0) else {}

    of_users = SimpleNamespace(find_available_hosts_and_slots=find)
    before, after = (NodeSource(FakeCluster(2), NEEDS, changing(1, of_users), dict) for _ in range(2))
    assert before.serve() is None and after.serve() is None and after.problem == ""
    monkeypatch.setattr(discovery, "_SILENT_S", 0.0)
    after._next_s = 0.0
    assert after.serve() is None and "has not returned for 0 s" in after.problem and len(calls) == 1
    monkeypatch.setattr(discovery, "_SILENT_S", 60.0)
    calls[0].set()
    for _ in range(1000):
        after._next_s = 0.0
        assert after.serve() is None  # the first answer is of the job before
        if len(calls) == 2:
            break
        time.sleep(0.01)
    calls[1].set()
    assert answered(after) == (Host(FIRST, 2),) and len(calls) == 2


def discovering(find: Callable[[], Any]) -> NodeSource:
    return NodeSource(FakeCluster(2), NEEDS, changing(1, SimpleNamespace(find_available_hosts_and_slots=find)), dict)


def answered(source: NodeSource) -> Any:
    """What it names once the user's discovery has ended."""
    deadline_s = time.monotonic() + 10.0
    while time.monotonic() < deadline_s:
        source._next_s = 0.0
        if (found := source.serve()) is not None:
            return found
        if source.problem and "has not returned" not in source.problem:
            return None
        time.sleep(0.01)
    raise AssertionError("no answer")


def test_a_worker_asks_when_its_node_is_known(asked: list[Any]) -> None:
    cluster = FakeCluster(2)
    crew = made(cluster)
    crew.begin(0, FIRST)
    actor = cluster.actors[0]
    assert actor.node == "0" * 40 and crew.mine() == {"0" * 40: Mine(1, False)}
    actor.answer("question", Question((3, 1), "why", ("10.0.0.1", 20000)))
    assert crew.events() == []
    actor.answer("facts", cluster.facts(actor))
    assert crew.events() == [Asks(0, (3, 1), "why")] and crew.events() == []
    assert len(actor.calls["question"]) == 2 and crew.mine() == {"0" * 40: Mine(1, False)}
    crew._hired[0].runs_s -= 10
    assert crew.mine() == {"0" * 40: Mine(1)}


def test_each_epoch_is_a_placement(asked: list[Any]) -> None:
    cluster = FakeCluster(2, 2)
    crew = begun(cluster, FIRST, FIRST, SECOND)
    for rank in range(3):
        crew.tell(rank, seat(0, rank, 0, 1, 2))
    first = [actor.words("hear")[0].place for actor in cluster.actors]
    assert [each.placement.local_rank for each in first] == [0, 1, 2]
    assert {each.placement.job_key for each in first} == {first[0].placement.job_key}
    assert first[0].placement.job_key.endswith("/0") and first[0].placement.one_host
    assert first[1].environ[placing.VISIBLE] == "4,5,6" and first[2].environ["HOROVOD_HOSTNAME"] == "1" * 40
    crew.begin(3, FIRST)
    ask(cluster, cluster.actors[3])
    assert crew.events() == [Asks(3, (-1, 0))]
    for rank, worker in enumerate((1, 2, 3)):  # worker 0 is gone
        crew.tell(worker, seat(1, rank, 1, 2, 3))
    second = [actor.words("hear")[-1].place for actor in cluster.actors[1:]]
    assert [each.placement.local_rank for each in second] == [1, 2, 0]  # survivors keep theirs
    assert all(each.placement.keeps_local_rank for each in second)
    assert {each.placement.job_key for each in second} == {first[0].placement.job_key[:-1] + "1"}
    assert second[2].environ[placing.VISIBLE] == "7,5,6"  # its own at its local rank
    crew.tell(1, words(News(1, 5.0)))
    assert cluster.actors[1].words("hear")[-1].place is None


def test_ranks_of_several_machines_meet_at_rank_0(asked: list[Any]) -> None:
    cluster = FakeCluster(2, 2)
    crew = made(cluster)
    for number, host in enumerate((FIRST, SECOND)):
        crew.begin(number, host)
        cluster.actors[number].answer("facts", cluster.facts(cluster.actors[number])._replace(machine=host))
        cluster.actors[number].answer("question", Question((-1, 0), "", (f"10.0.0.{number}", 20000 + number)))
    crew.events()
    for rank, worker in enumerate((1, 0)):
        crew.tell(worker, seat(0, rank, 1, 0))
    points = [actor.words("hear")[0].place.placement.meeting_point for actor in cluster.actors]
    assert [(each.host, each.port) for each in points] == [("10.0.0.1", 20001)] * 2


def test_how_workers_end(asked: list[Any]) -> None:
    cluster = FakeCluster(5)
    crew = begun(cluster, *[FIRST] * 5)
    error = RayTaskError("x")
    cluster.actors[0].answer("run", Returned(7))
    cluster.actors[1].answer("run", Lost("PeerLostError: rank 2 is gone"))
    cluster.actors[2].answer("run", error)
    cluster.actors[3].answer("run", RayError("The actor died.\nIts process was killed."))
    cluster.actors[4].answer("run", RaySystemError("No module named 'theirs'"))
    found = crew.events()
    statuses = {each.rank: (each.status, each.how) for each in found if isinstance(each, Exited)}
    assert {rank: status for rank, (status, _) in statuses.items()} == {0: 0, 1: 256, 2: 256, 3: 9, 4: 256}
    assert statuses[3][1].endswith("has died: Its process was killed") and Bereft(1) in found
    assert all(actor.is_killed for actor in cluster.actors) and crew.awaited() == []
    assert crew._assignment.values == {0: 7} and crew._assignment.errors[2] is error
    assert "worker 4 has returned a result that cannot be unpickled here: No" in str(crew._assignment.errors[4])


def test_a_worker_that_ray_does_not_start_is_given_up(asked: list[Any]) -> None:
    cluster = FakeCluster(2)
    crew = made(cluster)
    crew.begin(0, FIRST)
    assert crew.events() == []
    crew._hired[0].due_s = 0.0
    (late,) = crew.events()
    assert (
        isinstance(late, Exited) and "has not been started by Ray within 60 s (placement_group_timeout_s)" in late.how
    )
    assert cluster.actors[0].is_killed and crew.awaited() == []


def test_workers_know_that_their_job_is_elastic(asked: list[Any]) -> None:
    cluster = FakeCluster(2)
    begun(cluster, FIRST, FIRST)
    one, other = (actor.words("run")[0] for actor in cluster.actors)
    assert one == other and one["HOROVOD_ELASTIC"] == "1" and len(one["HOROVOD_JOB_ID"]) == 32


def test_a_worker_whose_function_cannot_be_sent_is_ended(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(2)
    monkeypatch.setattr(Actor, "run", property(lambda _: None), raising=False)
    with pytest.raises(AttributeError):
        made(cluster).begin(0, FIRST)
    assert cluster.actors[0].is_killed


def test_a_node_that_has_died_takes_its_workers(asked: list[Any]) -> None:
    cluster = FakeCluster(2, 2)
    crew = begun(cluster, FIRST, SECOND, SECOND)
    cluster.alive.pop("1" * 40)
    cluster.dead.append("1" * 40)
    cluster.actors[2].answer("run", RayError("the node has died"))
    (lost,) = crew.events()
    assert isinstance(lost, HostLost) and sorted(lost.ranks) == [1, 2] and lost.host == SECOND
    assert list(crew.mine()) == ["0" * 40]


def test_a_node_that_dies_takes_no_result_along(asked: list[Any]) -> None:
    cluster = FakeCluster(2, 2)
    crew = begun(cluster, FIRST, SECOND, SECOND)
    cluster.dead.append("1" * 40)
    cluster.actors[1].answer("run", RayError("the node has died"))
    cluster.actors[2].answer("run", Returned(7))
    ended, lost = crew.events()
    assert isinstance(ended, Exited) and (ended.rank, ended.status) == (2, 0) and crew._assignment.values == {2: 7}
    assert isinstance(lost, HostLost) and lost.ranks == (1,)


def test_a_node_that_dies_takes_no_exception_along(asked: list[Any]) -> None:
    cluster = FakeCluster(2, 2)
    crew = begun(cluster, FIRST, SECOND, SECOND)
    cluster.dead.append("1" * 40)
    error = RayTaskError("the data end here")
    cluster.actors[1].answer("run", RayError("the node has died"))
    cluster.actors[2].answer("run", error)
    ended, lost = crew.events()
    assert isinstance(ended, Exited) and (ended.rank, ended.status) == (2, 256)
    assert crew._assignment.errors == {2: error}
    assert isinstance(lost, HostLost) and lost.ranks == (1,)


def test_a_discovery_does_not_end_nodes() -> None:
    for kind in (elastic.TestDiscovery, elastic_v2.TestDiscovery):
        assert kind(1, 2, 5.0, _graceful=True)._bounds == (1, 2)
        with pytest.raises(NotImplementedError, match="TestDiscovery: _graceful=False asks it to end nodes"):
            kind(1, 2, 5.0, _graceful=False)


def test_messages_name_arguments() -> None:
    text = "the job was reset 2 times, which is the limit (--reset-limit): x, fewer than the 2 of --min-np, or of -np."
    assert in_names_of_ray(text) == (
        "the job was reset 2 times, which is the limit (reset_limit): x, fewer than the 2 of min_workers, or of "
        "min_workers."
    )


def test_the_deprecated_executor() -> None:
    with pytest.warns(DeprecationWarning, match="min_np is deprecated. Use min_num_proc"):
        settings = ElasticRayExecutor.create_settings(max_num_proc=4, min_np=2, verbose=0)
    with pytest.warns(DeprecationWarning, match="ElasticRayExecutor is deprecated") as caught:
        executor = ElasticRayExecutor(settings, cpus_per_slot=2)
    assert caught[0].filename == __file__
    assert executor._executor._changing == Changing(2, 4, None, None, 600.0)
    with pytest.raises(TypeError, match="colour is not a setting of it"):
        ElasticRayExecutor.create_settings(colour=1)
    with pytest.raises(ValueError, match="settings must be what ElasticRayExecutor.create_settings"):
        ElasticRayExecutor(SETTINGS)  # type: ignore[arg-type]
