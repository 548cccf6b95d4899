"""Every command of the documentation, in a block of shell or in backquotes, is one that works: the launcher's own
parser takes its words, verbs of make exist, and so do the files, modules, options and extras that it names.

A file name without a folder is the reader's own (`train.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pages import PAGES, ROOT, Page

from horovod._core.errors import InvalidArgumentError
from horovod._core.settings import SETTINGS
from horovod.runner.options import flags

_PROGRAMS = ("horovodrun", "make", "pip", "python")
_MODULES_OF_OTHERS = ("mpi4py",)
_VARIABLES = {name for setting in SETTINGS for name in [setting.env] if name}


def complaints(words: Sequence[str]) -> list[str]:
    """What is wrong with a command."""
    words = list(words)
    found = []
    while words and re.match(r"[A-Z]\w*=", words[0]):
        variable = words.pop(0).partition("=")[0]
        if variable.startswith("HOROVOD_") and variable not in _VARIABLES:
            found.append(f"{variable} is no setting")
    name, *rest = words or [""]
    check = {"horovodrun": _horovodrun, "make": _make, "pip": _pip, "python": _python}.get(name)
    return found + (check(rest) if check else [f"{name!r} is none of {', '.join(_PROGRAMS)}"])


def _horovodrun(words: Sequence[str]) -> list[str]:
    if words and words[0] in ("-h", "--help"):  # which end the process
        return []
    try:
        command = flags.parse(words).command
    except InvalidArgumentError as error:
        return [str(error)]
    return complaints(command) if command and command[0] == "python" else []


def _make(words: Sequence[str]) -> list[str]:
    verbs = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [f"make has no verb {word}" for word in words if "=" not in word and word not in verbs]


def _pip(words: Sequence[str]) -> list[str]:
    asked = [extra for word in words for extra in re.findall(r"\[(.*)\]", word)]
    offered = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    return [f"there is no extra {extra}" for extra in asked if not re.search(rf"^{extra} =", offered, re.MULTILINE)]


def _module(name: str) -> Path:
    """The file that `python -m name` runs; of the tests' own modules too."""
    parts = name.split(".")
    place = Path("tests" if (ROOT / "tests" / parts[0]).is_dir() else "python", *parts)
    return place / "__main__.py" if (ROOT / place).is_dir() else place.with_suffix(".py")


def _python(words: Sequence[str]) -> list[str]:
    if not words or words[0] == "-c" or (words[0] == "-m" and words[1] in _MODULES_OF_OTHERS):
        return []
    if words[:2] == ["-m", "pytest"]:
        return [f"{word} does not exist" for word in words[2:] if "/" in word and not (ROOT / word).exists()]
    place = _module(words[1]) if words[:1] == ["-m"] else Path(words[0])
    if len(place.parts) == 1 or place.is_absolute():
        return []
    if not (ROOT / place).exists():
        return [f"{place} does not exist"]
    options = [option for word in words for option in re.findall(r"--[a-z][\w-]*", word)]
    text = (ROOT / place).read_text()
    return [f"{place} has no option {option}" for option in options if f'"{option}"' not in text]


def commands(page: Page) -> Iterator[tuple[int, list[str]]]:
    """Line and words of each."""
    for block in page.blocks("sh"):
        for number, line in enumerate(block.text.splitlines(), block.line + 1):
            if words := shlex.split(line, comments=True):
                yield number, words
    for number, text in page.words():
        words = shlex.split(text) if text.count("'") % 2 == 0 and text.count('"') % 2 == 0 else text.split()
        program, *arguments = [word for word in words if not re.match(r"[A-Z_]+=", word)] or [""]
        if program in _PROGRAMS and arguments:
            yield number, words


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_work(page: Page) -> None:
    offences = [f"{page}:{line}: {why}" for line, words in commands(page) for why in complaints(words)]
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_blocks_name_their_language(page: Page) -> None:
    """Or hold no command: what is in a block of another language is not checked."""
    others = [str(block) for block in page.blocks("bash", "shell", "console", "py", "pycon")]
    assert not others, f"write ```sh or ```python: {others}"
    plain = [
        b for b in page.blocks("") if re.search(rf"^([A-Z_]+=\S* )*({'|'.join(_PROGRAMS)}) ", b.text, re.MULTILINE)
    ]
    assert not plain, f"write ```sh: {[str(block) for block in plain]}"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("horovodrun -np 2 python train.py --anything", ""),
        ("horovodrun -np two python train.py", "-np"),
        ("horovodrun --no-such-option python train.py", "--no-such-option"),
        ("horovodrun -np 2 python examples/none.py", "examples/none.py does not exist"),
        ("HOROVOD_NONSENSE=1 python train.py", "HOROVOD_NONSENSE is no setting"),
        ("make demo JOBS=1", ""),
        ("make tea", "no verb tea"),
        ("pip install .[torch]", ""),
        ("pip install .[caffe]", "no extra caffe"),
        ("python -m pytest tests/none", "tests/none does not exist"),
        ("python -m horovod.none", "does not exist"),
        ("python benchmarks/compare.py --only x --none", "has no option --none"),
        ("rm -r x", "'rm' is none of"),
    ],
)
def test_what_is_wrong_with_a_command(command: str, why: str) -> None:
    said = "\n".join(complaints(command.split()))
    assert why in said and bool(why) == bool(said)
