"""The Markdown pages of this repository as the tests see them: links, headings, fenced blocks, words in backquotes.

Used by the tests beside it. What follows the language of a Python block says how the block is run; no reader sees it:

    ```python ranks=2                 as it stands, with `horovodrun -np 2`; ranks=0: one process, no launcher
    ```python ranks=2 in=training     in the hole of tests/docs/programs/training.py, which brings what is the reader's
    ```python not run: a reason       only compiled, and its names looked up
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Optional

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
HOLE = "# <- the block"
_RUN = re.compile(r"ranks=(?P<ranks>\d)(?: in=(?P<program>\w+))?|not run: (?P<reason>\S.*)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        page: that it stands on.
        line: of its fence, from 1.
        info: what stands behind the fence.
        text: what stands inside.
    """

    page: Page
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def language(self) -> str:
        return self.info.partition(" ")[0]

    @cached_property
    def way(self) -> dict[str, Optional[str]]:
        """How a Python block is run: ranks and program, or the reason why it is not.

        Raises:
            ValueError: it does not say.
        """
        found = _RUN.fullmatch(self.info.partition(" ")[2])
        if found is None:
            raise ValueError(f"{self}: `{self.info}` does not say how the block is run; tests/docs/pages.py shows how.")
        return found.groupdict()

    def whole(self) -> str:
        """The program that runs a Python block."""
        program = self.way["program"]
        if program is None:
            return self.text
        before, hole, after = (PROGRAMS / f"{program}.py").read_text().partition(HOLE + "\n")
        if not hole:
            raise ValueError(f"{self}: the program {program!r} has no line {HOLE!r}.")
        return before + self.text + after


class Page:
    """A Markdown file.

    Args:
        path: below `ROOT`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def _tokens(self) -> list[Token]:
        return MarkdownIt("commonmark").enable("table").parse(self.path.read_text())

    def _inline(self) -> Iterator[tuple[int, Token]]:
        line = 1
        for token in self._tokens:
            line = token.map[0] + 1 if token.map else line
            for child in token.children or []:
                yield line, child

    def links(self) -> list[tuple[int, str]]:
        """Line and target of each link and picture."""
        found = [(line, token.attrs.get("href") or token.attrs.get("src")) for line, token in self._inline()]
        return [(line, str(target)) for line, target in found if target is not None]

    def words(self) -> list[tuple[int, str]]:
        """Line and text of what stands in backquotes."""
        return [(line, token.content) for line, token in self._inline() if token.type == "code_inline"]

    def blocks(self, *languages: str) -> list[Block]:
        """The fenced blocks of these languages; "" is a block that names none."""
        made = [
            Block(self, token.map[0] + 1, token.info.strip(), token.content)
            for token in self._tokens
            if token.type == "fence" and token.map
        ]
        return [block for block in made if block.language in languages]

    @cached_property
    def anchors(self) -> set[str]:
        """What a link may name behind its #: the headings, spelled as code hosts do."""
        found: set[str] = set()
        for opening, inside in zip(self._tokens, self._tokens[1:]):
            if opening.type == "heading_open":
                title = "".join(child.content for child in inside.children or [])
                name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
                number = 0
                while (anchor := f"{name}-{number}" if number else name) in found:
                    number += 1
                found.add(anchor)
        return found


PAGES = [Page(path) for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])]
