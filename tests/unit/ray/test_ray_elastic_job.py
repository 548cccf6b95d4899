"""A whole elastic job on Ray without a cluster: actors that ask, are placed, return, raise and die as a test says."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Optional

import pytest
from fake_cluster import PENDING, Actor, FakeCluster, RayError, RayTaskError

from horovod.ray import arguments
from horovod.ray.arguments import Changing
from horovod.ray.changing.job import ElasticWorkers
from horovod.ray.changing.roster import Question
from horovod.ray.changing.worker import Returned
from horovod.ray.crew import Call, Plan

Behaviour = Callable[[Actor, int, int], Any]


class Living(FakeCluster):
    """Actors answer by themselves.

    Args:
        cpus: of each node.
        behaviour: called with an actor, its rank and its epoch: how its function ends, QUESTION to ask for the next
            place, or PENDING.
    """

    def __init__(self, *cpus: float, behaviour: Behaviour) -> None:
        super().__init__(*cpus)
        self._behaviour = behaviour

    def wait(self, references: Any, num_returns: int, timeout: Optional[float]) -> Any:
        for actor in self.actors:
            if not actor.is_killed:
                self._live(actor)
            elif actor.calls["run"][-1][1].value is PENDING:
                actor.answer("run", RayError("The actor was killed."))
        return super().wait(references, num_returns, timeout)

    def _live(self, actor: Actor) -> None:
        if actor.calls["facts"][-1][1].value is PENDING:
            actor.answer("facts", self.facts(actor))
            actor.answer("question", Question((-1, 0), "", ("10.0.0.1", 20000)))
        places = [word.message["place"] for word in actor.words("hear") if "place" in word.message]
        if places and actor.calls["run"][-1][1].value is PENDING:
            does = self._behaviour(actor, places[-1]["rank"], places[-1]["epoch"])
            asked = sum(isinstance(each.value, Question) for _, each in actor.calls["question"])
            if isinstance(does, Question):
                if asked == len(places):
                    actor.answer("question", does)
            elif does is not PENDING:
                actor.answer("run", does)


AGAIN = Question((0, 1), "", ("10.0.0.1", 20001))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Runs a job on a cluster to its end; no actor is left."""
    module = ModuleType("ray.util.scheduling_strategies")
    module.__dict__["NodeAffinitySchedulingStrategy"] = lambda node_id, soft: SimpleNamespace(node_id=node_id)
    for name in ("ray", "ray.util"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def ran(cluster: FakeCluster, least: int = 2, resets: Optional[int] = None, **plan: Any) -> list[Any]:
        monkeypatch.setattr("horovod.ray.cluster.ray_of", lambda caller: cluster)
        wanted = arguments.wanted(least, None, 1, {"CPU": 1.0}, True)
        changing = Changing(least, plan.get("most"), resets, (1, 1), plan.get("patience_s", 10.0))
        workers = ElasticWorkers(Plan(wanted, 60.0, (), {}, True, changing, 10.0))
        workers.start(None, (), {})
        try:
            return workers.run(Call(print))
        finally:
            assert all(actor.is_killed for actor in cluster.actors)

    return ran


def test_results_come_by_rank(run: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Living(2, 2, behaviour=lambda actor, rank, epoch: Returned((rank, actor.number)))
    assert run(cluster, most=3) == [(0, 0), (1, 1), (2, 2)]
    assert "RayExecutor: 3 workers on 2 nodes: node 00000000 at 10.0.0.1 has ranks 0-1" in capsys.readouterr().err


def test_a_rank_that_dies_is_survived(run: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    def behaviour(actor: Actor, rank: int, epoch: int) -> Any:
        if epoch == 0:
            return RayError("It was killed by the kernel.") if actor.number == 3 else AGAIN
        return Returned((rank, actor.number))

    found = run(Living(2, 2, behaviour=behaviour))
    assert found == [(0, 0), (1, 1)]  # the other one of the lost one's node leaves, too
    assert "rank 3 on 10.0.0.1/11111111 has died: It was killed by the kernel" in capsys.readouterr().err


def test_a_dead_node_is_survived(run: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    def behaviour(actor: Actor, rank: int, epoch: int) -> Any:
        if epoch == 0 and actor.node == "1" * 40:
            cluster.alive.pop(actor.node, None)
            cluster.dead.append(actor.node)
            return RayError("The node has died.")
        return AGAIN if epoch == 0 else Returned(rank)

    cluster = Living(2, 2, behaviour=behaviour)
    assert run(cluster) == [0, 1]
    assert "the node 10.0.0.1/11111111 has died" in capsys.readouterr().err


def test_a_new_node_is_let_in(run: Callable[..., list[Any]]) -> None:
    def behaviour(actor: Actor, rank: int, epoch: int) -> Any:
        cluster.alive["1" * 40] = 1
        if epoch == 1:
            return Returned(rank)
        announced = any("news" in word.message for word in actor.words("hear"))
        return AGAIN if announced else PENDING

    cluster = Living(2, behaviour=behaviour)
    assert run(cluster) == [0, 1, 2]


def test_the_users_exception_ends_all(run: Callable[..., list[Any]]) -> None:
    error = RayTaskError("the data end here")
    with pytest.raises(RayTaskError, match="the data end here"):
        run(Living(2, behaviour=lambda actor, rank, epoch: error if rank == 1 else PENDING))


def test_the_limit_of_resets(run: Callable[..., list[Any]]) -> None:
    with pytest.raises(RuntimeError, match=r"RayExecutor: the job was reset 0 times, which is the limit \(reset_limit"):
        run(Living(3, behaviour=lambda actor, rank, epoch: RayError("x") if rank == 2 else AGAIN), resets=0)


def test_too_few_workers(run: Callable[..., list[Any]]) -> None:
    with pytest.raises(RuntimeError, match=r"3 ranks are needed, but after 0.5 s \(elastic_timeout\) there are 2"):
        run(Living(2, behaviour=lambda actor, rank, epoch: PENDING), least=3, patience_s=0.5)


def test_a_placement_group_is_refused(run: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Living(2, behaviour=lambda actor, rank, epoch: PENDING)
    monkeypatch.setattr(FakeCluster, "util", SimpleNamespace(get_current_placement_group=lambda: "a group"))
    with pytest.raises(NotImplementedError, match="is in a placement group.* use_current_placement_group=False"):
        run(cluster)
