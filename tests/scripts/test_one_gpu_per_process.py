"""Every example, and every Python block of the documentation, that calls `hvd.init()` with a framework that uses GPUs
gives its process a GPU of its own, afterwards and by its local rank.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from pages import PAGES  # noqa: E402 - where the other tests of pages find it

# By framework, what chooses the GPU: a call, or an attribute that is assigned.
CHOICES = {
    "torch": ("set_device",),
    "tensorflow": ("set_visible_devices", "visible_device_list"),
    "jax": ("jax_cuda_visible_devices",),
}
BACKENDS = tuple(CHOICES)


def frameworks(tree: ast.AST) -> set[str]:
    """What a program trains with: horovod.keras means each of Keras' backends, horovod.numpy none."""
    names = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    bound = {name.split(".")[1] for name in names if name.startswith("horovod.")}
    return bound & set(CHOICES) | (set(BACKENDS) if "keras" in bound else set())


def line_of_init(tree: ast.AST) -> int:
    """Line of the call of `hvd.init()`; 0 without one."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return min((node.lineno for node in calls if ast.unparse(node.func) == "hvd.init"), default=0)


def chosen(tree: ast.AST) -> set[str]:
    """The frameworks whose GPU is chosen by the local rank; by a name for it too, as in `set_device(device)`."""
    text = ast.unparse(tree)
    names = {"hvd.local_rank()"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "hvd.local_rank()" in ast.unparse(node.value):
            names |= {ast.unparse(target) for target in node.targets}
    found = set()
    for statement in (node for node in ast.walk(tree) if isinstance(node, (ast.Expr, ast.Assign))):
        text = ast.unparse(statement)
        for framework, words in CHOICES.items():
            if any(word in text for word in words) and any(name in text for name in names):
                found.add(framework)
    return found


def offence(text: str) -> str:
    """Why a program shares GPUs among its ranks; empty if it does not."""
    tree = ast.parse(text)
    if not line_of_init(tree):
        return ""
    missing = sorted(frameworks(tree) - chosen(tree))
    return f"no GPU is chosen by hvd.local_rank() for {', '.join(missing)}" if missing else ""


def programs() -> Iterator[tuple[str, str]]:
    """Name and text of the examples, and of the blocks of the documentation."""
    for path in sorted([*(ROOT / "examples").rglob("*.py"), *(ROOT / "deploy").rglob("*.py")]):
        yield str(path.relative_to(ROOT)), path.read_text()
    for page in PAGES:
        blocks = page.blocks("python")
        functions = [block.text for block in blocks if block.text.startswith("def ")]  # that other blocks call
        for block in blocks:
            called = [text for text in functions if f"\n{text[4 : text.index(':')]}" in block.text]
            yield str(block), "\n".join([block.text, *called])


@pytest.mark.parametrize(("name", "text"), [pytest.param(*each, id=each[0]) for each in programs()])
def test_each_process_has_a_gpu_of_its_own(name: str, text: str) -> None:
    assert not offence(text), f"{name}: {offence(text)}"


TORCH = "import torch\nimport horovod.torch as hvd\nhvd.init()\n"
KERAS = "import horovod.keras as hvd\nhvd.init()\n"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (TORCH, "torch"),
        (TORCH + "torch.cuda.set_device(0)", "torch"),
        (TORCH + "# torch.cuda.set_device(hvd.local_rank())", "torch"),
        (TORCH + "torch.cuda.set_device(hvd.local_rank())", ""),
        (TORCH + "device = hvd.local_rank()\ntorch.cuda.set_device(device)", ""),
        (KERAS + "torch.cuda.set_device(hvd.local_rank())", "jax, tensorflow"),
        ("import horovod.tensorflow.keras as hvd\nhvd.init()\n", "tensorflow"),
        ("import horovod.numpy as hvd\nhvd.init()\n", ""),
        ("import horovod.torch as hvd\n", ""),
    ],
)
def test_an_example_without_one_is_found(text: str, named: str) -> None:
    assert offence(text).rpartition(" for ")[2] == named
