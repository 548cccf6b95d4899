"""Names of elastic jobs on Ray that programs import: `ElasticRayExecutor`, deprecated in favour of `RayExecutor` with
`min_workers`, and what says which nodes a job may use.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.ray import arguments, cluster
from horovod.ray.arguments import MiniSettings
from horovod.ray.changing import nodes
from horovod.ray.changing.source import living_nodes
from horovod.ray.runner import RayExecutor

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayHostDiscovery", "TestDiscovery"]


@dataclass
class ElasticSettings(MiniSettings):
    """What `ElasticRayExecutor.create_settings` returns.

    Attributes:
        min_num_proc, max_num_proc, reset_limit, elastic_timeout, cooldown_range: see `RayExecutor`, whose
            `min_workers` and `max_workers` are the first two.
    """

    min_num_proc: int = 1
    max_num_proc: Optional[int] = None
    reset_limit: Optional[int] = None
    elastic_timeout: float = 600
    cooldown_range: Optional[tuple[int, int]] = None


class ElasticRayExecutor:
    """An elastic job on a Ray cluster. Deprecated: `RayExecutor(settings, min_workers=...)` does the same and more.

    Args:
        settings: of `create_settings`.
        use_gpu: each rank gets GPUs.
        cpus_per_slot, gpus_per_slot: `RayExecutor`'s `cpus_per_worker` and `gpus_per_worker`.
        env_vars: variables that each rank sets.
        override_discovery: all nodes of the cluster count; False: those that `settings.discovery` finds.

    Raises:
        InvalidArgumentError: (also ValueError) they contradict one another.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: Optional[int] = None,
        reset_limit: Optional[int] = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        nics: Any = None,
        min_np: Optional[int] = None,
        max_np: Optional[int] = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Settings of a job.

        Args:
            min_num_proc, max_num_proc, reset_limit, elastic_timeout, timeout_s, nics: see `RayExecutor`.
            ssh_identity_file: deprecated and without an effect.
            min_np, max_np: deprecated names of the first two.
            kwargs: verbose, cooldown_range, discovery.

        Raises:
            TypeError: there is no such setting.
        """
        if unknown := sorted(kwargs.keys() - {"verbose", "cooldown_range", "discovery"}):
            raise TypeError(
                f"ElasticRayExecutor.create_settings: {', '.join(unknown)} is not a setting of it. Leave it out."
            )
        checked = RayExecutor.create_settings(timeout_s, ssh_identity_file, nics=nics)
        for old, new, given in (("min_np", "min_num_proc", min_np), ("max_np", "max_num_proc", max_np)):
            if given is not None:
                _warn(f"ElasticRayExecutor.create_settings: {old} is deprecated. Use {new}.")
        return ElasticSettings(
            checked.timeout_s,
            nics=checked.nics,
            elastic=True,
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
            **kwargs,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: Optional[int] = None,
        env_vars: Optional[Mapping[str, str]] = None,
        override_discovery: bool = True,
    ) -> None:
        if not isinstance(settings, ElasticSettings):
            raise InvalidArgumentError(
                "ElasticRayExecutor: settings must be what ElasticRayExecutor.create_settings(...) returns. Received: "
                f"{settings!r}."
            )
        _warn("ElasticRayExecutor is deprecated. Use RayExecutor(settings, min_workers=...).")
        self._env_vars = env_vars
        self._executor = RayExecutor(
            settings,
            cpus_per_worker=cpus_per_slot,
            use_gpu=use_gpu,
            gpus_per_worker=gpus_per_slot,
            min_workers=settings.min_num_proc,
            max_workers=settings.max_num_proc,
            reset_limit=settings.reset_limit,
            cooldown_range=settings.cooldown_range,
            elastic_timeout=settings.elastic_timeout,
            override_discovery=override_discovery,
        )

    def start(self) -> None:
        """See `RayExecutor`."""
        self._executor.start(extra_env_vars=self._env_vars)

    def run(
        self, worker_fn: Callable[[], Any], callbacks: Optional[Sequence[Callable[[Any], object]]] = None
    ) -> list[Any]:
        """Calls a function on every rank, as `RayExecutor.run` does; what it returns, by rank.

        Raises:
            RuntimeError: the executor is not started, or the job cannot go on.
        """
        return self._executor.run(worker_fn, callbacks=callbacks)


class RayHostDiscovery:
    """The nodes of the cluster and the ranks that fit on each.

    Args:
        use_gpu: ranks need GPUs.
        cpus_per_slot, gpus_per_slot: that each of them needs.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self._needs = arguments.resources_of(cpus_per_slot, use_gpu, gpus_per_slot if use_gpu else None)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """The number of ranks, by the address of the node.

        Raises:
            RuntimeError: this process is not connected with a cluster.
        """
        ray = cluster.ray_of("RayHostDiscovery.find_available_hosts_and_slots")
        return nodes.by_address(living_nodes(ray), self._needs)


class TestDiscovery(RayHostDiscovery):
    """For tests of elastic programs: of the nodes, some at random, and others after a while.

    Args:
        min_hosts, max_hosts: number of nodes at a time.
        change_frequency_s: seconds until one is left out, or comes back.
        use_gpu, cpus_per_slot, gpus_per_slot: see `RayHostDiscovery`.
        verbose: says what it names.

    Raises:
        UnsupportedError: (also NotImplementedError) `_graceful=False` asks it to end nodes.
    """

    __test__ = False  # pytest: this is no test

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_slot: int = 1,
        gpus_per_slot: int = 1,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        if not _graceful:
            raise UnsupportedError(
                "TestDiscovery: _graceful=False asks it to end nodes of the cluster, and it only leaves them out of "
                "what it names. Leave it out, and end nodes yourself."
            )
        super().__init__(use_gpu, cpus_per_slot, gpus_per_slot)
        self._bounds = min_hosts, max_hosts
        self._period_s = change_frequency_s
        self._verbose = verbose
        self._named: list[str] = []
        self._next_s = 0.0

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """See `RayHostDiscovery`."""
        there = super().find_available_hosts_and_slots()
        least, most = self._bounds
        self._named = [host for host in self._named if host in there]
        others = [host for host in there if host not in self._named]
        while others and len(self._named) < least:
            self._named.append(others.pop(0))
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._period_s
            grows = bool(others) and len(self._named) < most and (len(self._named) <= least or random.random() < 0.5)
            if grows:
                self._named.append(random.choice(others))
            elif len(self._named) > least:
                self._named.pop(random.randrange(len(self._named)))
            if self._verbose:
                sys.stderr.write(f"TestDiscovery: {', '.join(self._named)}\n")
        return {host: there[host] for host in self._named}


def _warn(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=3)
