"""Whether a Spark application has room for all ranks of a job at once. Pure.

A barrier stage starts all its tasks together; where it cannot, Spark itself waits ten minutes before it says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Optional

from horovod._core.errors import InvalidArgumentError

_CLUSTER_HERE: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")
_SETTLED_S: Final = 15.0  # an application whose slots are not more after that time will not have more
_ON: Final = ("true", "1")


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
    if conf.get("spark.dynamicAllocation.enabled", "").lower() in _ON and not is_in_the_driver(master):
        raise InvalidArgumentError(
            f"{caller}: spark.dynamicAllocation.enabled is true, and Spark starts no barrier stage, which begins on "
            "all executors at once, while their number may change. Start the session with "
            "spark.dynamicAllocation.enabled=false and spark.executor.instances=N."
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
