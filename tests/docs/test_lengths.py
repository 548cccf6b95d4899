"""A page of the documentation is about one task, so it is short; its lines fit a screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pages import PAGES, ROOT, Page

MOST_WORDS = 1200
MOST_CHARACTERS = 120
LISTS = ("docs/settings.md",)  # generated, a reference
OURS = [page for page in PAGES if page.path.parent == ROOT / "docs"]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines that can be broken: not those of code, tables, and links or pictures alone on a line."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        is_code ^= line.lstrip().startswith("```")
        if not (is_code or line.lstrip().startswith(("```", "|", "![")) or " " not in line.strip(" -")):
            yield number, line


@pytest.mark.parametrize("page", OURS, ids=str)
def test_a_page_is_short(page: Page) -> None:
    text = page.path.read_text()
    long = [
        f"{page}:{number} has {len(line)} characters" for number, line in prose(text) if len(line) > MOST_CHARACTERS
    ]
    assert not long, "\n".join(long)
    assert str(page) in LISTS or len(text.split()) <= MOST_WORDS


def test_what_counts_as_prose() -> None:
    text = "a b\n```sh\nlong line\n```\n| a b |\n![a b](c)\n- https://x.org\nthe end\n"
    assert list(prose(text)) == [(1, "a b"), (8, "the end")]
