"""Every path that the pages docs/adding*.md name is there; what was added to a table of launchers, schedulers or
frameworks is in the other lists of them, and users find it."""

from __future__ import annotations

import importlib
import re

import pytest
from pages import ROOT

from horovod._core.commits import signs
from horovod._core.errors import UnsupportedError
from horovod._core.frameworks import FRAMEWORKS
from horovod._core.settings import BY_NAME, Settings
from horovod._net.clusters.launchers import LAUNCHERS
from horovod.runner.allocations.choose import MARKS
from horovod.runner.doctor import availability
from horovod.runner.elastic import wishes
from horovod.runner.launchers.choose import ENTRIES


def test_every_path_exists() -> None:
    pages = sorted((ROOT / "docs").glob("adding*.md"))
    words = re.findall(r"`([^`\s]+/[^`\s]+)`", "".join(page.read_text() for page in pages))
    assert len(pages) == 2 and len(words) > 40
    assert [word for word in words if not (ROOT / word).exists()] == []


def test_every_launcher_and_scheduler_has_a_line_for_users() -> None:
    text = (ROOT / "docs" / "platforms.md").read_text()
    plug_ins = [importlib.import_module(f"horovod.runner.allocations.{name}") for name in MARKS.values()]
    names = [*(launcher.name for launcher in LAUNCHERS), *(plug_in.SCHEDULER.name for plug_in in plug_ins)]
    assert len(names) > 12
    assert [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_every_scheduler_names_the_jobs_that_write_commits() -> None:
    plug_ins = [importlib.import_module(f"horovod.runner.allocations.{name}") for name in MARKS.values()]
    assert {plug_in.SCHEDULER.name for plug_in in plug_ins} == {name for _, name in signs._SCHEDULERS}


def test_doctor_and_elastic_jobs_know_every_program_that_starts_ranks() -> None:
    asked = {entry.asked_by for entry in ENTRIES} - {"", "elastic"}
    assert {BY_NAME[name].flags[0].names[0] for name in asked} <= {flag for _, flag, _ in availability.launchers()}
    for name in asked:
        with pytest.raises(UnsupportedError, match="Elastic jobs cannot"):
            wishes.checked(Settings([("flag", {name: True, "min_num_proc": 1})]), 1)


def test_every_adapter_is_of_a_framework_that_is_listed() -> None:
    folders = {path.parent.name for path in (ROOT / "python" / "horovod").glob("*/installed.py")}
    assert folders == set(FRAMEWORKS)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_framework_is_in_the_lists(name: str) -> None:
    checks = [(ROOT / "tools" / f"{tool}.py").read_text() for tool in ("check_layers", "check_sizes", "build_site")]
    for text, word in zip(checks, (f'"horovod.{name}"', f'"python/horovod/{name}/"', f'"{name}"')):
        assert word in text
    assert re.search(rf"^{name} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
