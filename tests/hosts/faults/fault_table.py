"""Every kind of fault in every phase of a job on several hosts, as a table.

`python -m hosts.faults.fault_table [WORD...]`. With words: the cases whose name has one of them. Ends with 1 when a
promise was not kept. Takes root, see `network`; PYTHONPATH must hold python and tests.
"""

from __future__ import annotations

import sys

from ..conftest import Hosts
from ..network import Network, why_absent
from .fault_case import FaultCase, Story, broken
from .fault_kinds import FAULTS, PHASES, cases


def main() -> int:
    reason = why_absent()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 2
    chosen = [each for each in cases() if not sys.argv[1:] or any(word in "/".join(each) for word in sys.argv[1:])]
    network = Network(3)
    failed = 0
    cells: dict[tuple[str, str], str] = {}
    try:
        for fault, phase in chosen:
            try:
                story = FaultCase(Hosts(network), fault, phase).run()
                complaints = broken(story, fault, phase)
            except AssertionError as error:
                story, complaints = Story(), [str(error)[:2000]]
            failed += bool(complaints)
            cells[fault, phase] = f"{story.seconds:.1f}" + (" !" if complaints else "")
            print(f"{fault} / {phase}: {story.seconds:.1f} s, code {story.code} ({story.told}): {story.headline[:100]}")
            for complaint in complaints:
                print(f"    {complaint}")
            for event in story.events if complaints else []:
                print(f"    {event.get('rank')} {event['event']} {event.get('message', '')[:300]}")
            sys.stdout.flush()
    finally:
        network.close()
    print(table(cells))
    print(f"{len(chosen)} cases, {failed} failed")
    return int(failed > 0)


def table(cells: dict[tuple[str, str], str]) -> str:
    """Markdown: faults down, phases across; seconds until every rank had ended."""
    lines = [f"| fault | {' | '.join(PHASES)} |", "|---|" + "---|" * len(PHASES)]
    for fault in FAULTS:
        row = [cells.get((fault, phase), "") for phase in PHASES]
        if any(row):
            lines.append(f"| {fault} | {' | '.join(row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
