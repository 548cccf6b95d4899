"""How people write flags: shortened, with the value attached, or as another launcher calls them. Pure.

Used by `flags`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from horovod._core.errors import InvalidArgumentError

_LEAST_BEGINNING: Final = 5
_CLOSE: Final = 0.85
_MOST_MEANT: Final = 3

# What torchrun, mpirun and srun call it.
_ELSEWHERE: Final = {
    "--nproc-per-node": "-np",
    "--nproc_per_node": "-np",
    "--nproc": "-np",
    "--np": "-np",
    "--ntasks": "-np",
    "--host": "-H",
    "--machinefile": "--hostfile",
    "-machinefile": "--hostfile",
    "-f": "--hostfile",
    "--timeout": "--start-timeout",
}

# Upstream has none of these, so a beginning that fits one of its flags alone still means that flag.
_NEW: Final = (
    "--check-parameters",
    "--dry-run",
    "--dump-call-sites",
    "--dump-directory",
    "--dump-on-stall",
    "--dump-signal",
    "--max-restarts",
    "--module",
    "--no-dump-on-stall",
    "--ranks",
    "--stdin-rank",
)


def spelled_out(word: str, widths: Mapping[str, int]) -> list[str]:
    """The flag's full name, and its value when that is part of the word: `--log-l` or `-np4`.

    Args:
        word: begins with "-".
        widths: all flags, and how many values each takes.

    Returns:
        One or two words; the given word itself where no flag fits, for the parser to refuse.

    Raises:
        InvalidArgumentError: it is the beginning of several flags.
    """
    name, equals, value = word.partition("=")
    if name in widths:
        return [word]
    if not name.startswith("--"):
        # The longest flag wins: -np4 is -np with 4, not -n with p4.
        known = [flag for flag in widths if widths[flag] == 1 and not flag.startswith("--") and word.startswith(flag)]
        longest = max(known, key=len, default="")
        return [longest, word[len(longest) :]] if _attaches(longest, word) else [word]
    if len(name) < 3:
        return [word]
    fitting = sorted(flag for flag in widths if flag.startswith(name))
    upstreams = [flag for flag in fitting if flag not in _NEW]
    if len(upstreams) == 1:
        fitting = upstreams
    if len(fitting) > 1:
        raise InvalidArgumentError(f"{name} could be {', '.join(fitting[:-1])} or {fitting[-1]}; write more of it.")
    return [fitting[0] + equals + value] if fitting else [word]


def meant_by(word: str, widths: Mapping[str, int]) -> str:
    """ " Did you mean X?" for a flag of another launcher, or for the wrong case; else an empty text."""
    other = _ELSEWHERE.get(word) or next((name for name in (word.lower(), word.upper()) if name in widths), "")
    return f" Did you mean {other}?" if other else ""


def beginning_meant_by(word: str, flags: Iterable[str]) -> str:
    """ " Did you mean X?" for the mistyped beginning of flags, such as --timline; else an empty text."""
    import difflib  # not before somebody has mistyped

    if len(word) < _LEAST_BEGINNING:
        return ""
    begun: dict[str, list[str]] = {}
    for flag in sorted(flags):
        for length in (len(word) - 1, len(word), len(word) + 1):
            if len(flag) > length:
                begun.setdefault(flag[:length], []).append(flag)
    close = difflib.get_close_matches(word, begun, n=1, cutoff=_CLOSE)
    return f" Did you mean {' or '.join(begun[close[0]][:_MOST_MEANT])}?" if close else ""


def _attaches(flag: str, word: str) -> bool:
    # Only numbers and paths are written without a space (-np4, -p22, -i/home/me/key): the rest are typing mistakes.
    return bool(flag) and (word[len(flag) :].isdecimal() or word[len(flag) :].startswith("/"))
