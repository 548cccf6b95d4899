"""Runs a case of the chaos matrix to its end, and gives its story."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Optional

from jobs import Ended, Job, Place, python

from .faults import CASE_VARIABLE, Fault, Orders, note_act, struck
from .where import ThisMachine, Where


class Act(NamedTuple):
    """Something that happens around the ranks.

    Attributes:
        after: so many faults of ranks, and acts.
        what: a signal's name for the launcher itself, or the body of its discovery script from here on.
        says: what the launcher then says. The act is over when it has, and the body has begun to run.
    """

    after: int
    what: str
    says: str = ""


class Case(NamedTuple):
    """One case: what happens, and how the job ends.

    Attributes:
        name: of the case.
        size: ranks to begin with, and slots.
        faults: of ranks.
        options: further words for horovodrun; --min-np is 1 unless they say otherwise.
        acts: around the ranks, in order; a discovery script's first body is among them, with `after` 0.
        orders: of the ranks, but for the faults.
        code: of the launcher.
        says: what must stand in its output.
        seconds: for all of it, on two busy cores.
        recovery_s: the longest from a death to the next epoch, where enough ranks are left for one.
    """

    name: str
    size: int
    faults: tuple[Fault, ...] = ()
    options: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    orders: Orders = Orders()
    code: int = 0
    says: tuple[str, ...] = ()
    seconds: float = 60.0
    recovery_s: float = 10.0

    def __str__(self) -> str:
        return self.name


@dataclass
class Story:
    """How a case went.

    Attributes:
        case: which.
        ended: the job: code, output, what the ranks told, what was left.
        journal: the launcher's (--elastic-log), in order.
    """

    case: Case
    ended: Ended
    journal: list[dict[str, Any]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """What ranks told, of one kind."""
        return self.ended.of(kind)

    def __str__(self) -> str:
        told = [event for event in self.ended.events if event["event"] != "committed"]
        return "\n".join([f"code {self.ended.code}", *map(str, told), self.ended.output[-8000:]])

    def places(self) -> list[dict[str, Any]]:
        """The epochs, as the launcher formed them."""
        return [line for line in self.journal if line["event"] == "place"]


def run(case: Case, where: Optional[Where] = None) -> Story:
    """Runs a case.

    Raises:
        Hangs: it has not ended in its time.
    """
    where = where or ThisMachine()
    with Place() as place:
        log, script = place.folder / "journal", place.folder / "discover"
        job = where.start(place, {CASE_VARIABLE: _told(case).as_text()}, _words(case, where, log, script))
        _act(case, job, script, where)
        ended = job.end(case.seconds, leftovers=True)
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        return Story(case, ended, [json.loads(line) for line in lines if line.endswith("\n")])


def _told(case: Case) -> Orders:
    before_the_end = [fault for fault in case.faults if fault.phase != "end"]
    number = case.orders.number or sum(len(fault.who.split("+")) for fault in before_the_end)
    later_bodies = max(0, sum(not _is_signal(act) for act in case.acts) - 1)
    return case.orders._replace(faults=case.faults, number=number + later_bodies)


def _words(case: Case, where: Where, log: Path, script: Path) -> list[str]:
    words = ["-np", str(case.size), "--elastic-log", str(log)]
    if not {"--min-np", "--host-discovery-script"} & set(case.options):
        words += ["--min-np", "1"]
    bodies = [act for act in case.acts if not _is_signal(act)]
    if bodies:
        _write(script, where, bodies[0].what, 0)
        words += ["--host-discovery-script", str(script)]
    else:
        words += where.options(case.size)
    return [*words, *case.options, *python("-m", "chaos.training")]


def _act(case: Case, job: Job, script: Path, where: Where) -> None:
    bodies = 0
    for act in case.acts:
        job.until(lambda after=act.after: [None] * struck(job.reports), act.after, case.seconds)
        if _is_signal(act):
            job.signal(job.process.pid, getattr(signal, f"SIG{act.what}"))
            continue
        if bodies:
            ran = _write(script, where, act.what, bodies)
            job.until(lambda path=ran: [path] if path.exists() else [])
            if act.says:
                job.await_text(act.says)
            note_act(job.reports, bodies)
        bodies += 1


def _is_signal(act: Act) -> bool:
    return hasattr(signal, f"SIG{act.what}")


def _write(script: Path, where: Where, body: str, number: int) -> Path:
    """The script in one step: the launcher may be about to run it. "{3}" in it is where three slots are. A file that
    is there once it runs."""
    for slots in range(33):
        body = body.replace(f"{{{slots}}}", where.hosts(slots))
    new = script.with_suffix(".new")
    new.write_text(f'#!/bin/sh\ntouch "$0.{number}"\n{body}\n')
    new.chmod(0o755)
    new.replace(script)
    return script.with_name(f"{script.name}.{number}")
