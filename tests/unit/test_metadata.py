"""What the package says of itself to an index, and what making it needs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("tomllib needs Python 3.11.", allow_module_level=True)

import tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_package_has_authors_and_its_description_no_link_into_the_checkout() -> None:
    assert all(author["name"] for author in PROJECT["authors"])
    text = (ROOT / PROJECT["readme"]).read_text()
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert not [target for target in targets if not target.startswith("https://")]
    assert all(address.startswith("https://") for address in PROJECT.get("urls", {}).values())


def rules() -> dict[str, tuple[str, list[str]]]:
    """By target of the Makefile, what it needs, and its commands."""
    found: dict[str, tuple[str, list[str]]] = {}
    target = ""
    for line in (ROOT / "Makefile").read_text().splitlines():
        if rule := re.match(r"([\w$()/.-]+): (?!export)([^=]*)$", line):
            target = rule[1]
            found[target] = rule[2], []
        elif target and line.startswith("\t"):
            found[target][1].append(line.strip())
        else:
            target = ""
    return found


def test_making_a_wheel_needs_no_development_environment() -> None:
    """No framework and no tool of the tests: only what builds and looks at wheels."""
    needs, _ = rules()["wheel"]
    assert needs == "$(VENV)/.wheels"
    needs, commands = rules()["$(VENV)/.wheels"]
    assert set(needs.split()) == {"requirements-wheels.txt", "requirements-build.txt", "|", "$(BIN)/python"}
    assert commands == ["$(PIP) -r requirements-wheels.txt", "touch $@"]
    listed = (ROOT / "requirements-wheels.txt").read_text() + (ROOT / "requirements-build.txt").read_text()
    packages = {re.split(r"[=>#]", line)[0].strip() for line in listed.splitlines() if not line.startswith(("#", "-r"))}
    assert packages == {"ziglang", "build", "cmake", "ninja", "scikit-build-core", "auditwheel"}
