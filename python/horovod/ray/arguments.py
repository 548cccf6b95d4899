"""What a user asks of `RayExecutor`, checked. Pure."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError
from horovod.runner.elastic.blacklist import check_cooldown

EXECUTOR: Final = "RayExecutor"
_OF_ELASTIC: Final = ("max_workers", "reset_limit", "cooldown_range")


@dataclass
class MiniSettings:
    """What `RayExecutor.create_settings` returns.

    Attributes:
        timeout_s: that `hvd.init()` has on the workers.
        placement_group_timeout_s: that Ray has to reserve what the workers need, and again to start them.
        nics: network interfaces for traffic between nodes.
        verbose: 0 says nothing, 1 where the workers are.
        elastic: the workers may come and go.
        discovery: with `override_discovery=False`: says which nodes an elastic job may use.
    """

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Any = None
    verbose: int = 1
    elastic: bool = False
    discovery: Any = None

    def __post_init__(self) -> None:
        for name in ("timeout_s", "placement_group_timeout_s"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 < value < math.inf:
                raise InvalidArgumentError(
                    f"{EXECUTOR}.create_settings: {name} must be a number of seconds above 0. Received: {value!r}."
                )


class Wanted(NamedTuple):
    """The workers of a job.

    Attributes:
        bundles: how many reservations, each on one node.
        per_bundle: workers in each of them.
        resources: of one worker, as Ray counts them.
        strategy: where the bundles lie, in Ray's word.
        takes_current: the workers go into the placement group that this process is in, if it is in one.
    """

    bundles: int
    per_bundle: int
    resources: Mapping[str, float]
    strategy: str
    takes_current: bool

    @property
    def workers(self) -> int:
        """The number of ranks."""
        return self.bundles * self.per_bundle

    def bundle(self) -> dict[str, float]:
        """What each reservation holds."""
        return {name: amount * self.per_bundle for name, amount in self.resources.items()}


class Changing(NamedTuple):
    """How an elastic job may change.

    Attributes:
        least: ranks to begin with, and to go on with.
        most: None: as many as there is room for.
        resets: epochs after the first; None: any number.
        cooldown: bounds, in seconds, of the time for which a node is given up after a failure; None: for good.
        patience_s: to wait for enough ranks.
        discovery: of the user's, which says what nodes may be used; None: all.
    """

    least: int
    most: Optional[int]
    resets: Optional[int]
    cooldown: Optional[tuple[int, int]]
    patience_s: float
    discovery: Optional[Any] = None


def wanted(
    num_workers: Optional[int],
    num_hosts: Optional[int],
    num_workers_per_host: Optional[int],
    resources: Mapping[str, float],
    takes_current: bool,
) -> Wanted:
    """The workers that these arguments ask for.

    Raises:
        InvalidArgumentError: none, or in both ways.
    """
    if num_workers is not None and num_hosts is not None:
        raise InvalidArgumentError(
            f"{EXECUTOR}: num_workers and num_hosts exclude each other. Received: num_workers={num_workers!r} and "
            f"num_hosts={num_hosts!r}. Give num_workers, or num_hosts with num_workers_per_host."
        )
    if num_workers is not None:
        if num_workers_per_host not in (None, 1):
            warnings.warn(
                f"{EXECUTOR}: num_workers_per_host has no effect without num_hosts. Received: num_workers_per_host="
                f"{num_workers_per_host!r}. Leave it out, or give num_hosts for a job of fixed size.",
                stacklevel=3,
            )
        return Wanted(_count("num_workers", num_workers), 1, resources, "PACK", takes_current)
    if num_hosts is None:
        raise InvalidArgumentError(
            f"{EXECUTOR}: the number of workers is missing. Give num_workers, or num_hosts with num_workers_per_host."
        )
    per_host = _count("num_workers_per_host", num_workers_per_host)
    return Wanted(_count("num_hosts", num_hosts), per_host, resources, "STRICT_SPREAD", False)


def resources_of(cpus_per_worker: float, use_gpu: bool, gpus_per_worker: Optional[int]) -> dict[str, float]:
    """What one worker needs, as Ray counts it.

    Raises:
        InvalidArgumentError: there is no such number, or a worker would need nothing at all.
    """
    if gpus_per_worker is not None:
        if not use_gpu:
            raise InvalidArgumentError(
                f"{EXECUTOR}: gpus_per_worker is {gpus_per_worker!r}, but use_gpu is not set. Set use_gpu=True, or "
                "leave gpus_per_worker out."
            )
        _count("gpus_per_worker", gpus_per_worker)
    if not _is_number(cpus_per_worker) or not 0 <= cpus_per_worker < math.inf:
        raise InvalidArgumentError(
            f"{EXECUTOR}: cpus_per_worker must be a number, 0 or more. Received: {cpus_per_worker!r}."
        )
    found = {"CPU": float(cpus_per_worker), "GPU": float(gpus_per_worker or 1) if use_gpu else 0.0}
    found = {name: amount for name, amount in found.items() if amount}
    if not found:
        raise InvalidArgumentError(
            f"{EXECUTOR}: cpus_per_worker=0 without GPUs asks for nothing that Ray could reserve. Give a worker a part "
            "of a CPU, such as 0.1, or set use_gpu=True."
        )
    return found


def changing(
    min_workers: Optional[int],
    num_workers: Optional[int],
    num_hosts: Optional[int],
    elastic_timeout: float,
    discovery: Optional[Any],
    **others: Any,
) -> Optional[Changing]:
    """How the job may change; None: it does not.

    Args:
        min_workers, num_workers, num_hosts, elastic_timeout: the arguments of that name; None: not given.
        discovery: that counts instead of all nodes.
        others: max_workers, reset_limit and cooldown_range.

    Raises:
        InvalidArgumentError: they contradict one another.
    """
    if min_workers is None:
        for name in _OF_ELASTIC:
            if others.get(name) is not None:
                raise InvalidArgumentError(
                    f"{EXECUTOR}: {name} is for elastic jobs, which have min_workers. Received: "
                    f"{name}={others[name]!r} without min_workers. Leave it out."
                )
        return None
    least = _count("min_workers", min_workers)
    for name, value in (("num_workers", num_workers), ("num_hosts", num_hosts)):
        if value is not None:
            raise InvalidArgumentError(
                f"{EXECUTOR}: min_workers and {name} exclude each other. Received: min_workers={min_workers!r} and "
                f"{name}={value!r}. Give {name} for a job of fixed size."
            )
    most, resets = others.get("max_workers"), others.get("reset_limit")
    if most is not None and _count("max_workers", most) < least:
        raise InvalidArgumentError(
            f"{EXECUTOR}: max_workers must be at least min_workers. Received: min_workers={least} and "
            f"max_workers={most!r}."
        )
    if resets is not None:
        _count("reset_limit", resets, least=0)
    if not _is_number(elastic_timeout) or not 0 < elastic_timeout < math.inf:
        raise InvalidArgumentError(
            f"{EXECUTOR}: elastic_timeout must be a number of seconds above 0. Received: {elastic_timeout!r}."
        )
    return Changing(least, most, resets, _cooldown(others.get("cooldown_range")), float(elastic_timeout), discovery)


def _cooldown(given: Any) -> Optional[tuple[int, int]]:
    if given is None:
        return None
    name = f"{EXECUTOR}: cooldown_range"
    try:
        least, most = (_count("each number of cooldown_range", each) for each in given)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name} must be two numbers of seconds, as (10, 100). Received: {given!r}."
        ) from error
    if least > most:
        raise InvalidArgumentError(f"{name} must not begin with the greater number. Received: {given!r}.")
    check_cooldown((least, most), name)
    return least, most


def discovery_of(settings: MiniSettings) -> Any:
    """What says which nodes may be used.

    Raises:
        InvalidArgumentError: there is nothing of that kind.
    """
    found = settings.discovery
    if not callable(getattr(found, "find_available_hosts_and_slots", None)):
        raise InvalidArgumentError(
            f"{EXECUTOR}: override_discovery=False needs settings.discovery, an object with "
            f"find_available_hosts_and_slots(), such as horovod.ray.elastic.RayHostDiscovery(). Received: {found!r}."
        )
    return found


def variables(given: object) -> dict[str, str]:
    """`extra_env_vars`, as texts.

    Raises:
        InvalidArgumentError: it is not a dictionary.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgumentError(
            f"{EXECUTOR}.start: extra_env_vars must be a dictionary of variables, as {{'NAME': 'value'}}. Received: "
            f"{given!r}."
        )
    return {str(name): str(value) for name, value in given.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _count(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise InvalidArgumentError(f"{EXECUTOR}: {name} must be an integer, {least} or more. Received: {value!r}.")
    return int(value)
