"""A file that is written from another: `main(target, text)` writes it, or with `--check` compares it and returns 1."""

from __future__ import annotations

import sys
from pathlib import Path


def main(target: Path, text: str) -> int:
    """Returns 1 when `--check` finds the file out of date."""
    if "--check" not in sys.argv[1:]:
        target.write_text(text, encoding="utf-8")
    elif not target.exists() or target.read_text(encoding="utf-8") != text:
        print(f"{target} is out of date; run make docs")
        return 1
    return 0
