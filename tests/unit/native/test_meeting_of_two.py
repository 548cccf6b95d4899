"""The protocol of two ranks that meet without a negotiation (src/engine/express/meeting_of_two.cc), in every order.

A model: each step is one access to shared memory. All states that two ranks can reach are looked at, however they are
late, lose patience and come again. What the model leaves out is weak memory: each access that it orders is an acquire
or a release in C++.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

COMES = 3  # of each rank; one that happens, one that does not and a stale one behind it need no more


@dataclass(frozen=True)
class Word:
    """Of a rank: the last round that has happened there, and which round the other has left."""

    happened: int = 0
    left: int | None = None
    changes: int = 0

    def marked(self, left: int | None) -> Word:
        return Word(self.happened, left, self.changes + 1)


@dataclass(frozen=True)
class Rank:
    step: str = "away"
    came: int = 0
    round: int = 1
    marked: bool = False
    offering: bool = False
    seen: Word = field(default=Word())
    met: tuple[tuple[int, int], ...] = ()  # own and the other's number of the call


@dataclass(frozen=True)
class State:
    ranks: tuple[Rank, Rank] = (Rank(), Rank())
    words: tuple[Word, Word] = (Word(), Word())
    offers: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))  # by rank and parity of the round
    brought: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))


def _set(pair: tuple, index: int, value: object) -> tuple:
    return (value, pair[1]) if index == 0 else (pair[0], value)


def next_states(state: State, me: int, retracts: bool = True) -> Iterator[State]:
    """All that can follow when a rank does its next step.

    Args:
        me: the rank.
        retracts: whether a rank that finds itself left takes its offer back before it takes the mark away.
    """
    rank, other = state.ranks[me], 1 - me
    parity = rank.round % 2

    def to(step: str, rank: Rank = rank, **shared: object) -> State:
        return replace(state, ranks=_set(state.ranks, me, replace(rank, step=step)), **shared)

    def words(who: int, word: Word) -> tuple:
        return _set(state.words, who, word)

    def of_mine(cells: tuple, value: int) -> tuple:
        return _set(cells, me, _set(cells[me], parity, value))

    mine, theirs = state.words[me], state.words[other]
    if rank.step == "away":
        if rank.came < COMES:
            come = replace(rank, came=rank.came + 1, offering=False)
            after = "forget" if rank.marked else "look"
            yield to(after, come, brought=of_mine(state.brought, come.came))
    elif rank.step in ("forget", "forget and go"):
        after = "look" if rank.step == "forget" else "away"
        shared = words(other, theirs.marked(None)) if theirs.left is not None else state.words
        yield to(after, replace(rank, marked=False), words=shared)
    elif rank.step == "look":
        seeing = replace(rank, seen=mine)
        if mine.left == rank.round:
            yield to("retract" if rank.offering and retracts else "take the mark", seeing)
        else:
            yield to("peek" if rank.offering else "offer", seeing)
    elif rank.step == "retract":
        yield to("take the mark", replace(rank, offering=False), offers=of_mine(state.offers, 0))
    elif rank.step == "take the mark":
        if mine == rank.seen:
            yield to("has not happened", words=words(me, mine.marked(None)))
        else:
            yield to("look")
    elif rank.step == "offer":
        yield to("peek", replace(rank, offering=True), offers=of_mine(state.offers, rank.round))
    elif rank.step == "peek":
        if state.offers[other][parity] == rank.round:
            yield to("decide")
        else:
            yield to("look")
            yield to("leave")
    elif rank.step == "decide":
        if mine == rank.seen:
            yield to("read", words=words(me, replace(mine, happened=rank.round)))
        else:
            yield to("look")
    elif rank.step == "leave":
        yield to("mark", offers=of_mine(state.offers, 0))
    elif rank.step == "mark":  # a load and a swap that is tried again are one step for all that others see
        if theirs.happened == rank.round:
            yield to("read", words=words(me, replace(mine, happened=rank.round)))
        else:
            yield to("has not happened", replace(rank, marked=True), words=words(other, theirs.marked(rank.round)))
    elif rank.step == "read":
        met = (*rank.met, (rank.came, state.brought[other][parity]))
        yield to("away", replace(rank, met=met, round=rank.round + 1))
    elif rank.step == "has not happened":
        yield to("away")  # another thread may come before this one forgets
        if rank.marked:
            yield to("forget and go")


def disagreements(retracts: bool = True) -> tuple[int, list[State]]:
    """The number of states, and the last ones in which the ranks have not met in the same calls."""
    wrong, reached, ahead = [], {State()}, [State()]
    while ahead:
        state = ahead.pop()
        after = [new for me in (0, 1) for new in next_states(state, me, retracts)]
        if not after:
            ours, theirs = (rank.met for rank in state.ranks)
            if ours != tuple((own, other) for other, own in theirs):
                wrong.append(state)
        for new in after:
            if new not in reached:
                reached.add(new)
                ahead.append(new)
    return len(reached), wrong


def test_a_round_happens_on_both_ranks_or_on_none() -> None:
    states, wrong = disagreements()
    assert states > 10_000
    assert not wrong


def test_the_model_finds_an_offer_that_was_left_behind() -> None:
    assert disagreements(retracts=False)[1]
