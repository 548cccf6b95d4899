"""Flux: the resources of the instance that `flux alloc` or `flux batch` has made, as `flux resource R` prints them.
Pure.

An entry of `choose`. Facts: Flux RFC 20 (resource sets, version 1), RFC 22 (sets of numbers), RFC 29 (lists of hosts).
"""

from __future__ import annotations

import json
from typing import Any, Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.allocations import host_lists
from horovod.runner.allocations.base import Allocation, Environment, Scheduler, Sources, checked

_COMMAND: Final = ("flux", "resource", "R")
_WHERE: Final = "The output of flux resource R"


def present(environ: Environment) -> bool:
    """This process runs in an instance inside of another one, not as a task of a job: a task has its own host only."""
    return all(name in environ for name in ("FLUX_URI", "FLUX_ENCLOSING_ID")) and "FLUX_TASK_RANK" not in environ


def read(environ: Environment, sources: Sources) -> Allocation:
    """The instance's hosts, with a slot per GPU, or per core where no host has a GPU.

    Raises:
        InvalidArgumentError: flux does not answer, or with something else.
    """
    slots = from_resources(sources.answer(_COMMAND))
    return Allocation("Flux", environ["FLUX_ENCLOSING_ID"], checked(slots, _WHERE), "flux resource R")


def from_resources(text: str) -> dict[str, int]:
    """Slots by host, from a resource set.

    Raises:
        InvalidArgumentError: it is none.
    """
    try:
        execution = json.loads(text)["execution"]
        names = [name for part in execution["nodelist"] for name in host_lists.expand(part, _WHERE)]
        found: dict[int, tuple[int, int]] = {}
        for entry in execution["R_lite"]:
            cores, gpus = (len(_ids(entry["children"].get(kind, ""))) for kind in ("core", "gpu"))
            found.update((int(rank), (cores, gpus)) for rank in _ids(entry["rank"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"{_WHERE} is not a resource set of version 1 of Flux RFC 20: {type(error).__name__}: {error}. Name the "
            "hosts yourself with -H."
        ) from error
    if len(names) != len(found):
        raise InvalidArgumentError(
            f"{_WHERE} names {len(names)} hosts, but has resources of {len(found)}; name the hosts yourself with -H."
        )
    gpu_counts = any(gpus for _, gpus in found.values())
    slots: dict[str, int] = {}
    for name, rank in zip(names, sorted(found)):
        cores, gpus = found[rank]
        slots[name] = slots.get(name, 0) + (gpus if gpu_counts else cores)
    return slots


def _ids(text: Any) -> list[str]:
    """The numbers of a set such as `0-3,7`; the ranks of R_lite and the ids of its children are such sets."""
    return host_lists.expand(f"[{text}]", _WHERE) if str(text) else []


SCHEDULER = Scheduler("Flux", present, read)
