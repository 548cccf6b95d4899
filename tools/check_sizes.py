"""Checks that a file fits in the head: at most 500 lines a file; in Python 25 methods a class, 60 lines a function and
6 parameters. And that a folder of the core, the package, the tests or the tools does: at most 25 files.

Exit code 1 with one line per offence.
"""

from __future__ import annotations

import ast
import collections
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES, METHODS, FUNCTION_LINES, PARAMETERS = 500, 25, 60, 6
FOLDER_FILES = 25
# Signatures that users' scripts fix (docs/migration.md), and those like them: they may be as long as they are there.
PUBLIC = (
    "python/horovod/_core/operations/reductions.py",
    "python/horovod/_core/operations/movements.py",
    "python/horovod/torch/",
    "python/horovod/numpy/",
    "python/horovod/jax/",
    "python/horovod/mxnet/",
    "python/horovod/runner/function.py",
    "python/horovod/runner/helpers.py",
    "python/horovod/spark/running.py",
    "python/horovod/ray/elastic",
    "python/horovod/ray/runner.py",
    "python/horovod/spark/common/datamodule.py",
    "python/horovod/spark/common/store.py",
    "python/horovod/spark/common/util.py",
    "python/horovod/tensorflow/",
    "python/horovod/keras/",
    "python/horovod/_keras/",
    "python/horovod/common/",
)


def body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    is_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    start = first.end_lineno if is_docstring else node.lineno
    return (node.end_lineno or node.lineno) - (start or node.lineno)


def class_offences(path: Path, name: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            methods = sum(isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) for member in node.body)
            if methods > METHODS:
                found.append(f"{name}:{node.lineno}: {node.name} has {methods} methods; the limit is {METHODS}")
    return found


def function_offences(path: Path, name: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        where = f"{name}:{node.lineno}: {node.name}"
        if body_lines(node) > FUNCTION_LINES:
            found.append(f"{where} has {body_lines(node)} lines; the limit is {FUNCTION_LINES}")
        arguments = [
            a.arg for a in node.args.posonlyargs + node.args.args + node.args.kwonlyargs if a.arg not in ("self", "cls")
        ]
        if len(arguments) > PARAMETERS and not name.startswith(PUBLIC):
            found.append(f"{where} has {len(arguments)} parameters; the limit is {PARAMETERS}")
    return found


def folder_offences(files: Iterable[str]) -> list[str]:
    """`files`: paths below the checkout."""
    counts = collections.Counter(str(Path(name).parent) for name in files)
    return [f"{name} has {n} files; the limit is {FOLDER_FILES}" for name, n in counts.items() if n > FOLDER_FILES]


def counted() -> list[str]:
    """The files whose folders are counted, below the checkout: what others build, or Python writes, is not."""
    patterns = {"src": "*", "python": "*.py", "tests": "*", "tools": "*"}
    files = (path for folder, pattern in patterns.items() for path in (ROOT / folder).rglob(pattern))
    return [str(path.relative_to(ROOT)) for path in files if path.is_file() and path.suffix != ".pyc"]


def main() -> int:
    found = folder_offences(counted())
    for folder, pattern in (
        ("src", "*.[hc]*"),
        ("include", "*.h"),
        ("python", "*.py"),
        ("tests", "*.*"),
        ("tools", "*.py"),
        ("benchmarks", "*.*"),
    ):
        for path in sorted((ROOT / folder).rglob(pattern)):
            if path.suffix not in (".py", ".h", ".cc"):
                continue
            name = str(path.relative_to(ROOT))
            lines = len(path.read_text().splitlines())
            if lines > FILE_LINES:
                found.append(f"{name} has {lines} lines; the limit is {FILE_LINES}")
            if path.suffix == ".py":
                found += class_offences(path, name)
            if path.suffix == ".py" and folder == "python":
                found += function_offences(path, name)
    print("\n".join(found) or "sizes: every file fits in the head")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
