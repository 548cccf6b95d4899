"""What must hold after every case, whatever has happened in it: see `broken`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .case_run import Story
from .faults import DEADLY

Event = dict[str, Any]


def broken(story: Story) -> list[str]:
    """The promises that a job did not keep, in words; empty when all is well."""
    return [
        *_of_the_launcher(story),
        *_equal_states(story),
        *_nothing_committed_lost(story),
        *_one_epoch_after_the_other(story),
        *_soon(story),
    ]


def _of_the_launcher(story: Story) -> list[str]:
    case, ended = story.case, story.ended
    found = [f"left: {name}" for name in ended.leftovers]
    if ended.code != case.code:
        found.append(f"the exit code is {ended.code}, not {case.code}")
    found += [f"nobody says: {words}" for words in case.says if words not in ended.output]
    if case.code == 0 and not story.of("end"):
        found.append("no rank came to the end of the training")
    happened = {(event["phase"], event["when"], event["what"]) for event in story.of("fault")}
    if case.code == 0:
        found += [f"has not happened: {f}" for f in case.faults if (f.phase, f.when, f.what) not in happened]
    return found


def _equal_states(story: Story) -> list[str]:
    """All ranks of an epoch begin with the same; nobody ever holds what a training without faults does not hold."""
    found = [f"a wrong state: {event}" for event in story.of("wrong")]
    for epoch, begun in _by_epoch(story.of("begin")).items():
        if len({(event["step"], event["hash"]) for event in begun}) > 1:
            found.append(f"epoch {epoch} begins with unequal states: {begun}")
    found += [f"the end is wrong: {event}" for event in story.of("end") if not event["right"]]
    ends = {(event["step"], event["hash"]) for event in story.of("end")}
    if len(ends) != len({step for step, _ in ends}):
        found.append(f"unequal states at the end: {sorted(ends)}")
    return found


def _nothing_committed_lost(story: Story) -> list[str]:
    """Who lives on begins the next epoch no earlier than at its own last commit, whoever gives it its state."""
    found = []
    newest: dict[int, Event] = {}  # by process: the commits of one epoch, which a begin in another has to match
    for event in story.ended.events:
        pid = event["pid"]
        if event["event"] == "committed":
            newest[pid] = event
        elif event["event"] == "begin" and pid in newest and event["step"] < newest[pid]["step"]:
            found.append(f"{event} begins before what it has committed: {newest[pid]}")
    return found


def _one_epoch_after_the_other(story: Story) -> list[str]:
    """Numbers and ranks are dense, no two processes are the same rank, rank 0 has been there before."""
    found = []
    for epoch, begun in _by_epoch(story.of("begin")).items():
        ranks = [event["rank"] for event in begun]
        sizes = {event["size"] for event in begun}
        if len(sizes) != 1 or len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(max(sizes))):
            found.append(f"epoch {epoch} has ranks {sorted(ranks)} of sizes {sorted(sizes)}")
    places = story.places()
    if [line["epoch"] for line in places] != list(range(len(places))):
        found.append(f"epochs {[line['epoch'] for line in places]}")
    for before, after in zip(places, places[1:]):
        if after["ranks"][0] not in before["ranks"]:
            found.append(f"rank 0 of epoch {after['epoch']} is new: {after['ranks'][0]}")
    return found


def _soon(story: Story) -> list[str]:
    """A death holds the others up for a bounded time, if they are enough to go on."""
    return [
        f"{seconds:.1f} s from the death in epoch {epoch} to the next epoch"
        for epoch, seconds in recoveries(story)
        if seconds > story.case.recovery_s
    ]


def recoveries(story: Story) -> list[tuple[int, float]]:
    """Of every epoch that ended by a death and was followed by a smaller one: its number, and the seconds from its
    first death to the last begin of training in the next one."""
    begun = _by_epoch(story.of("begin"))
    found = []
    for epoch, deaths in _by_epoch([e for e in story.of("fault") if e["what"] in DEADLY]).items():
        if epoch in begun and epoch + 1 in begun and len(begun[epoch + 1]) < len(begun[epoch]):
            found.append((epoch, max(e["at"] for e in begun[epoch + 1]) - min(e["at"] for e in deaths)))
    return found


def _by_epoch(events: list[Event]) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event["epoch"] is not None:
            found[event["epoch"]].append(event)
    return dict(found)
