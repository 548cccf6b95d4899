"""From sections to the page that is pasted into a bug report, or to JSON. Pure. Used by `command`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from horovod.runner.doctor.findings import ABSENT, FACT, FAULT, WORKS, Finding, Section

_BOXES: Final = {WORKS: "[X]", ABSENT: "[ ]", FAULT: "[!]", FACT: " - "}


def text(version: str, when: str, sections: Sequence[Section]) -> str:
    """The page: what is wrong first, then everything.

    Args:
        version: of Horovod.
        when: the machine was looked at.
        sections: in the order of the page.
    """
    wrong = faults(sections)
    count = "1 problem:" if len(wrong) == 1 else f"{len(wrong)} problems:"
    lines = [f"Horovod {version}: doctor, {when}", "", count if wrong else "No problem was found."]
    lines += [f"    [!] {_sentence(section.title, finding)}" for section, finding in wrong]
    for section in sections:
        lines += ["", f"{section.title}:", *(_line(finding) for finding in section.findings)]
    return "\n".join(lines)


def as_json(version: str, when: str, sections: Sequence[Section]) -> str:
    """The same for programs: {"horovod", "when", "problems", "sections": [{"title", "findings": [...]}]}."""
    tree: dict[str, Any] = {
        "horovod": version,
        "when": when,
        "problems": len(faults(sections)),
        "sections": [
            {"title": section.title, "findings": [finding._asdict() for finding in section.findings]}
            for section in sections
        ],
    }
    return json.dumps(tree, indent=1)


def faults(sections: Sequence[Section]) -> list[tuple[Section, Finding]]:
    """All that is wrong, in the order of the page."""
    return [(section, finding) for section in sections for finding in section.findings if finding.state == FAULT]


def _line(finding: Finding) -> str:
    fact = f": {_flat(finding.fact)}" if finding.fact else ""
    return f"    {_BOXES[finding.state]} {_flat(finding.name)}{fact}"


def _sentence(title: str, finding: Finding) -> str:
    remedy = f" {_flat(finding.remedy)}" if finding.remedy else ""
    return f"{title}, {_flat(finding.name)}: {_flat(finding.fact).rstrip('.')}.{remedy}"


def _flat(words: str) -> str:
    """In one line, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in words)
