"""Every Python block of the documentation compiles, uses names that exist, and runs, or says why not (see `pages`)."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import horovodrun, python, run_well
from pages import PAGES, PROGRAMS, Block, Page

from horovod._core.frameworks import FRAMEWORKS

BLOCKS = [block for page in PAGES for block in page.blocks("python")]
# What `hvd` is on pages whose blocks do not import it under that name; on all others it is horovod.torch.
_MODULES = {
    "docs/jax-libraries.md": "horovod.jax",
    "docs/jax-operations.md": "horovod.jax",
    "docs/keras-2.md": "horovod.keras",
    "docs/keras-optimizer.md": "horovod.keras",
    "docs/scripts.md": "horovod.keras",
    "docs/tensorflow-data-service.md": "horovod.tensorflow",
}
_HEAVY = (*(name for name in FRAMEWORKS if name != "numpy"), "tf_keras", "optax")
_APART = ("mxnet", "pyspark")  # environments of their own have them
_ESTIMATORS = re.compile(
    r"\bhorovod\.spark\.(?:torch|keras|lightning)\b"
)  # which look pyspark up when they are asked for
_LOOK_UP = """
import importlib, sys
for path in sys.argv[1:]:
    module, _, names = path.partition(":")
    found = importlib.import_module(module)
    for name in filter(None, names.split(".")):
        try:
            inside = getattr(found, name, None)
            found = importlib.import_module(f"{found.__name__}.{name}") if inside is None else inside
        except (AttributeError, ImportError) as error:
            if getattr(error, "name", "") == "ray":  # its names for Ray Train need Ray, which is not here
                break
            print(f"{module} has no {names}")
            break
"""


def names_in(text: str, hvd: str) -> set[tuple[str, str]]:
    """Module and dotted name of everything that a block takes from Horovod; `hvd` is what it does not import itself."""
    tree = ast.parse(text)
    bound, found = {"hvd": hvd}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "horovod":
                    found.add((alias.name, ""))
                    bound[alias.asname or "horovod"] = alias.name if alias.asname else "horovod"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "horovod":
            found |= {(str(node.module), alias.name) for alias in node.names}
    for node in ast.walk(tree):
        first, _, names = ast.unparse(node).partition(".") if isinstance(node, ast.Attribute) else ("", "", "")
        if first in bound and re.fullmatch(r"[\w.]+", names):
            found.add((bound[first], names))
    return found


def modules_of(page: Page) -> Iterator[tuple[int, str]]:
    """Line from which on `hvd` means which module."""
    yield 0, _MODULES.get(str(page), "horovod.torch")
    for block in page.blocks("python"):
        if found := re.search(r"^import (horovod[\w.]*) as hvd$", block.text, re.MULTILINE):
            yield block.line, found[1]


def used_names() -> dict[str, set[str]]:
    """By module, "module:name" of all that blocks, and words in backquotes, take from it."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        modules = list(modules_of(page))
        texts = [(block.line, block.text) for block in page.blocks("python")]
        for line, words in page.words():
            place = max(
                line, modules[-1][0] if len(modules) == 2 else line
            )  # the only module holds above its block too
            texts += [(place, name) for name in re.findall(r"\bhvd\.[\w.]*\w", words)]
        for line, text in texts:
            hvd = [module for start, module in modules if start <= line][-1]
            for module, name in names_in(text, hvd):
                found.setdefault(module, set()).add(f"{module}:{name}")
    return found


USED = used_names()


def missing_frameworks(text: str) -> list[str]:
    """What a program imports, by itself or through Horovod, and is not installed."""
    asked = set(re.findall(r"^(?:import|from) (?:horovod\.)?(\w+)", text, re.MULTILINE))
    asked |= {"pyspark"} if _ESTIMATORS.search(text) else set()
    return [name for name in ("pyspark", *_HEAVY) if name in asked and not importlib.util.find_spec(name)]


def heavy(text: str) -> bool:
    return any(re.search(rf"\b{name}\b", text) for name in _HEAVY)


def warm(text: str) -> str:
    """The framework that a program's ranks may find imported: none that reads what the program itself sets."""
    if "KERAS_BACKEND" in text:
        return "torch"  # which brings no Keras
    return "tensorflow" if re.search(r"\b(tensorflow|keras|tf_keras)\b", text) else "torch" if "torch" in text else ""


def marked(thing: object, text: str) -> object:
    """A parameter of a test, slow if a framework has to be loaded for it."""
    return pytest.param(thing, id=str(thing), marks=[pytest.mark.slow] if heavy(text) else [])


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_compiles_and_says_how_it_is_run(block: Block) -> None:
    assert block.way
    compile(block.whole(), str(block), "exec")


@pytest.mark.parametrize("module", [marked(name, name if name != "horovod.torch" else "") for name in sorted(USED)])
def test_names_exist(module: str) -> None:
    if missing := missing_frameworks(f"import {module}"):
        pytest.skip(f"{'Not here: ' * (missing[0] in _APART)}{missing[0]} is not installed.")
    said = run_well(python("-c", _LOOK_UP, *sorted(USED[module]), warm=warm(module)))
    assert not said, said


@pytest.mark.parametrize("block", [marked(b, b.whole()) for b in BLOCKS if not b.way["reason"]])
def test_runs(block: Block, tmp_path: Path) -> None:
    if missing := missing_frameworks(block.whole()):
        pytest.skip(f"{missing[0]} is not installed.")
    program = tmp_path / "train.py"
    program.write_text(block.whole())
    run_well(horovodrun(int(block.way["ranks"] or 0), program, warm=warm(block.whole())), cwd=tmp_path)


def test_every_program_has_a_block() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {name for b in BLOCKS if (name := b.way["program"])}


def test_what_names_are_found() -> None:
    text = "import horovod.numpy as n\nfrom horovod.torch import elastic\nn.a.b(hvd.c().d)\nx.hvd.e"
    assert names_in(text, "m") == {
        ("horovod.numpy", ""),
        ("horovod.numpy", "a"),
        ("horovod.numpy", "a.b"),
        ("horovod.torch", "elastic"),
        ("m", "c"),
    }


@pytest.mark.parametrize(
    "info", ["python", "python ranks=", "python in=training", "python not run:", "python ranks=2 x"]
)
def test_a_block_must_say_how_it_is_run(info: str) -> None:
    with pytest.raises(ValueError, match="does not say how"):
        _ = Block(PAGES[0], 1, info, "").way


def test_a_missing_name_is_found() -> None:
    assert run_well([sys.executable, "-c", _LOOK_UP, "horovod:run", "horovod:runn"]) == "horovod has no runn\n"
