"""Messages to the user about the course of an elastic job. Pure.

Used by `driver`.
"""

from __future__ import annotations

from typing import Optional

from horovod.runner.elastic.blacklist import Entry
from horovod.runner.elastic.events import Place
from horovod.runner.elastic.state import State, reason, there


def status(place: Place, state: State, now_s: float) -> str:
    """One line on an epoch that begins: its number, its size, its hosts, why, and which hosts are given up."""
    hosts = dict.fromkeys(seat.slot.hostname for seat in place.seats)
    where = ", ".join(f"{host}:{sum(seat.slot.hostname == host for seat in place.seats)}" for host in hosts)
    text = f"epoch {place.epoch}: {_ranks(len(place.seats))} on {where}, since {place.why}."
    for entry in state.blacklist.entries:
        if entry.drains and entry.holds(now_s):
            text += f" {entry.host} is given up {_how_long(entry, now_s)}: {entry.why}."
    return text


def unusable(why: str, entry: Optional[Entry], now_s: float) -> str:
    """On a host that cannot be used: why, and when it is tried again."""
    if entry is None or not entry.holds(now_s):
        return why
    return f"{why} It is given up {_how_long(entry, now_s)}."


def waiting(state: State, now_s: float) -> str:
    """One line on a job that has too few workers to begin or to go on."""
    needed = state.limits.first if state.epoch < 0 else state.limits.least
    found, patience_s = _ranks(there(state, now_s)), state.limits.patience_s
    return f"{found} of the {needed} needed, waiting up to {patience_s:g} s for more ({reason(state, now_s)})."


def ended_early(entry: Entry, now_s: float) -> str:
    """One line on a newcomer that has ended with code 0 before it had a place, and when there is another one."""
    if entry.until_s is None:
        what = f"{entry.early} in a row ended this way, so {entry.host} gets no more ranks"
    elif entry.until_s > now_s:
        what = f"{entry.host} gets no more ranks for {entry.until_s - now_s:.0f} s"
    else:
        what = f"another one is started on {entry.host}"
    return f"{entry.why} before it had a place; {what}."


def _how_long(entry: Entry, now_s: float) -> str:
    return "for good" if entry.until_s is None else f"for {entry.until_s - now_s:.0f} s"


def _ranks(number: int) -> str:
    return "1 rank" if number == 1 else f"{number} ranks"
