"""`ElasticSampler` without an engine: rank and size are given by the tests."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod._core.life import context
from horovod.torch.elastic import ElasticSampler


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets rank and size."""

    def set_world(rank: int, size: int) -> None:
        monkeypatch.setattr(context, "is_initialized", lambda: True)
        monkeypatch.setattr(context, "rank", lambda: rank)
        monkeypatch.setattr(context, "size", lambda: size)

    return set_world


def shards(world: Any, size: int, **state: Any) -> list[list[int]]:
    """Each rank's indices of a data set of 23."""
    result = []
    for rank in range(size):
        world(rank, size)
        sampler = ElasticSampler(range(23))
        sampler.load_state_dict({"epoch": 0, "processed_num": 0, **state})
        result.append(list(sampler))
    return result


def test_shards_cover_everything_and_are_of_equal_length(world: Any) -> None:
    parts = shards(world, 4)
    assert {len(part) for part in parts} == {6}
    assert set().union(*parts) == set(range(23))


@pytest.mark.parametrize("seed", [5, np.int64(5)])
def test_the_order_of_a_seed_is_that_of_existing_programs(world: Any, seed: Any) -> None:
    world(0, 1)
    sampler = ElasticSampler(range(23), seed=seed)
    sampler.set_epoch(2)
    expected = list(range(23))
    random.Random(5 + 2).shuffle(expected)
    assert list(sampler) == expected


def test_epochs_are_shuffled_differently_but_alike_on_all_ranks(world: Any) -> None:
    assert shards(world, 2, epoch=1) != shards(world, 2, epoch=2)
    assert shards(world, 2, epoch=1) == shards(world, 2, epoch=1)


def test_without_shuffle_indices_are_in_order(world: Any) -> None:
    world(1, 2)
    assert list(ElasticSampler(range(6), shuffle=False)) == [1, 3, 5]


def test_processed_samples_are_not_done_again_by_fewer_ranks(world: Any) -> None:
    done: list[int] = []
    for rank in range(4):
        world(rank, 4)
        sampler = ElasticSampler(range(23))
        done += sampler.get_indices(0, 2) + sampler.get_indices(1, 2)
        sampler.record_batch(0, 2)
        sampler.record_batch(1, 2)
    assert sampler.processed_num == 16
    left = shards(world, 2, **sampler.state_dict())
    assert set().union(*left) == set(range(23)) - set(done)


def test_set_epoch_begins_anew(world: Any) -> None:
    world(0, 1)
    sampler = ElasticSampler(range(5))
    sampler.record_batch(0, 3)
    assert sampler.processed_num == 3
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.processed_num, len(sampler)) == (1, 0, 5)


def test_one_rank_before_init() -> None:
    assert sorted(ElasticSampler(range(5))) == [0, 1, 2, 3, 4]


@given(st.integers(0, 40), st.integers(1, 7), st.integers(0, 45))
def test_any_count_any_ranks(count: int, size: int, processed: int) -> None:
    parts = []
    for rank in range(size):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(context, "is_initialized", lambda: True)
            patch.setattr(context, "rank", lambda rank=rank: rank)
            patch.setattr(context, "size", lambda: size)
            sampler = ElasticSampler(range(count), shuffle=False)
            sampler.load_state_dict({"epoch": 0, "processed_num": processed})
            parts.append(list(sampler))
            assert len(parts[-1]) == len(sampler)
    left = set(range(min(processed, count), count))
    assert len({len(part) for part in parts}) == 1 and set().union(*parts) == left
