"""Every path that docs/adding.md names is there."""

from __future__ import annotations

import re

from pages import ROOT


def test_every_path_exists() -> None:
    words = re.findall(r"`([^`\s]+/[^`\s]+)`", (ROOT / "docs" / "adding.md").read_text())
    assert len(words) > 40
    assert [word for word in words if not (ROOT / word).exists()] == []
