"""The check for scars of a re-wrap finds what it is for, and nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).resolve().parents[3] / "tools" / "check_wrapping.py"
_SPEC = importlib.util.spec_from_file_location("check_wrapping", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
check_wrapping = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(check_wrapping)


def found(text: str) -> list[int]:
    return [line for line, _ in check_wrapping.offences(text.splitlines())]


@pytest.mark.parametrize(
    "text",
    [
        "# " + "-" * 30 + " title",
        "// " + "-" * 30 + "\n// title",
        " * ranks. Returns\n * when that is done, within 0.1 s.",
        '    f"{count}; "\n    f"of {all}."\n)',
        '              "submit the same "\n              "operations");',
    ],
    ids=["ruler", "broken ruler", "comment", "literal", "argument"],
)
def test_scars_are_found(text: str) -> None:
    assert found(text) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "# ---- title",
        "# A sentence ends here.\n# another begins.",
        "//   small    2 x 64 KB\n//   stages   2 x 512 KB",
        '    "one line\\n"\n    "the next\\n"',
        '    "a",\n    "b",',
        f'    "{"x" * 100} "\n    "{"y" * 30}"',
    ],
    ids=["heading", "sentences", "table", "lines of text", "a list", "a full line"],
)
def test_what_is_meant_is_left(text: str) -> None:
    assert found(text) == []
