"""What holds after the death of any rank in any phase. Used by the fault tests and `benchmarks/faults.py`."""

from __future__ import annotations

from .fault_job import Fault, Story

PHASES = (
    "early",
    "joined",
    "paired",
    "connected",
    "idle",
    "negotiation",
    "loop",
    "between",
    "batch",
    "shutdown",
    "unsaid",
    "reinit",
    "rejoin",
    "loader",
)
# In these the others have nothing more to fail.
QUIET = ("shutdown", "unsaid")
# In these there is no rank and size yet.
BEFORE_INIT = ("early", "joined", "paired", "rejoin")
NOTICED_S = 1.0
CODES = {"KILL": 128 + 9, "SEGV": 128 + 11, "EXIT": 1}


def broken(story: Story, fault: Fault) -> list[str]:
    """The promises that a job with a dead rank did not keep, in words; empty when all is well."""
    return [
        *_of_the_others(story, fault),
        *_of_the_launcher(story, fault),
        *(f"left: {name}" for name in story.leftovers),
    ]


def _of_the_others(story: Story, fault: Fault) -> list[str]:
    complaints = []
    others = [rank for rank in range(story.size) if rank != fault.rank]
    ended = story.of("finished" if fault.phase in QUIET else "raised")
    if sorted(event["rank"] for event in ended) != others:
        complaints.append(f"only ranks {sorted(event['rank'] for event in ended)} came to an end of their own")
    elif story.worst_s >= NOTICED_S:
        complaints.append(f"it took {story.worst_s:.2f} s until all others had raised")
    for kind in ("wrong result", "not raised", "gave up"):
        complaints += [f"rank {event['rank']}: {kind}: {event}" for event in story.of(kind)]
    for event in story.of("raised"):
        if event["error"] != "PeerLostError" or f"rank {fault.rank} " not in event["message"].lower():
            complaints.append(f"rank {event['rank']} raised {event['error']}: {event['message']}")
        answers = None if fault.phase in BEFORE_INIT else [event["rank"], story.size]
        if fault.phase != "connected" and event["answers"] != answers:
            complaints.append(f"rank {event['rank']} calls itself {event['answers']}")
    if fault.phase == "batch" and not story.of("fault")[0]["inside"]:
        complaints.append("the batch was over when the rank died: make it larger")
    return complaints


def _of_the_launcher(story: Story, fault: Fault) -> list[str]:
    complaints = []
    if story.code != CODES[fault.how]:
        complaints.append(f"the launcher's exit code is {story.code}")
    victim = story.of("fault")[0]["pid"]
    how = "exited with code 1 " if fault.how == "EXIT" else f"was killed by signal {CODES[fault.how] - 128} "
    if not story.report.startswith(f"horovodrun: rank {fault.rank} (localhost, pid {victim}) {how}"):
        complaints.append(f"the report is {story.report!r}")
    return complaints
