"""Jobs on three hosts, of which one is cut off for a while, and what is promised of them.

Used by test_cuts_over_hosts.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Optional

from ..conftest import Hosts
from ..network import Running

RANKS = Path(__file__).with_name("cut_ranks.py")
TIMEOUTS = (5.0, 3.0, 8.0)  # the default, and two others
KINDS = tuple((kind, load) for kind in ("static", "elastic") for load in ("idle", "busy"))
CUTS = 20  # for each timeout and kind
PROMISED_S = 1.5
_SHORTEST_S, _BEYOND_S = 0.5, 4.0
_PATIENCE_S = 60.0


class Cut(NamedTuple):
    """One cut, under which a job of every kind lies.

    Attributes:
        timeout_s: of all jobs.
        seconds: for which the link is gone.
        host: that is cut off; the launcher is on the first.
    """

    timeout_s: float
    seconds: float
    host: int

    @property
    def must_survive(self) -> bool:
        return self.seconds <= self.timeout_s - 0.5

    @property
    def must_end(self) -> bool:
        return self.seconds >= self.timeout_s + 2.0


def all_cuts() -> list[Cut]:
    """The whole matrix, in the order of time."""
    found = []
    for timeout_s in TIMEOUTS:
        step_s = (timeout_s + _BEYOND_S - _SHORTEST_S) / (CUTS - 1)
        found += [Cut(timeout_s, _SHORTEST_S + number * step_s, 2 + number % 2) for number in range(CUTS)]
    return found


def some_cuts(seed: int) -> list[Cut]:
    """A twentieth of it: one of each timeout."""
    cuts, chosen = all_cuts(), random.Random(seed)
    return [chosen.choice([cut for cut in cuts if cut.timeout_s == timeout_s]) for timeout_s in TIMEOUTS]


@dataclass
class Result:
    """What became of one job.

    Attributes:
        survived: it has gone on with all ranks, and no host was named.
        named_s: after the cut, when a lost host was named.
        named: in which words.
        epochs: of an elastic job.
        good: a job that survived, or an elastic one that went on without the host, has ended well.
    """

    survived: bool
    named_s: Optional[float]
    named: str
    epochs: int
    good: bool

    def broken(self, cut: Cut) -> str:
        """The promise that is not kept; empty: all are."""
        if cut.must_survive and not self.survived:
            return "it did not survive"
        if cut.must_survive and self.epochs > 1:
            return "the ranks lost one another"
        if cut.must_end and self.survived:
            return "it did not notice"
        if not self.survived and self.named_s is None:
            return "nobody was named"
        if self.named_s is not None and f"host{cut.host} " not in self.named.split(" was lost")[0]:
            return "another host was named"
        if self.named_s is not None and self.named_s > cut.timeout_s + PROMISED_S:
            return "it was named late"
        # Of a host that is back just when it is lost, a rank may have seen the others end well, and be missed.
        between = not cut.must_survive and not cut.must_end
        return "" if self.good or between else "it did not end well"


class CutJob:
    """One job of one rank on each of the hosts, running when made.

    Args:
        hosts: three.
        kind, load: see `cut_ranks`.
        timeout_s: its --link-timeout.
    """

    def __init__(self, hosts: Hosts, kind: str, load: str, timeout_s: float) -> None:
        self.kind, self.load = kind, load
        self.folder = Path(tempfile.mkdtemp(prefix="hvdcut"))
        self._log = self.folder / "journal"
        options = f"-np 3 -H host1:1,host2:1,host3:1 --link-timeout {timeout_s:g}"
        if kind == "elastic":
            options += f" --min-np 2 --elastic-log {self._log}"
        self.running: Running = hosts.start(options, [sys.executable, str(RANKS), str(self.folder), load, kind])
        self._lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.running.entered.stderr
        for line in self.running.entered.stderr:
            self._lines.append((time.monotonic(), line.decode()))

    @property
    def begun(self) -> bool:
        return len(list(self.folder.glob("begun.*"))) == 3

    def stop(self) -> None:
        (self.folder / "stop").touch()

    def result(self, cut_at_s: float) -> Result:
        """Waits for the end."""
        try:
            code: Optional[int] = self.running.entered.wait(_PATIENCE_S)
        except Exception:
            code = None
            self.running.kill()
        self._reader.join()
        named_s, named = self._named(cut_at_s)
        done = {path.name.rpartition(".")[2] for path in self.folder.glob("done.*")}
        survived = named_s is None and code == 0 and done == {"3"}
        good = code == 0 if survived or self.kind == "elastic" else code == 1
        epochs = 1 + sum("horovodrun: epoch " in line for _, line in self._lines)
        return Result(survived, named_s, named, epochs, good)

    def _named(self, cut_at_s: float) -> tuple[Optional[float], str]:
        if self.kind == "elastic":
            offset_s = time.monotonic() - time.time()
            for line in map(json.loads, self._log.read_text().splitlines()):
                if line.get("event") == "hostgone":
                    return line["time"] + offset_s - cut_at_s, line["how"]
            return None, ""
        for at_s, line in self._lines:
            if at_s > cut_at_s and "horovodrun: " in line and "warning" not in line:
                return at_s - cut_at_s, line.partition("horovodrun: ")[2].strip()
        return None, ""

    @property
    def said(self) -> str:
        return "".join(line for _, line in self._lines)

    def close(self) -> None:
        self.running.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def try_cut(hosts: Hosts, cut: Cut) -> list[tuple[CutJob, Result]]:
    """Jobs of all kinds under one cut; what became of each."""
    jobs = [CutJob(hosts, kind, load, cut.timeout_s) for kind, load in KINDS]
    network = hosts.network
    try:
        until(lambda: all(job.begun for job in jobs))
        time.sleep(0.5)
        began_s = time.monotonic()
        network.cut(network[cut.host])
        time.sleep(max(0.0, began_s + cut.seconds - time.monotonic()))
        network.join(network[cut.host])
        for job in jobs:
            job.stop()
        return [(job, job.result(began_s)) for job in jobs]
    finally:
        for job in jobs:
            job.close()


def until(over: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not over():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
