"""The check for translated English finds the patterns that it is for, and leaves good sentences alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[3] / "tools" / "check_english.py"
_SPEC = importlib.util.spec_from_file_location("check_english", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
check_english = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check_english)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("// Who has given up reads nothing any more.", "Who has"),
        ("# Wakes whoever drives.", "whoever"),
        ("# Ranks that post more wait in vain.", "in vain"),
        ('"""Counts anew."""', "anew"),
        ("# and the contrary", "the contrary"),
        ("# MPI has it that nobody calls it.", "has it that"),
        ('f"MPI did not come so far within {limit_s} s."', "come so far"),
        ("// The ranks shall start.", "shall"),
        ("# What cannot be had with it.", "cannot be had"),
        ("// all hosts have equally many members", "equally many"),
        ('f"{path} is no directory."', "is no directory"),
        ("# the engine is gone, say; what is under way lands", ", say;"),
    ],
)
def test_the_worst_patterns_are_found(text: str, words: str) -> None:
    ((line, what),) = check_english.offences(["# A line.", text])
    assert line == 2 and what.startswith(f"'{words}'; write ")


@pytest.mark.parametrize(
    "text",
    [
        "# Who may write there? The owner.",
        "# There is no directory, and this is no longer the first rank.",
        "# A rank that has given up does not read, as the logs say.",
        'raise ValueError("what it is is not known so far")',
        "def is_in_vain() -> bool:",
    ],
)
def test_other_sentences_are_left_alone(text: str) -> None:
    assert list(check_english.offences([text])) == []
