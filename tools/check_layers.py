"""Checks that imports and includes follow the arrows of docs/architecture.md, that no files form a circle, that the C++
files of a folder are in its namespace, and that those of a namespace define nothing twice.

An import inside a function counts like any other. Exit code 1 with one line per offence.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What each folder may include, besides itself. Everything may include horovod/horovod.h.
CPP = {
    "border": set(),
    "base": set(),
    "transport": {"base"},
    "collective": {"base", "transport"},
    "backend": {"base", "transport", "collective"},
    "negotiation": {"base", "transport"},
    "engine": {"base", "transport", "collective", "backend", "negotiation"},
    "api": {"border", "base", "transport", "collective", "backend", "negotiation", "engine"},
    "frameworks": {"border"},
    "lane": set(),
}
# The folders inside them, lowest first: a file may include those of its own folder and of the ones before it.
CPP_WITHIN = {
    "negotiation": ("values", "frames", "state", "stall", ""),
    "engine": ("wake", "links", "record", "submit", "express", "run", "drive", "entry", ""),
    "backend/cuda": ("driver", "packing", ""),
}
# One exception, upward by a value type only: a batch is described before anything executes it.
CPP_VALUE_HEADERS = {"collective/batch.h"}

# Any other files may be compiled together (UNITY_BUILD): which ones, the next new file changes.
CPP_COMPILED_ALONE = {"kernels", "lane"}
_FUNCTION = re.compile(r"^(?:[\w:<>,*&]+ )+[*&]?(\w+)\((.*)\)(?: const)?(?: noexcept)? \{", re.MULTILINE)
_PARAMETER_NAME = re.compile(r"\s*\w+(?=,|$)")
_TYPE = re.compile(r"^(?:struct|class|enum class) (\w+).*\{", re.MULTILINE)
_CONSTANT = re.compile(r"^(?:constexpr|const|thread_local)\b.*? (\w+)(?:\[\w*\])? ?[={]", re.MULTILINE)

# Longest prefix wins. Every part of _net may know who it is, what can fail and how to say so.
NET_COMMON = {f"horovod._net.{name}" for name in ("failures", "identity", "interfaces", "resources", "secret")}
BELOW_LIFE = {
    "horovod._core.callers",
    "horovod._core.errors",
    "horovod._core.gpu",
    "horovod._core.settings",
    "horovod._core.tensors",
    "horovod._core.tuning",
    "horovod._dumps",
    "horovod._native",
    "horovod._net",
}
BELOW_RUNNER = {
    "horovod._dumps",
    "horovod._later",
    "horovod._net",
    "horovod._core.settings",
    "horovod._core.commits",
    "horovod._core.errors",
    "horovod._core.frameworks",
    "horovod._core.gpu",
    "horovod._core.absent",
}
BELOW_HANDSHAKE = NET_COMMON | {"horovod._net.clusters", "horovod._net.connections", "horovod._net.meeting"}
# What the rooms of _core.life stand on, and those of an adapter.
LIFE_BASE = {
    f"horovod._core.life.{name}"
    for name in ("counters_page", "engine_port", "membership", "seal", "session", "waiting")
}
TORCH_COMMON = {"horovod._core", *(f"horovod.torch.{name}" for name in ("adapter", "gpu", "graphs", "versions"))}
TENSORFLOW_COMMON = {
    "horovod._core",
    *(f"horovod.tensorflow.{name}" for name in ("adapter", "as_written", "compression", "gpu")),
}
PYTHON = {
    "horovod._later": set(),
    "horovod._torch_backend": set(),
    "horovod._dumps": set(),
    "horovod._native": set(),
    "horovod._net.failures": set(),
    "horovod._net.identity": set(),
    "horovod._net.secret": set(),
    "horovod._net.resources": {"horovod._net.failures"},
    "horovod._net.interfaces": {"horovod._net.failures"},
    "horovod._net.clusters": NET_COMMON,
    "horovod._net.connections": {"horovod._net.clusters"},
    "horovod._net.mpi": NET_COMMON | {"horovod._net.clusters"},
    "horovod._net.meeting": NET_COMMON | {"horovod._net.clusters"},
    "horovod._net.handshake.frames": NET_COMMON,
    "horovod._net.handshake": BELOW_HANDSHAKE | {"horovod._net.handshake.frames"},
    "horovod._net.handshake.boards": BELOW_HANDSHAKE | {"horovod._net.handshake.frames", "horovod._net.handshake"},
    "horovod._net": set(),  # bootstrap, which takes the steps
    "horovod._core.errors": set(),
    "horovod._core.absent": set(),
    "horovod._core.callers": {"horovod._core.frameworks"},
    "horovod._core.frameworks": set(),
    "horovod._core.gpu": set(),
    "horovod._core.integers": set(),
    "horovod._core.settings": {"horovod._core.errors", "horovod._core.integers"},
    "horovod._core.commits": {"horovod._core.errors", "horovod._core.settings", "horovod._net.identity"},
    "horovod._core.tensors": {"horovod._core.errors", "horovod._native"},
    "horovod._core.tuning": {"horovod._core.errors", "horovod._core.settings"},
    "horovod._core.life": BELOW_LIFE,
    **dict.fromkeys(LIFE_BASE, BELOW_LIFE | LIFE_BASE),
    **{f"horovod._core.life.{room}": BELOW_LIFE | LIFE_BASE for room in ("autotuning", "dumps", "ending", "planes")},
    "horovod._core.operations": {
        "horovod._core.callers",
        "horovod._core.errors",
        "horovod._core.integers",
        "horovod._core.tensors",
        "horovod._core.life",
        "horovod._native",
    },
    "horovod._core.training": {
        "horovod._core.callers",
        "horovod._core.commits",
        "horovod._core.errors",
        "horovod._core.integers",
        "horovod._core.settings",
        "horovod._core.tensors",
        "horovod._core.life",
        "horovod._core.operations",
    },
    "horovod._core.compat": {
        "horovod._core.errors",
        "horovod._core.frameworks",
        "horovod._core.life",
        "horovod._core.operations",
        "horovod._later",
    },
    "horovod._core": set(),  # public, of all rooms
    "horovod.numpy": {"horovod._core"},
    **{name: TORCH_COMMON for name in TORCH_COMMON if name.startswith("horovod.torch.")},
    "horovod.torch.collectives": TORCH_COMMON,
    "horovod.torch.gradients": TORCH_COMMON | {"horovod.torch.collectives"},
    "horovod.torch.optimizers": TORCH_COMMON | {"horovod.torch.collectives", "horovod.torch.gradients"},
    "horovod.torch.broadcasts": TORCH_COMMON | {"horovod.torch.collectives", "horovod.torch.gradients"},
    "horovod.torch": {"horovod._core", "horovod._torch_backend"},
    **{name: TENSORFLOW_COMMON for name in TENSORFLOW_COMMON if name.startswith("horovod.tensorflow.")},
    "horovod.tensorflow.collectives": TENSORFLOW_COMMON,
    "horovod.tensorflow.gradients": TENSORFLOW_COMMON | {"horovod.tensorflow.collectives"},
    "horovod.tensorflow": {"horovod._core"},
    "horovod.tensorflow.data": {"horovod._core", "horovod._net"},
    "horovod.tensorflow.keras": {"horovod._core", "horovod.tensorflow", "horovod.keras"},
    # The backends of Keras, each imported only when Keras runs on it.
    "horovod.keras": {"horovod._core", "horovod.tensorflow", "horovod.torch", "horovod.numpy", "horovod.jax"},
    "horovod.lightning": {"horovod._core", "horovod.torch"},
    "horovod._keras": {"horovod._core", "horovod.keras"},
    "horovod.jax": {"horovod._core", "horovod.numpy"},
    "horovod.mxnet": {"horovod._core", "horovod._native"},
    "horovod.data": set(),
    "horovod.common": {"horovod._core", "horovod.runner", "horovod.data"},
    "horovod.runner.readers": BELOW_RUNNER,
    "horovod.runner.display": BELOW_RUNNER,
    "horovod.runner.options": BELOW_RUNNER | {"horovod.runner.readers"},
    "horovod.runner.machines": BELOW_RUNNER | {"horovod.runner.readers"},
    "horovod.runner.allocations": BELOW_RUNNER | {"horovod.runner.machines", "horovod.runner.readers"},
    "horovod.runner.live": set(),
    "horovod.runner.processes": BELOW_RUNNER | {"horovod.runner.live", "horovod.runner.machines"},
    "horovod.runner.loop": BELOW_RUNNER,
    "horovod.runner.remote.wire": BELOW_RUNNER | {"horovod.runner.live", "horovod.runner.loop"},
    "horovod.runner": BELOW_RUNNER,
    "horovod.spark.tensorflow": {"horovod._core", "horovod.spark", "horovod.tensorflow"},
    "horovod.spark": {"horovod._core", "horovod._later", "horovod._net", "horovod.runner"},
    "horovod.ray": {"horovod._core", "horovod._later", "horovod._net", "horovod.runner"},
    "horovod.spark.common": {"horovod._core", "horovod.data", "horovod.spark"},
    "horovod.spark.torch": {"horovod._core", "horovod.spark.common", "horovod.torch"},
    "horovod.spark.lightning": {
        *("horovod._core", "horovod.data", "horovod.lightning"),
        *("horovod.spark.common", "horovod.spark.torch", "horovod.torch"),
    },
    "horovod.spark.keras": {"horovod._core", "horovod.spark.common", "horovod.keras"},
    "horovod": {"horovod._later", "horovod.common", "horovod.runner"},
}


def includes() -> Iterator[tuple[str, int, str]]:
    """(file below src/, line, what it includes)."""
    for path in sorted((ROOT / "src").rglob("*.[hc]*")):
        for line, text in enumerate(path.read_text().splitlines(), 1):
            if match := re.match(r'#include "([^"]+)"', text):
                yield str(path.relative_to(ROOT / "src")), line, match.group(1)


def cpp_offences() -> list[str]:
    found = []
    for name, line, included in includes():
        layer, target = name.split("/")[0], included.split("/")[0]
        if included == "horovod/horovod.h" or included in CPP_VALUE_HEADERS:
            continue
        if target != layer and target not in CPP[layer]:
            found.append(f"src/{name}:{line}: {layer} must not include {included}")
    return found


def within_offence(name: str, included: str) -> str:
    """Which rule of CPP_WITHIN the file `name` breaks by this include; "" if none."""
    for around, order in CPP_WITHIN.items():
        if name.startswith(around + "/") and included.startswith(around + "/"):
            own, other = (str(Path(path).parent.relative_to(around)).lstrip(".") for path in (name, included))
            if order.index(other) > order.index(own):
                return f"{around}/{own} must not include {included}"
    return ""


def cpp_offences_within() -> list[str]:
    found = []
    for name, line, included in includes():
        if offence := within_offence(name, included):
            found.append(f"src/{name}:{line}: {offence}")
    return found


def namespaces_of(folders: Sequence[str]) -> set[str]:
    """The namespaces that a file below src/ may declare things in: its folder's, or that of a folder around it."""
    if folders[0] == "base":
        return {"hvd"}  # everybody's vocabulary
    return {"::".join(["hvd", *folders[:depth]]) for depth in range(1, len(folders) + 1)}


def named_namespaces(text: str) -> set[str]:
    """The namespaces below hvd that a file opens, but for those that only announce classes of others."""
    text = re.sub(r"^namespace [\w:]+ \{\n((class|struct) \w+;\n)+\}", "", text, flags=re.MULTILINE)
    return set(re.findall(r"^namespace (hvd[\w:]*) \{", text, flags=re.MULTILINE))


def namespace_offences() -> list[str]:
    found = []
    for path in sorted((ROOT / "src").rglob("*.[hc]*")):
        folders = path.relative_to(ROOT / "src").parts[:-1]
        allowed = namespaces_of(folders)
        declared = named_namespaces(path.read_text())
        if not declared and path.suffix == ".cc":
            continue  # functions of a C interface, and what they alone use
        if not declared or declared - allowed:
            found.append(f"{path.relative_to(ROOT)}: declares {sorted(declared)}; its namespace is {max(allowed)}")
    return found


def definitions(text: str) -> set[str]:
    """What a C++ file defines at its margin: functions with the types of their parameters, constants and types."""
    functions = {f"{m[1]}({_PARAMETER_NAME.sub('', m[2])})" for m in _FUNCTION.finditer(text)}
    return functions.union(_TYPE.findall(text), _CONSTANT.findall(text))


def twice(texts: Mapping[str, str]) -> list[str]:
    """Which definitions two files of one namespace have in common.

    Args:
        texts: of files, by name.
    """
    seen: dict[tuple[str, str], str] = {}
    found = []
    for name, text in texts.items():
        for key in sorted((space, what) for space in named_namespaces(text) for what in definitions(text)):
            other = seen.setdefault(key, name)
            if other != name:
                found.append(f"{name}: defines {key[1]} in {key[0]}, as {other} does; they may be compiled together")
    return found


def definition_offences() -> list[str]:
    paths = [path for path in sorted((ROOT / "src").rglob("*.cc")) if not CPP_COMPILED_ALONE & {*path.parts}]
    return twice({str(path.relative_to(ROOT)): path.read_text() for path in paths})


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


def imports() -> dict[str, tuple[Path, list[tuple[int, str]]]]:
    """Per module: its file, and (line, name) of what it imports from this package."""
    found = {}
    for path in sorted((ROOT / "python" / "horovod").rglob("*.py")):
        relative = path.relative_to(ROOT / "python").with_suffix("")
        is_package = relative.name == "__init__"
        module = ".".join(relative.parts[:-1] if is_package else relative.parts)
        found[module] = (path, imported(ast.parse(path.read_text()), module, is_package))
    return found


def may_import(module: str, name: str) -> bool:
    layer, target = layer_of(module), layer_of(name)
    below = (layer, *PYTHON[layer])
    return target == "horovod" or any(target == allowed or target.startswith(allowed + ".") for allowed in below)


def python_offences() -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line}: {layer_of(module)} must not import {name}"
        for module, (path, names) in imports().items()
        for line, name in names
        if not may_import(module, name)
    ]


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle, as a line that names it; nothing if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return ["a circle: " + " -> ".join(error.args[1])]
    return []


def circles() -> list[str]:
    headers: dict[str, set[str]] = {}
    for name, _, included in includes():
        headers.setdefault(name, set()).add(included)
    modules = imports()

    def module_of(name: str) -> str:  # of a name inside a module: that module
        while name not in modules:
            name = name.rpartition(".")[0]
        return name

    graph = {module: {module_of(name) for _, name in names} - {module} for module, (_, names) in modules.items()}
    return circle(headers) + circle(graph)


def main() -> int:
    offences = cpp_offences() + cpp_offences_within() + namespace_offences() + definition_offences()
    offences += python_offences() + circles()
    print("\n".join(offences) or "layers: every arrow points down, no circle, every file in its namespace")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
