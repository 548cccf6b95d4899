"""`RayExecutor`: functions on ranks that are actors of a Ray cluster. Design 0035."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.ray import arguments, cluster
from horovod.ray.arguments import EXECUTOR, MiniSettings
from horovod.ray.calling_back import listening
from horovod.ray.changing.job import ElasticWorkers
from horovod.ray.crew import Call, Crew, Plan, Workers
from horovod.ray.crew_there import CrewThere
from horovod.ray.environment import rank_environment

__all__ = ["MiniSettings", "RayExecutor"]


class RayExecutor:
    """A job of Horovod on a Ray cluster: each rank is an actor that lives from `start` to `shutdown`.

    Args:
        settings: of `create_settings`.
        num_workers: ranks, on as few nodes as possible; where this process is in a placement group, in that one.
        num_hosts: nodes, each with the same number of ranks, instead of `num_workers`.
        num_workers_per_host: how many; no effect without `num_hosts`.
        cpus_per_worker: that Ray reserves for each rank.
        use_gpu: each rank gets GPUs.
        gpus_per_worker: how many; 1 if it is not given.
        use_current_placement_group: False: `num_workers` get a placement group of their own in any case.
        min_workers: instead of `num_workers`: each call is an elastic job, whose ranks come and go with the nodes, but
            never fewer.
        max_workers: ranks at most; as many as there is room for if it is not given.
        reset_limit: changes at most; any number if it is not given.
        cooldown_range: least and greatest number of seconds for which a node is given up after a failure; for good if
            it is not given.
        elastic_timeout: seconds to wait for enough ranks.
        override_discovery: all nodes of the cluster count; False: those that `settings.discovery` finds.

    Raises:
        InvalidArgumentError: (also ValueError) they contradict one another.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        ssh_str: Optional[str] = None,
        placement_group_timeout_s: float = 100,
        nics: Any = None,
    ) -> MiniSettings:
        """Settings of a job.

        Args:
            timeout_s: seconds for `hvd.init()` on the ranks.
            ssh_identity_file, ssh_str: deprecated and without an effect: nothing here goes over ssh.
            placement_group_timeout_s: seconds that Ray has to reserve what the ranks need, and again to start them.
            nics: names of the network interfaces for traffic between nodes.

        Raises:
            InvalidArgumentError: (also ValueError) one of them is not as it should be.
        """
        for name, given in (("ssh_identity_file", ssh_identity_file), ("ssh_str", ssh_str)):
            if given is not None:
                warnings.warn(
                    f"{EXECUTOR}.create_settings: {name} is deprecated and has no effect, because nothing here goes "
                    "over ssh. Leave it out.",
                    DeprecationWarning,
                    stacklevel=2,
                )
        return MiniSettings(timeout_s, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: MiniSettings,
        num_workers: Optional[int] = None,
        num_hosts: Optional[int] = None,
        num_workers_per_host: Optional[int] = 1,
        cpus_per_worker: int = 1,
        use_gpu: bool = False,
        gpus_per_worker: Optional[int] = None,
        use_current_placement_group: bool = True,
        min_workers: Optional[int] = None,
        max_workers: Optional[int] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[tuple[int, int]] = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        if not isinstance(settings, MiniSettings):
            raise InvalidArgumentError(
                f"{EXECUTOR}: settings must be what {EXECUTOR}.create_settings(...) returns. Received: {settings!r}."
            )
        resources = arguments.resources_of(cpus_per_worker, use_gpu, gpus_per_worker)
        of_elastic = {"max_workers": max_workers, "reset_limit": reset_limit, "cooldown_range": cooldown_range}
        discovery = None if override_discovery or min_workers is None else arguments.discovery_of(settings)
        self._changing = arguments.changing(
            min_workers, num_workers, num_hosts, elastic_timeout, discovery, **of_elastic
        )
        takes_current = bool(use_current_placement_group)
        number = num_workers if self._changing is None else self._changing.least
        self._wanted = arguments.wanted(number, num_hosts, num_workers_per_host, resources, takes_current)
        self._settings = settings
        self._crew: Optional[Workers] = None

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Mapping[str, Any]] = None,
        extra_env_vars: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Starts the ranks; those of an elastic job start and end with each call. What this has made is gone when it
        raises.

        Args:
            executable_cls: of which each rank makes an object, for `execute`; it may call `hvd.init()`.
            executable_args, executable_kwargs: its arguments.
            extra_env_vars: variables that each rank sets before.

        Raises:
            TimeoutError: Ray has no room for the ranks within `placement_group_timeout_s`; says what there is.
            ModuleNotFoundError: Ray is not installed.
            UnsupportedError: (also NotImplementedError) Ray is too old.
            RuntimeError: this process is not connected with a cluster, the executor has been started already, or a rank
                has died.
        """
        if self._crew is not None:
            raise RuntimeError(f"{EXECUTOR}.start: it has been started already. Call shutdown() first.")
        extra = arguments.variables(extra_env_vars)
        ray = cluster.ray_of(f"{EXECUTOR}.start")
        plan = self._plan(extra)
        kind = Crew if self._changing is None else ElasticWorkers
        crew: Workers = CrewThere(kind, plan) if ray.util.client.ray.is_connected() else kind(plan)
        crew.start(executable_cls, executable_args or (), executable_kwargs or {})
        self._crew = crew

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
        callbacks: Optional[Sequence[Callable[[Any], object]]] = None,
    ) -> list[Any]:
        """Calls `fn(*args, **kwargs)` on every rank. If it fails on one of them, all ranks are ended.

        Args:
            fn: the function; it travels by Ray's pickle.
            args, kwargs: its arguments.
            callbacks: each is called here with what rank 0 hands to `horovod.ray.ray_logger.log`.

        Returns:
            What it returns, by rank.

        Raises:
            RuntimeError: the executor is not started, or a rank has died. What `fn` raises comes as Ray raises it: an
                exception of the same class, with rank, node and traceback.
        """
        return self._called(Call(fn, args or (), kwargs or {}), callbacks)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> list[Any]:
        """The same, but returns at once: references for `ray.get`, by rank. A failure ends no rank, and fails what
        others do together with that one.

        Raises:
            RuntimeError: the executor is not started.
            UnsupportedError: (also NotImplementedError) the job is elastic.
        """
        references: list[Any] = self._started("run_remote").begin(Call(fn, args or (), kwargs or {}))
        return references

    def execute(
        self, fn: Callable[[Any], Any], callbacks: Optional[Sequence[Callable[[Any], object]]] = None
    ) -> list[Any]:
        """As `run`, for a function of the object that each rank has made (`start`), or of None."""
        return self._called(Call(fn, is_for_object=True), callbacks)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """The same on rank 0 alone; a failure ends no rank.

        Raises:
            RuntimeError: the executor is not started, or the rank has died.
            UnsupportedError: (also NotImplementedError) the job is elastic.
        """
        return self._started("execute_single").run_on_first(Call(fn, is_for_object=True))

    def shutdown(self) -> None:
        """Ends the ranks and gives back what Ray has reserved for them. May be called twice."""
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.shutdown()

    def _plan(self, extra: Mapping[str, str]) -> Plan:
        settings = self._settings
        caller = f"{EXECUTOR}.create_settings"
        nics, environ = rank_environment(caller, settings.timeout_s, settings.nics, extra)
        patience_s = float(settings.placement_group_timeout_s)
        is_announced, answer_s = settings.verbose > 0, float(settings.timeout_s)
        return Plan(self._wanted, patience_s, nics, environ, is_announced, self._changing, answer_s)

    def _started(self, method: str) -> Workers:
        if self._crew is None:
            raise RuntimeError(
                f"{EXECUTOR}.{method}: there are no ranks, because start() has not been called, or shutdown() or a "
                "failure has ended them. Call start() first."
            )
        return self._crew

    def _called(self, call: Call, callbacks: Optional[Sequence[Callable[[Any], object]]]) -> list[Any]:
        crew = self._started("execute" if call.is_for_object else "run")
        try:
            with listening(callbacks or ()) as calling:
                return crew.run(call, calling)
        except BaseException:
            self.shutdown()
            raise
