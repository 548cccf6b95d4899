"""Lists of hosts in the short form of Slurm and Flux: `node[1-3,7],login`, `r[1-2]c[01-04]-eth`. Pure.

Used by `slurm` and `flux`. Facts: the manual page of scontrol (show hostnames), Flux RFC 29.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

from horovod._core.errors import InvalidArgumentError

_MOST: Final = 1 << 16  # hosts; and of what is between brackets
_MAX_LENGTH: Final = 1 << 20
_RANGE: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_EXAMPLE: Final = "expected a list like node[1-3,7],login"


def expand(text: str, where: str) -> list[str]:
    """The names, in the order of the list; what is in several brackets runs fastest in the last.

    Args:
        text: the list.
        where: it stands, for messages.

    Raises:
        InvalidArgumentError: it is not such a list, or far too long.
    """
    if len(text) > _MAX_LENGTH:
        raise InvalidArgumentError(f"{where} is longer than {_MAX_LENGTH} characters; is it a list of hosts?")
    names: list[str] = []
    for piece in _pieces(text, where):
        names += _names(piece, where, _MOST - len(names))
    return names


def _pieces(text: str, where: str) -> list[str]:
    """Cuts at the commas outside of brackets."""
    pieces, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and not depth:
            pieces.append(text[start:at].strip())
            start = at + 1
        if depth not in (0, 1):
            raise InvalidArgumentError(f"{where}: unexpected bracket at {text[at : at + 20]!r}; {_EXAMPLE}.")
    if depth:
        raise InvalidArgumentError(f"{where}: a bracket is not closed; {_EXAMPLE}. Received: {text[-60:]!r}.")
    return [*pieces, text[start:].strip()]


def _names(piece: str, where: str, most: int) -> list[str]:
    if not piece:
        raise InvalidArgumentError(f"{where}: a name is missing between commas; {_EXAMPLE}.")
    # Outside and inside of brackets by turns: "node", "1-3,7", "".
    parts = re.split(r"[\[\]]", piece)
    choices = [_numbers(part, where) if index % 2 else [part] for index, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
        if count > most:
            raise InvalidArgumentError(f"{where} names more than {_MOST} hosts; name yours with -H.")
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _numbers(text: str, where: str) -> list[str]:
    """The numbers of one pair of brackets, as they are written: those of a range are as wide as its first."""
    found: list[str] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(f"{where}: {part!r} is neither a number nor a range; {_EXAMPLE}.")
        first, last = match.group(1), match.group(2) or match.group(1)
        low, high = int(first), int(last)
        if high < low:
            raise InvalidArgumentError(f"{where}: the range {part!r} runs backwards; {_EXAMPLE}.")
        if len(found) + high - low >= _MOST:
            raise InvalidArgumentError(f"{where} names more than {_MOST} hosts; name yours with -H.")
        found += [str(number).zfill(len(first)) for number in range(low, high + 1)]
    return found
