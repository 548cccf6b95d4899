"""The threat model names every fuzz target, and none that there is not."""

from __future__ import annotations

import importlib.util
import re

from pages import ROOT


def test_the_threat_model_names_every_fuzz_target() -> None:
    spec = importlib.util.spec_from_file_location("run_fuzzers", ROOT / "tools" / "run_fuzzers.py")
    assert spec is not None and spec.loader is not None
    fuzzers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzzers)
    text = (ROOT / "docs" / "threat-model.md").read_text()
    rows = text[text.index("| target |") :].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(named) == sorted([*fuzzers.native_targets(), *fuzzers.python_targets()])
