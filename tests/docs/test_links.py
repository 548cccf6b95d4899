"""Every link of the documentation leads somewhere: files and headings exist, addresses are well formed (nobody calls
them), and each page can be reached from the README.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional
from urllib.parse import unquote, urlsplit

import pytest
from pages import PAGES, ROOT, Page


def wrong(page: Page, target: str) -> Optional[str]:
    """What is wrong with a link; None = nothing."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        well_formed = parts.scheme == "https" and "." in parts.netloc and not set(target) & set(" <>\"'`")
        return None if well_formed else "is no https address"
    path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if not path.is_relative_to(ROOT):
        return "leads out of the repository"
    if not path.exists():
        return "does not exist"
    if parts.fragment and parts.fragment not in Page(path).anchors:
        return f"is no heading of {path.name}; it has {', '.join(sorted(Page(path).anchors))}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Page) -> None:
    offences = [f"{page}:{line}: {target} {why}" for line, target in page.links() if (why := wrong(page, target))]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("missing.md", "does not exist"),
        ("#nothing", "is no heading"),
        ("../../README.md", "leads out"),
        ("http://x.org", "is no https"),
        ("https://localhost/", "is no https"),
        ("second.md#a-title-1", None),
        ("#not-here", "is no heading of first.md; it has the-code-of-x_y"),
        ("https://x.org/a?b#c", None),
    ],
)
def test_what_is_wrong_with_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, why: str) -> None:
    monkeypatch.setattr("test_links.ROOT", tmp_path)
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text("# The code of `x_y`!\n")
    second.write_text("# A title\n\n## A title\n")
    said = wrong(Page(first), target)
    assert said is None if why is None else why in (said or "")


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {ROOT / "README.md"}
    waiting = list(reached)
    while waiting:
        page = Page(waiting.pop())
        for _, target in page.links():
            path = (page.path.parent / urlsplit(target).path).resolve()
            found = {path} if path.suffix == ".md" else set(path.glob("*.md")) if path.is_dir() else set()
            waiting += found - reached
            reached |= found
    assert [str(page) for page in PAGES if page.path not in reached and page.path.name != "CONTRIBUTING.md"] == []
