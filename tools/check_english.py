"""Checks comments, docstrings and messages for the worst that was carried over from German: clauses without a noun, and
words that no manual uses. It cannot tell good English; CONTRIBUTING has the rule.

Exit code 1 with one line per offence.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("python", "src", "include", "tools")
SUFFIXES: Final = (".py", ".cc", ".h", ".inc")
OWN: Final = "tools/check_english.py"
_THINGS: Final = "file|folder|directory|text|number|rank|process|program|library|tensor|member|error|failure"

# What must not be there, and what to write instead.
PATTERNS: Final = tuple(
    (re.compile(pattern), better)
    for pattern, better in (
        (r"\bWho [a-z]+\b(?!.*\?)", "name the subject: 'A rank that', 'The caller'"),
        (r"\b[Ww]ho(m)?ever\b", "name the subject: 'a rank that', 'the caller'"),
        (r"\bin vain\b", "say what happens: 'is dropped', 'has no effect'"),
        (r"\b[Aa]new\b", "'again', 'from the start'"),
        (r"\bthe contrary\b", "'the reverse'"),
        (r"\bhas it that\b", "'says that'"),
        (r"\bcom(e|es|ing) so far\b", "'reach', 'get this far'"),
        (r"\bshall\b", "'must', 'may', 'will'"),
        (r"\bcannot be had\b", "'is not available'"),
        (r"\bequally many\b", "'the same number of'"),
        (rf"(?<!here )\bis no ({_THINGS})\b", "'is not a'"),
        (r", say[,.;)]", "'such as', 'for example'"),
    )
)


def offences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line number, what is wrong)."""
    for number, line in enumerate(lines, 1):
        for pattern, better in PATTERNS:
            if found := pattern.search(line):
                yield number, f"'{found[0]}'; write {better}"


def main() -> int:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = []
    for name in listed.splitlines():
        if name.endswith(SUFFIXES) and name != OWN:
            found += [f"{name}:{line}: {what}" for line, what in offences((ROOT / name).read_text().splitlines())]
    print("\n".join(found) or "english: none of the worst patterns")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
