"""Every path that docs/adding.md names is there, and users find what was added to the tables of launchers."""

from __future__ import annotations

import importlib
import re

from pages import ROOT

from horovod._net.clusters.launchers import LAUNCHERS
from horovod.runner.allocations.choose import MARKS


def test_every_path_exists() -> None:
    words = re.findall(r"`([^`\s]+/[^`\s]+)`", (ROOT / "docs" / "adding.md").read_text())
    assert len(words) > 40
    assert [word for word in words if not (ROOT / word).exists()] == []


def test_every_launcher_and_scheduler_has_a_line_for_users() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text()
    plug_ins = [importlib.import_module(f"horovod.runner.allocations.{name}") for name in MARKS.values()]
    names = [*(launcher.name for launcher in LAUNCHERS), *(plug_in.SCHEDULER.name for plug_in in plug_ins)]
    assert len(names) > 12
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []
