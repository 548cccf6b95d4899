"""The table of private names in docs/migration.md: each has a source, and a test that uses it."""

from __future__ import annotations

import re

from jobs import ROOT


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "migration.md").read_text().partition("## Private names")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_private_name_has_a_source_and_a_test() -> None:
    own = (ROOT / "tests" / "docs").rglob("*.py")
    tests = "\n".join(p.read_text() for p in sorted(set((ROOT / "tests").rglob("*.py")) - set(own)))
    table = rows()
    assert len(table) >= 5
    for names, source, here in table:
        assert source and here, names
        for name in re.findall(r"`([^`]+)`", names):
            assert re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", tests), f"no test uses {name}"
