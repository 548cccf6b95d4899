"""How many ranks a job on Spark has, and whether the application has room for them at once. Pure.

A barrier stage starts all its tasks together; where it cannot, Spark itself waits ten minutes before it says so. An
elastic job begins with the tasks that can run, and Spark starts the others as soon as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Callable, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError

_CLUSTER_HERE: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_SETTLED_S: Final = 15.0  # an application whose slots are not more after that time will not have more
_ON: Final = ("true", "1")


class Numbers(NamedTuple):
    """Of ranks.

    Attributes:
        first: to begin with.
        most: so many tasks are given to Spark.
        least: to go on with.
        elastic: they may change.
    """

    first: int
    most: int
    least: int
    elastic: bool = False

    @staticmethod
    def fixed(ranks: int) -> Numbers:
        """Of a job whose ranks stay."""
        return Numbers(ranks, ranks, ranks)

    def settings(self) -> dict[str, Any]:
        """By their names."""
        bounds = {"min_num_proc": self.least, "max_num_proc": self.most} if self.elastic else {}
        return {"num_proc": self.first, **bounds}


class Asked(NamedTuple):
    """Numbers of ranks as the user of an elastic job has given them; None: not."""

    first: Optional[int] = None
    least: Optional[int] = None
    most: Optional[int] = None


def elastic_numbers(caller: str, asked: Asked, conf: Mapping[str, str], default_tasks: Callable[[], int]) -> Numbers:
    """Of an elastic job. What the user has not given follows from dynamic allocation, where that is on and has bounds.

    Args:
        caller: for messages.
        asked: by the user.
        conf: of the application.
        default_tasks: gives `spark.default.parallelism`, or what stands for it; called where the user has given no
            number to begin with.

    Raises:
        InvalidArgumentError: they contradict one another.
    """
    lower = upper = None
    if allocates_dynamically(conf):
        per_executor = max(1, _number(conf, "spark.executor.cores", 1) // max(1, _number(conf, "spark.task.cpus", 1)))
        if "spark.dynamicAllocation.minExecutors" in conf:
            lower = max(1, _number(conf, "spark.dynamicAllocation.minExecutors", 0) * per_executor)
        if "spark.dynamicAllocation.maxExecutors" in conf:
            upper = max(1, _number(conf, "spark.dynamicAllocation.maxExecutors", 1) * per_executor)
    least, most = (own if own is not None else ours for own, ours in ((asked.least, lower), (asked.most, upper)))
    first = asked.first
    if first is None:
        tasks = default_tasks()
        first = max(least or 1, min(tasks, tasks if most is None else most))
    least = min(first, lower or first) if asked.least is None else asked.least
    most = first if most is None else most
    if not least <= first <= most:
        whence = "" if asked.most is not None or upper is None else ", from spark.dynamicAllocation.maxExecutors"
        raise InvalidArgumentError(
            f"{caller}: num_proc is {first}, which must be from min_num_proc ({least}) to max_num_proc "
            f"({most}{whence}). Change one of them."
        )
    return Numbers(first, most, least, elastic=True)


def allocates_dynamically(conf: Mapping[str, str]) -> bool:
    """Executors come and go with the load."""
    return conf.get("spark.dynamicAllocation.enabled", "").lower() in _ON


def is_in_the_driver(master: str) -> bool:
    """There are no executors: the driver runs the tasks in threads of its own."""
    return master == "local" or master.startswith("local[")


def declared(master: str, conf: Mapping[str, str]) -> Optional[int]:
    """How many tasks the application can ever run at once, by its settings; None where they do not say."""
    per_task = max(1, _number(conf, "spark.task.cpus", 1))
    if here := _CLUSTER_HERE.fullmatch(master):
        executors, cores = map(int, here.groups())
        return executors * (cores // per_task)
    if master.startswith(("yarn", "k8s")) and "spark.executor.instances" in conf:
        cores = _number(conf, "spark.executor.cores", 1)
        return _number(conf, "spark.executor.instances", 0) * (cores // per_task)
    if "spark.cores.max" in conf:
        return _number(conf, "spark.cores.max", 0) // per_task
    return None


def refuse_dynamic_allocation(caller: str, master: str, conf: Mapping[str, str]) -> None:
    """Refuses what Spark refuses, too, but says what to do.

    Raises:
        InvalidArgumentError: executors come and go with the load.
    """
    if allocates_dynamically(conf) and not is_in_the_driver(master):
        raise InvalidArgumentError(
            f"{caller}: spark.dynamicAllocation.enabled is true, and Spark starts no barrier stage, which begins on "
            "all executors at once, while their number may change. Start the session with "
            "spark.dynamicAllocation.enabled=false and spark.executor.instances=N, or call horovod.spark.run_elastic."
        )


class SlotWatch:
    """Looks again and again whether there are slots enough, and decides when to give up.

    Args:
        caller: for messages.
        wanted: slots.
        master, conf: of the application.
        start_s: now.
        patience_s: the most to wait.
    """

    def __init__(
        self, caller: str, wanted: int, master: str, conf: Mapping[str, str], start_s: float, patience_s: float
    ) -> None:
        self._caller = caller
        self._wanted = wanted
        self._conf = conf
        self._most = declared(master, conf)
        self._is_final = is_in_the_driver(master)
        self._start_s = start_s
        self._patience_s = patience_s
        self._seen = -1
        self._grown_s = start_s

    def enough(self, slots: int, now_s: float) -> bool:
        """There are enough.

        Args:
            slots: that the application has.
            now_s: on the clock of `start_s`.

        Raises:
            InvalidArgumentError: there are too few, and there will not be more.
        """
        if slots >= self._wanted:
            return True
        if slots > self._seen:
            self._seen, self._grown_s = slots, now_s
        if now_s < self._until_s(slots):
            return False
        raise InvalidArgumentError(self._why(slots, now_s))

    def _until_s(self, slots: int) -> float:
        """When to give up."""
        if self._is_final or (self._most is not None and self._most < self._wanted):
            return self._start_s
        last_s = self._start_s + self._patience_s
        return min(last_s, self._grown_s + _SETTLED_S) if self._most is None and slots else last_s

    def _why(self, slots: int, now_s: float) -> str:
        most = slots if self._is_final or self._most is None else max(slots, self._most)
        waited = "" if now_s - self._start_s < 1.0 else f" after {now_s - self._start_s:.0f} s"
        per_task = _number(self._conf, "spark.task.cpus", 1)
        lower = f"Lower num_proc to {most}, or give" if most else "Give"
        return (
            f"{self._caller}: {self._wanted} processes need {self._wanted} task slots at the same time; this Spark "
            f"application has {slots}{waited}"
            f"{f' and can have {most}' if most > slots else ''} (spark.task.cpus is {per_task}). {lower} the "
            "application more executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max, or "
            "N in the master local[N])."
        )


def _number(conf: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(conf.get(name, default))
    except ValueError:
        return default
