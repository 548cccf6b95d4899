"""The counter of lines leaves out blank lines, comments and docstrings."""

from __future__ import annotations

import importlib.util

from jobs import ROOT

_SPEC = importlib.util.spec_from_file_location("count_lines", ROOT / "tools" / "count_lines.py")
assert _SPEC is not None and _SPEC.loader is not None
count_lines = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(count_lines)

PYTHON = '''"""A docstring

of three lines."""

# a comment
VALUE = """a text
of two lines"""  # and a comment


def function() -> int:
    """Another docstring."""
    return (
        1
    )
'''
C = """// a comment
/* and one
   of two lines */
const char* kText = "// no comment";  // a comment

int Value() { return 1; /* inside */ }
"""


def test_code_of_python() -> None:
    assert count_lines.python_code(PYTHON) == 6


def test_code_of_c() -> None:
    assert count_lines.c_code(C) == 2
