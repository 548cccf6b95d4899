"""A module `ray` with nodes and actors that do as a test says; no cluster, no process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Optional

from horovod.ray.placing import Facts

PENDING = object()


class RayError(Exception):
    """Of Ray's own."""


class RaySystemError(RayError):
    """Of what cannot be unpickled."""


class RayTaskError(RayError):
    """Of a function."""


@dataclass(eq=False)
class Reference:
    """What comes of a call; an exception is raised by `get`."""

    value: Any = PENDING


class Method:
    """Of an actor: notes its calls."""

    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def options(self, concurrency_group: str) -> Method:
        assert concurrency_group in self._actor.groups
        return self

    def remote(self, *words: Any) -> Reference:
        reference = Reference()
        self._actor.calls.setdefault(self._name, []).append((words, reference))
        return reference


@dataclass(eq=False)
class Actor:
    """An actor of a class that is not called."""

    number: int
    node: str
    groups: Sequence[str]
    calls: dict[str, list[tuple[Any, Reference]]] = field(default_factory=dict)
    is_killed: bool = False

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def answer(self, name: str, value: Any) -> None:
        """To the last call of this method."""
        self.calls[name][-1][1].value = value

    def words(self, name: str) -> list[Any]:
        """The arguments of all calls of this method."""
        return [words[0] for words, _ in self.calls.get(name, [])]


class FakeCluster:
    """See the head of the file; all nodes are of one machine.

    Args:
        cpus: of each node.
    """

    exceptions = SimpleNamespace(RayTaskError=RayTaskError, RayError=RayError, RaySystemError=RaySystemError)
    util = SimpleNamespace(get_current_placement_group=lambda: None)
    __version__ = "2.60.0"

    def __init__(self, *cpus: float) -> None:
        self.alive = {f"{index}" * 40: amount for index, amount in enumerate(cpus)}
        self.dead: list[str] = []
        self.actors: list[Actor] = []

    def nodes(self) -> list[dict[str, Any]]:
        common = {"NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "h"}
        living = [{"NodeID": n, "Alive": True, "Resources": {"CPU": cpus}, **common} for n, cpus in self.alive.items()]
        return living + [{"NodeID": n, "Alive": False, "Resources": {}, **common} for n in self.dead]

    def remote(self, concurrency_groups: dict[str, int], **_: Any) -> Any:
        def made(kind: type) -> Any:
            def options(scheduling_strategy: Any) -> Any:
                def remote(number: int, nics: Sequence[str]) -> Actor:
                    self.actors.append(Actor(number, scheduling_strategy.node_id, tuple(concurrency_groups)))
                    return self.actors[-1]

                return SimpleNamespace(remote=remote)

            return SimpleNamespace(options=options)

        return made

    def wait(
        self, references: Sequence[Reference], num_returns: int, timeout: Optional[float]
    ) -> tuple[list[Reference], list[Reference]]:
        done = [each for each in references if each.value is not PENDING]
        return done, [each for each in references if each not in done]

    def get(self, reference: Reference) -> Any:
        if isinstance(reference.value, Exception):
            raise reference.value
        return reference.value

    def kill(self, actor: Actor, no_restart: bool) -> None:
        assert no_restart
        actor.is_killed = True

    def facts(self, actor: Actor, gpu: str = "") -> Facts:
        """What this actor says of itself."""
        return Facts("m", actor.node, "10.0.0.1", 100 + actor.number, (gpu,) if gpu else ())
