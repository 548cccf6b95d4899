"""The Ray cluster of this process: whether there is one, and what it has, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from horovod._core.errors import UnsupportedError
from horovod._core.frameworks import require
from horovod.ray.arguments import Wanted

_OLDEST: Final = (2, 9)
_OLDEST_TRAIN: Final = (2, 43)
_TESTED: Final = "2.60"
_SHOWN: Final = 8  # nodes in one message


def ray_of(caller: str) -> Any:
    """The module `ray`, connected with a cluster.

    Args:
        caller: for messages.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        UnsupportedError: it is too old.
        RuntimeError: it is not connected.
    """
    ray = require("ray", "Ray", caller)
    refuse_old(str(ray.__version__), caller)
    if not ray.is_initialized():
        raise RuntimeError(
            f"{caller}: this process is not connected with a Ray cluster. Call ray.init() first: ray.init() for one on "
            'this machine, ray.init(address="auto") on a node of one, ray.init("ray://HOST:10001") from elsewhere.'
        )
    return ray


def beside_this_process(ray: Any) -> dict[str, Any]:
    """Options of an actor that is to be lost with this process only: its node. For a Ray Client this is the node of its
    server, without which the client has no cluster."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)}


def require_train(caller: str) -> None:
    """Refuses to go on without a Ray whose Train is of the second generation.

    Args:
        caller: for messages.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        UnsupportedError: it is too old.
    """
    refuse_old(str(require("ray", "Ray", caller).__version__), caller, _OLDEST_TRAIN)


def refuse_old(version: str, caller: str, oldest: tuple[int, int] = _OLDEST) -> None:
    """Refuses versions of Ray that lack what is needed.

    Args:
        version: of Ray.
        caller: for messages.
        oldest: that has it.

    Raises:
        UnsupportedError: it is one.
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < oldest:
        raise UnsupportedError(
            f"{caller}: Ray {version} is too old; {'.'.join(map(str, oldest))} is the first that has what is needed, "
            f"and {_TESTED} is tested. Remedy: pip install -U ray"
        )


def too_few(wanted: Wanted, patience_s: float, nodes: Sequence[Mapping[str, Any]], free: Mapping[str, float]) -> str:
    """Why the workers do not start: what is wanted, what is there.

    Args:
        wanted: the workers.
        patience_s: how long Ray has been given.
        nodes: as `ray.nodes` lists them.
        free: as `ray.available_resources` counts it.
    """
    alive = [node for node in nodes if node.get("Alive")]
    listed = [f"{node['NodeManagerAddress']} ({_amounts(node['Resources'])})" for node in alive[:_SHOWN]]
    if len(alive) > _SHOWN:
        listed.append(f"and {len(alive) - _SHOWN} more")
    spread = " on as many nodes" if wanted.strategy == "STRICT_SPREAD" else ""
    total = {name: amount * wanted.bundles for name, amount in wanted.bundle().items()}
    return (
        f"Ray has not found room for the workers within {patience_s:g} s (placement_group_timeout_s). Wanted: "
        f"{wanted.bundles} x ({_amounts(wanted.bundle())}){spread}, {_amounts(total)} in all. There: {len(alive)} "
        f"node{'' if len(alive) == 1 else 's'}, {', '.join(listed) or 'none'}; free in all: {_amounts(free)}. Ask for "
        "fewer or smaller workers, end what holds the rest, add nodes, or give more time."
    )


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {resources[name]:g}" for name in ("CPU", "GPU") if resources.get(name)) or "no CPU"
