"""What a user asks of `RayExecutor`, checked. Pure."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError, UnsupportedError

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
    """

    timeout_s: float = 30
    placement_group_timeout_s: float = 100
    nics: Any = None
    verbose: int = 1
    elastic: bool = False

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


def wanted(
    num_workers: Optional[int],
    num_hosts: Optional[int],
    num_workers_per_host: int,
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


def refuse_elastic(min_workers: Optional[int], num_workers: Optional[int], **others: object) -> None:
    """Refuses arguments of elastic jobs, which are not in this version.

    Args:
        min_workers, num_workers, others: the arguments of that name; None: not given.

    Raises:
        InvalidArgumentError: they contradict one another.
        UnsupportedError: they ask for an elastic job.
    """
    if min_workers is None:
        for name in _OF_ELASTIC:
            if others.get(name) is not None:
                raise InvalidArgumentError(
                    f"{EXECUTOR}: {name} is for elastic jobs, which have min_workers. Received: "
                    f"{name}={others[name]!r} without min_workers. Leave it out."
                )
        return
    _count("min_workers", min_workers)
    if num_workers is not None:
        raise InvalidArgumentError(
            f"{EXECUTOR}: min_workers and num_workers exclude each other. Received: min_workers={min_workers!r} and "
            f"num_workers={num_workers!r}. Give num_workers for a job of fixed size."
        )
    raise UnsupportedError(
        f"{EXECUTOR}: min_workers asks for an elastic job, and those are not in this version: workers on Ray cannot "
        "come and go. Remedy: give num_workers, and load a checkpoint when the job is started again; or start an "
        "elastic job with horovodrun --host-discovery-script."
    )


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


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise InvalidArgumentError(f"{EXECUTOR}: {name} must be an integer, 1 or more. Received: {value!r}.")
    return int(value)
