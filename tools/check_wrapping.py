"""Checks for the scars that an automatic re-wrap leaves: rulers, comments broken long before the line is full, and
messages cut into pieces that would fit in one line.

Exit code 1 with one line per offence.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("include", "src", "python", "tests", "benchmarks", "examples", "tools")
SUFFIXES = (".h", ".cc", ".py")
WIDTH = 120
SPARE = 40  # columns left over in a line that was broken too early
# Published scripts, line by line as they stand in the documents they come from.
AS_PUBLISHED = "tests/scripts/document_"

_COMMENT = re.compile(r"^(\s*(?://|#|\*) )(\S.*)$")
_RULER = re.compile(r"^\s*(?://|#|/?\*)\s*-{5,}")
_OPEN_LITERAL = re.compile(r'^[^"]*(?:"(?:[^"\\]|\\.)*"[^"]*)*?(?:^|[\s(=+,])f?"(?:[^"\\]|\\.)*"$')
_NEXT_LITERAL = re.compile(r'^\s*f?("(?:[^"\\]|\\.)*"[),;]*)\s*$')


def broken_early(line: str, after: str) -> bool:
    """Whether a sentence of a comment goes on in the next line although its next word would have fitted easily."""
    one, two = _COMMENT.match(line), _COMMENT.match(after)
    if one is None or two is None or one[1] != two[1] or line.endswith((".", ":", ";", ",")):
        return False
    if re.search(r"\S {2,}\S", one[2]):  # a row of a table
        return False
    word = two[2].split()[0]
    return bool(re.match(r"[a-z(]", word)) and len(line) + 1 + len(word) <= WIDTH - SPARE


def cut_literal(line: str, after: str) -> bool:
    """Whether two literals that stand one below the other would fit in one line."""
    following = _NEXT_LITERAL.match(after)
    if following is None or line.endswith(('"""', '\\n"')) or not _OPEN_LITERAL.match(line):
        return False
    return len(line) + len(following[1]) - 2 <= WIDTH


def offences(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(line number, what is wrong)."""
    for number, line in enumerate(lines, 1):
        after = lines[number] if number < len(lines) else ""
        if _RULER.match(line):
            yield number, "a ruler; a heading is '---- title'"
        elif broken_early(line.rstrip(), after):
            yield number, "a comment broken in the middle of a line"
        elif cut_literal(line.rstrip(), after):
            yield number, "a literal cut in two that fits in one line"


def main() -> int:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in SUFFIXES and not name.startswith(AS_PUBLISHED):
                found += [f"{name}:{line}: {what}" for line, what in offences(path.read_text().splitlines())]
    print("\n".join(found) or "wrapping: no line is broken where none should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
