"""Which rank is behind, and where in its code: from the dumps of all ranks to a few lines. Pure.

An operation waits for the members of its process set that have not submitted it. Listed first are those that wait for
nothing themselves: the others mostly wait because of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Optional

from horovod._dumps.stacks import users_frame
from horovod._dumps.values import HOROVOD, Dump, Frame, Operation

_SETTLED_S: Final = 0.5  # what is younger may be on its way
_MOST_OPERATIONS: Final = 3  # named for each rank
_MOST_LINES: Final = 16
_MOST_RANGES: Final = 8
_MOST_HOSTS: Final = 4


@dataclass
class _Behind:
    """What waits for one rank."""

    operations: dict[tuple[int, str], str] = field(default_factory=dict)  # what messages call them
    waiters: set[int] = field(default_factory=set)
    seconds: float = 0.0


class _State(NamedTuple):
    """ "is in train.py:57, in validate()", of one rank and of several."""

    verb: str
    verb_of_many: str
    rest: str

    def of(self, many: bool) -> str:
        return f"{self.verb_of_many if many else self.verb} {self.rest}"


class _Story(NamedTuple):
    """What the report says about a rank; ranks with equal stories share a line."""

    not_called: str  # and for whom; empty: nobody waits for it
    state: _State
    certain: bool = True  # that it was not called

    def text(self, ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
        many = len(ranks) > 1
        who = ranks_text(ranks) + _hosts_text([hosts[rank] for rank in ranks if rank in hosts])
        if not self.not_called:
            return f"{who} {self.state.of(many)}"
        verb = "may not have" if not self.certain else "have not" if many else "has not"
        return f"{who} {verb} called {self.not_called}; {'they' if many else 'it'} {self.state.of(many)}"


def compare(
    dumps: Mapping[int, Dump], absent: Mapping[int, str], hosts: Optional[Mapping[int, str]] = None
) -> list[str]:
    """One line for each rank, or ranks of the same story, that others wait for; then for those that sent nothing. When
    nobody waits for anybody: where each rank is.

    Args:
        dumps: by rank.
        absent: why the others have given none: "stopped by a signal".
        hosts: of the ranks; None: as the dumps say. They are named when there are several.
    """
    names = {**{rank: dump.host for rank, dump in dumps.items()}, **(hosts or {})}
    shown = names if len(set(names.values())) > 1 else {}
    behind = _behind(dumps)
    stories: dict[_Story, list[int]] = {}
    for rank in sorted(behind, key=lambda rank: (_waits(dumps.get(rank)), rank)):
        stories.setdefault(_story_behind(behind[rank], dumps.get(rank), absent.get(rank, "")), []).append(rank)
    for rank in sorted(set(absent) - set(behind)):
        stories.setdefault(_Story("", _silent(absent[rank])), []).append(rank)
    if not behind:
        for rank in sorted(dumps):
            stories.setdefault(_Story("", _state(dumps[rank])), []).append(rank)
    lines = [printable(story.text(ranks, shown)) for story, ranks in stories.items()]
    if len(lines) > _MOST_LINES:
        return [*lines[:_MOST_LINES], f"... and {len(lines) - _MOST_LINES} more lines"]
    return lines


def anybody_behind(dumps: Mapping[int, Dump]) -> bool:
    """An operation waits for a rank that has not submitted it."""
    return bool(_behind(dumps))


def printable(line: str) -> str:
    """Names of tensors and files may hold anything, and reach a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def ranks_text(ranks: Iterable[int]) -> str:
    """ "rank 3", "ranks 0, 2-5"."""
    numbers = sorted(ranks)
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [
        f"{low}" if low == high else f"{low}-{high}" if high > low + 1 else f"{low}, {high}" for low, high in ranges
    ]
    if len(texts) > _MOST_RANGES:
        texts = [*texts[:_MOST_RANGES], "..."]
    return f"rank{'' if len(numbers) == 1 else 's'} {', '.join(texts)}"


def _hosts_text(hosts: Iterable[str]) -> str:
    """ " (host2)", " (host1, host2)"; nothing without hosts."""
    names = list(dict.fromkeys(hosts))
    if not names:
        return ""
    return f" ({', '.join(names[:_MOST_HOSTS])}{', ...' if len(names) > _MOST_HOSTS else ''})"


def _behind(dumps: Mapping[int, Dump]) -> dict[int, _Behind]:
    """The ranks that others wait for."""
    have: dict[tuple[int, str], dict[int, Operation]] = {}
    sets: dict[int, tuple[int, ...]] = {}
    for rank, dump in dumps.items():
        sets.update(dump.process_sets)
        for one in dump.pending:
            have.setdefault((one.process_set, one.name), {})[rank] = one
    found: dict[int, _Behind] = {}
    for key, by_rank in sorted(have.items(), key=lambda item: -max(one.seconds for one in item[1].values())):
        seconds = max(one.seconds for one in by_rank.values())
        if seconds < _SETTLED_S:
            continue
        one = next(iter(by_rank.values()))
        for rank in set(one.members or sets.get(key[0], ())) - set(by_rank):
            if rank in dumps and any(_ended_since(key, dumps[rank], dumps[waiter]) for waiter in by_rank):
                continue
            entry = found.setdefault(rank, _Behind())
            entry.operations[key] = _call_of_other(one)
            entry.waiters |= set(by_rank)
            entry.seconds = max(entry.seconds, seconds)
    return found


def _call_of_other(one: Operation) -> str:
    """What a rank has to call that takes part in this operation of another one."""
    call, _, rest = one.what.partition(" ")
    return f"{'recv' if call == 'send' else 'send'} {rest}" if one.members else one.what


def _ended_since(key: tuple[int, str], there: Dump, here: Dump) -> bool:
    """The operation that waited when the dump `here` was made had ended when that `there` was, some moments later.

    Operations of a process set end in one order on all its members, so it is one that has ended there behind the last
    one that had ended here.
    """
    pair = {there.rank, here.rank}
    ended, before = (
        [
            (one.process_set, one.name)
            for one in dump.finished
            if one.process_set == key[0] and (not one.members or pair == set(one.members))
        ]
        for dump in (there, here)
    )
    if not here.finished:
        return key in ended
    if not before or before[-1] not in ended:
        return False
    last = len(ended) - 1 - ended[::-1].index(before[-1])
    return key in ended[last + 1 :]


def _waits(dump: Optional[Dump]) -> bool:
    return dump is not None and bool(dump.pending)


def _story_behind(behind: _Behind, dump: Optional[Dump], why_absent: str) -> _Story:
    names = list(behind.operations.values())
    what = ", ".join(names[:_MOST_OPERATIONS])
    if len(names) > _MOST_OPERATIONS:
        what += f" and {len(names) - _MOST_OPERATIONS} more"
    what += f" (waited for by {ranks_text(behind.waiters)} for {_seconds(behind.seconds)})"
    if dump is None:
        return _Story(what, _silent(why_absent), certain=False)
    state = _state(dump)
    if dump.finished:
        state = state._replace(rest=f"{state.rest}, after finishing {dump.finished[-1].what}")
    return _Story(what, state, certain=not (dump.stacks_only or dump.untold))


def _silent(why: str) -> _State:
    return _State("gave", "gave", f"no dump ({why or 'nothing is known of it'})")


def _state(dump: Dump) -> _State:
    frames = dump.main_thread
    if not frames:
        return _State("has", "have", "not reported its place")
    here = users_frame(frames) or frames[-1]
    deeper = frames[frames.index(here) + 1 :]
    place = _place(dump, here)
    if any(frame.owner == HOROVOD for frame in deeper):
        if dump.pending:
            return _State("waits", "wait", f"for {dump.pending[0].what} in {place}")
        return _State("is", "are", f"in a call of Horovod in {place}")
    inner = f" (there in {_place(dump, deeper[-1])})" if deeper else ""
    if dump.stacks_only:
        inner += ", where native code lets no Python run"
    return _State("is", "are", f"in {place}{inner}")


def _place(dump: Dump, frame: Frame) -> str:
    return f"{shown_file(frame.file, dump.directory)}:{frame.line}, in {function_text(frame.function)}"


def shown_file(file: str, directory: str) -> str:
    """A path as its user would write it."""
    below = file.startswith(directory + os.sep) if directory else False
    return os.path.relpath(file, directory) if below else file


def function_text(name: str) -> str:
    """ "validate()", "<module>"."""
    return name if name.startswith("<") else f"{name}()"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def without_times(lines: Sequence[str]) -> str:
    """What stays the same while the same ranks wait for the same."""
    return re.sub(r" for [0-9.]+ s\)", ")", "\n".join(lines))
