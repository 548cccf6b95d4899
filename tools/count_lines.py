"""Counts the lines of a checkout: product, and how much of it is code; tests, benchmarks, tools; what is biggest.

`count_lines.py [CHECKOUT]`. Counts the files that git tracks. Code is what is left without blank lines, comments and
docstrings. Lines of data files (JSON, TOML, text) count as code.
"""

from __future__ import annotations

import ast
import collections
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("python", "src", "include")
OTHERS = ("tests", "benchmarks", "tools", "examples", "deploy")
C_FILES = (".c", ".cc", ".cu", ".h", ".inc")
GENERATED = re.compile(r"generated (?:by|from)|do not edit", re.IGNORECASE)
FULL_FOLDER, FULLEST = 25, 10
_C_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of the lines that docstrings stand on."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            text = first.value.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
            if isinstance(text, str):
                found |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found


def python_code(text: str) -> int:
    """Lines with something else than comments and docstrings."""
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def c_code(text: str) -> int:
    """Lines with something else than comments."""
    bare = _C_COMMENT_OR_STRING.sub(lambda found: found[0] if found[0][0] == '"' else "", text)
    return sum(bool(line.strip()) for line in bare.splitlines())


def code(path: Path, text: str) -> int:
    """Lines of code of a file."""
    if path.suffix == ".py":
        return python_code(text)
    return c_code(text) if path.suffix in C_FILES else sum(bool(line.strip()) for line in text.splitlines())


def biggest_class(texts: dict[str, str]) -> str:
    """The Python class with the most lines."""
    found = [(0, "none")]
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)) if name.endswith(".py") else ():
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) for member in node.body)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                found.append((lines, f"{name}: {node.name}, {lines} lines, {methods} methods"))
    return max(found)[1]


def main() -> int:
    """Prints the tables, as Markdown."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    texts: dict[str, str] = {}
    for name in listed.stdout.splitlines():
        if name.split("/")[0] in PRODUCT + OTHERS and (root / name).is_file():
            texts[name] = (root / name).read_text(errors="replace")
    generated = {name for name in texts if GENERATED.search("\n".join(texts[name].splitlines()[:5]))}
    print("| part | files | lines | code |\n|---|---|---|---|")
    parts = [("product", PRODUCT), *((folder, (folder,)) for folder in PRODUCT + OTHERS)]
    for part, folders in parts:
        own = [name for name in texts if name.split("/")[0] in folders]
        lines = sum(len(texts[name].splitlines()) for name in own)
        print(f"| {part} | {len(own)} | {lines} | {sum(code(Path(name), texts[name]) for name in own)} |")
    made = sorted(name for name in generated if name.split("/")[0] in PRODUCT)
    print(f"\nGenerated, counted above: {', '.join(f'{n} ({len(texts[n].splitlines())})' for n in made) or 'none'}")
    product = {name: text for name, text in texts.items() if name.split("/")[0] in PRODUCT}
    print(f"Biggest file of the product: {max((len(t.splitlines()), n) for n, t in product.items())}")
    print(f"Biggest class of the product: {biggest_class(product)}")
    print("\n| folder | files | over the limit |\n|---|---|---|")
    folders = collections.Counter(str(Path(name).parent) for name in texts)
    for place, (folder, files) in enumerate(folders.most_common()):
        if place < FULLEST or files > FULL_FOLDER:
            print(f"| {folder} | {files} | {'yes' if files > FULL_FOLDER else ''} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
