"""Reads traces of jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

Event = dict[str, Any]


class Trace:
    """A file that is valid JSON.

    Attributes:
        events: all.
        processes: names, by number.
    """

    def __init__(self, path: Path) -> None:
        self.events: Sequence[Event] = json.loads(path.read_text())
        named = [event for event in self.events if event.get("name") == "process_name"]
        self.processes = {event["pid"]: event["args"]["name"] for event in named}

    def of(self, process: int) -> Sequence[Event]:
        """What this process has, without names."""
        return [event for event in self.events if event["pid"] == process and event["ph"] != "M"]

    def slices(self, process: int, name: str) -> Sequence[Event]:
        """What it did of this name, in the order of the file."""
        return [event for event in self.of(process) if event["ph"] == "X" and event["name"] == name]

    def threads(self, process: int) -> dict[str, int]:
        """The numbers of its threads, by name."""
        named = [event for event in self.events if event.get("name") == "thread_name" and event["pid"] == process]
        return {event["args"]["name"]: event["tid"] for event in named}

    def ends(self, process: int, thread: str, name: str) -> Sequence[int]:
        """When the slices of this name on a thread ended."""
        number = self.threads(process)[thread]
        return sorted(event["ts"] + event["dur"] for event in self.slices(process, name) if event["tid"] == number)

    def clock(self, process: int) -> tuple[int, Optional[int]]:
        """Offset and error of its clock in microseconds, as they were said last."""
        said = [event["args"] for event in self.events if event["pid"] == process and event["name"] == "horovod_clock"]
        return said[-1]["offset_us"], said[-1]["error_us"]

    def check_flows(self, process: int) -> None:
        """Each goes from a slice of a tensor, at its begin, to a slice of a batch, at its begin."""
        slices = {(event["tid"], event["ts"]) for event in self.of(process) if event["ph"] == "X"}
        begins, ends = ({event["id"]: event for event in self.of(process) if event["ph"] == phase} for phase in "sf")
        assert begins and set(begins) == set(ends)
        batches = self.threads(process)["batches"]
        for number, end in ends.items():
            begin = begins[number]
            assert end["tid"] == batches and end["bp"] == "e" and begin["ts"] <= end["ts"]
            assert (end["tid"], end["ts"]) in slices and (begin["tid"], begin["ts"]) in slices
