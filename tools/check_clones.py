"""Checks that nothing stands twice: eight or more equal code lines in two places of src/ or python/.

Exit code 1 with one line per pair.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WINDOW = 8


def code_lines(path: Path) -> list[tuple[int, str]]:
    """The lines that say something: no blanks, comments, imports, lone brackets."""
    kept = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = re.sub(r"\s+", " ", line.strip())
        # Parameters, keyword arguments and names in __all__ do not count: public signatures repeat by contract.
        if not text or re.match(
            r"(#|//|import |from |\"\"\"|[\])}>,;]+$|\*,?$|\w+: [^=]+( = .+)?,$|\w+(=\w+)?,$|\"\w+\",$)", text
        ):
            continue
        kept.append((number, text))
    return kept


def main() -> int:
    seen: dict[tuple[str, ...], tuple[str, int]] = {}
    pairs: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for folder, suffixes in (("src", (".cc", ".h")), ("python", (".py",))):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in suffixes:
                continue
            name, lines = str(path.relative_to(ROOT)), code_lines(path)
            for i in range(len(lines) - WINDOW + 1):
                window = tuple(text for _, text in lines[i : i + WINDOW])
                place = (name, lines[i][0])
                other = seen.setdefault(window, place)
                if other != place and (other[0] != name or abs(other[1] - place[1]) >= WINDOW):
                    pairs.setdefault((f"{other[0]}:{other[1]}", f"{name}:{place[1]}"), (0, 0))
    for first, second in sorted(pairs):
        print(f"{second} repeats {first} ({WINDOW} lines or more)")
    if not pairs:
        print("clones: nothing stands twice")
    return 1 if pairs else 0


if __name__ == "__main__":
    sys.exit(main())
