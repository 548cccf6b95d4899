"""The nodes of the Ray cluster, asked again and again, as what names the hosts of an elastic job. Used by `job`."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Mapping
from typing import Any, Callable, Final, Optional

from horovod.ray.arguments import Changing
from horovod.ray.changing import nodes
from horovod.ray.changing.discovery import Discovery
from horovod.ray.changing.nodes import Mine, Node
from horovod.runner.elastic.host_source import HostSource
from horovod.runner.machines.hosts import Host

_LOOK_S: Final = 1.0
_GLANCE_S: Final = 0.1  # while a discovery runs
_ASK_AGAIN_S: Final = 30.0  # a cluster has one such request: another program may have replaced this one


def living_nodes(ray: Any) -> list[Node]:
    """The nodes that live, with what is free on each where Ray says it: no public function of Ray does."""
    free = None
    with contextlib.suppress(Exception):  # a later version lacks it, or this process is a client of the cluster
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
    return nodes.alive(ray.nodes(), free)


class NodeSource(HostSource):
    """See the head of the file. While the cluster is too small for the least workers, the autoscaler is asked for them.

    Args:
        ray: the module.
        needs: resources of a worker.
        changing: bounds, and what says which nodes may be used.
        mine: the workers of the job, by the number of their node.

    Attributes:
        numbers: Ray's number of the node, by the name of the host; also of nodes that were there before.
    """

    name = "the Ray cluster"

    def __init__(
        self, ray: Any, needs: Mapping[str, float], changing: Changing, mine: Callable[[], Mapping[str, Mine]]
    ) -> None:
        self._ray = ray
        self._needs = needs
        self._least = changing.least
        self._discovery = None if changing.discovery is None else Discovery(changing.discovery)
        self._mine = mine
        self._next_s = time.monotonic()
        self._asks = False
        self._again_s = 0.0
        self._written: list[str] = []
        self.numbers: dict[str, str] = {}

    def wake(self, poller: select.epoll) -> None:
        """It has no descriptor: it looks again and again."""

    def next_s(self) -> Optional[float]:
        return self._next_s

    def serve(self) -> Optional[tuple[Host, ...]]:
        if time.monotonic() < self._next_s:
            return None
        self._next_s = time.monotonic() + _LOOK_S
        self.problem = ""
        asked, allowed = self.name, None
        try:
            living = living_nodes(self._ray)
            if self._discovery is not None:
                asked = "the discovery"
                allowed = self._discovery.poll()
                if allowed is None:
                    self._next_s = time.monotonic() + _GLANCE_S
                    return None
        except Exception as error:  # of the user's discovery, or Ray's own
            self.problem = f"{asked} does not answer: {error}"
            self.kind = type(error).__name__
            return None
        self.numbers.update((node.name, node.number) for node in living)
        self._ask(nodes.lacking(living, self._needs, self._least))
        return nodes.hosts(living, self._needs, self._mine(), allowed)

    def written(self) -> list[str]:
        found, self._written = self._written, []
        return found

    def close(self) -> None:
        self._ask(False)

    def _ask(self, wanted: bool) -> None:
        is_news, self._asks = wanted != self._asks, wanted
        if not is_news and not (wanted and time.monotonic() >= self._again_s):
            return
        self._again_s = time.monotonic() + _ASK_AGAIN_S
        with contextlib.suppress(Exception):  # Ray itself may be gone
            from ray.autoscaler.sdk import request_resources

            request_resources(bundles=[dict(self._needs)] * self._least if wanted else [])
        if wanted and is_news:
            self._written.append(
                f"the cluster has no room for {self._least} workers (min_workers). Its autoscaler, if there is one, "
                "was asked for more nodes."
            )
