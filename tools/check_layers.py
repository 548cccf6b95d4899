"""Checks that imports and includes follow the arrows of docs/architecture.md: no arrow upward, no cycle.

Exit code 1 with one line per offence.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Who may include whom, besides itself. Everything may include horovod/horovod.h.
CPP = {
    "base": set(),
    "transport": {"base"},
    "collective": {"base", "transport"},
    "backend": {"base", "transport", "collective"},
    "negotiation": {"base", "transport"},
    "engine": {"base", "transport", "collective", "backend", "negotiation"},
    "api": {"base", "transport", "collective", "backend", "negotiation", "engine"},
    "frameworks": set(),
}
# One exception, upward by a value type only: a batch is described before anything executes it.
CPP_VALUE_HEADERS = {"collective/batch.h"}

# Longest prefix wins.
PYTHON = {
    "horovod._native": set(),
    "horovod._net": set(),
    "horovod._core.errors": set(),
    "horovod._core.setting": {"horovod._core.errors"},
    "horovod._core.settings_table": {"horovod._core.errors", "horovod._core.setting"},
    "horovod._core.settings": {"horovod._core.errors", "horovod._core.setting", "horovod._core.settings_table"},
    "horovod._core": {"horovod._native", "horovod._net"},
    "horovod.numpy": {"horovod._core"},
    "horovod.torch": {"horovod._core"},
    "horovod.tensorflow": {"horovod._core"},
    "horovod.tensorflow.keras": {"horovod._core", "horovod.tensorflow", "horovod.keras"},
    # The backends of Keras, each imported only when Keras runs on it.
    "horovod.keras": {"horovod._core", "horovod.tensorflow", "horovod.torch", "horovod.numpy"},
    "horovod.jax": {"horovod._core"},
    "horovod.data": set(),
    "horovod.common": {"horovod._core", "horovod.runner", "horovod.data"},
    "horovod.runner": {
        "horovod._net",
        "horovod._core.settings",
        "horovod._core.setting",
        "horovod._core.settings_table",
        "horovod._core.errors",
    },
    "horovod": {"horovod.runner"},
}


def cpp_offences() -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.[hc]*")):
        layer = path.relative_to(ROOT / "src").parts[0]
        for line, text in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'#include "([^"]+)"', text)
            if not match or match.group(1) == "horovod/horovod.h" or match.group(1) in CPP_VALUE_HEADERS:
                continue
            target = match.group(1).split("/")[0]
            if target != layer and target not in CPP[layer]:
                found.append(f"{path.relative_to(ROOT)}:{line}: {layer} must not include {match.group(1)}")
    return found


def layer_of(module: str) -> str:
    parts = module.split(".")
    while ".".join(parts) not in PYTHON:
        parts.pop()
    return ".".join(parts)


def imported(tree: ast.AST, module: str, is_package: bool) -> list[tuple[int, str]]:
    found = []
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(up + ([node.module] if node.module else []))
            found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
    return [(line, name) for line, name in found if name == "horovod" or name.startswith("horovod.")]


def python_offences() -> list[str]:
    found = []
    for path in sorted((ROOT / "horovod").rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        is_package = relative.name == "__init__"
        module = ".".join(relative.parts[:-1] if is_package else relative.parts)
        layer = layer_of(module)
        for line, name in imported(ast.parse(path.read_text()), module, is_package):
            target = layer_of(name)
            if target in ("horovod", layer) or target in PYTHON[layer] or target.startswith(layer + "."):
                continue
            if any(target.startswith(allowed + ".") for allowed in PYTHON[layer]):
                continue
            found.append(f"{path.relative_to(ROOT)}:{line}: {layer} must not import {name}")
    return found


def main() -> int:
    offences = cpp_offences() + python_offences()
    print("\n".join(offences) or "layers: every arrow points down")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
