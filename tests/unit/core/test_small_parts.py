"""Schedules, sparse allreduce, process-set objects, refusals, small functions for upstream's users."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from fakes.ranks import run_ranks

from horovod._core.compat import legacy
from horovod._core.errors import HorovodVersionMismatchError, InvalidArgumentError, MismatchError, UnsupportedError
from horovod._core.life.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    leaves_out_this_rank,
    listed,
    remove_process_set,
)
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.objects import allgather_object, broadcast_object
from horovod._core.operations.reduce_ops import Average, Max, Sum
from horovod._core.operations.sparse import start_sparse_allreduce
from horovod._core.training import schedules
from horovod.numpy.adapter import adapter

ops = Collectives(adapter)


def test_warm_up_is_linear_from_one_ranks_rate() -> None:
    multiplier = schedules.warmup_multiplier(4, 8)
    assert [multiplier(epoch) for epoch in (0, 2, 4, 9)] == [1 / 8, 4.5 / 8, 1.0, 1.0]
    with pytest.raises(InvalidArgumentError):
        schedules.warmup_multiplier(0, 8)


def test_a_number_is_an_exponential_schedule() -> None:
    multiplier = schedules.multiplier_function(0.5, start_epoch=2)
    assert [multiplier(epoch) for epoch in (2, 3, 5)] == [1.0, 0.5, 0.125]
    assert schedules.multiplier_function(lambda epoch: epoch + 1)(3) == 4


@pytest.mark.parametrize(
    ("epoch", "staircase", "rate"),
    [(0.0, True, None), (1.0, True, 0.5), (1.5, True, 0.5), (1.5, False, 0.75), (2.9, True, 1.0), (3.0, True, None)],
)
def test_scheduled_rate(epoch: float, staircase: bool, rate: Any) -> None:
    got = schedules.scheduled_rate(0.5, lambda at: at, epoch, (1, 3), staircase)
    assert got == rate


def test_momentum_follows_the_rate() -> None:
    assert schedules.momentum_correction(0.9, 0.1, 0.2) == pytest.approx(1.8)
    assert schedules.momentum_correction(0.9, 0.0, 0.2) == 0.9


@pytest.mark.parametrize(("op", "divisor"), [(Sum, 1), (Average, 3)])
def test_sparse_parts_are_gathered(op: int, divisor: int) -> None:
    def body(rank: int) -> Any:
        indices = np.arange(rank, dtype=np.int64)
        finish = start_sparse_allreduce(ops, (indices, indices * 10.0), "s", op, global_process_set, lambda *all_: all_)
        everywhere, values, by = finish()
        return everywhere.tolist(), values.tolist(), by

    assert run_ranks(3, body) == [([0, 0, 1], [0, 0, 10], divisor)] * 3


def test_sparse_maximum_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Max"):
        start_sparse_allreduce(ops, (None, None), "s", Max, global_process_set, lambda *all_: all_)


def test_process_set_objects() -> None:
    process_set = ProcessSet(range(3, 0, -1))
    assert process_set.ranks == [1, 2, 3]
    assert str(process_set) == "ProcessSet(process_set_id=None, ranks=[1, 2, 3], mpi_comm=None)"
    assert (process_set.size(), process_set.rank(), process_set.included()) == (None, None, False)
    assert global_process_set.included() is True
    for wrong in (["a"], 5, [1.5], [0, 0], [-1]):
        with pytest.raises(ValueError, match="ProcessSet needs"):
            ProcessSet(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a\0b", "a\udc80", 5, b"x", ["x"], {}])
def test_names_must_be_texts(name: Any) -> None:
    def body(rank: int) -> None:
        for operation in (
            ops.allreduce, ops.allreduce_, ops.allreduce_async_, ops.allgather, ops.alltoall, ops.reducescatter,
            lambda tensor, name: ops.broadcast(tensor, 0, name),
        ):  # fmt: skip
            with pytest.raises(InvalidArgumentError, match="name must be"):
                operation(np.ones(1), name=name)

    run_ranks(1, body)


def test_membership_is_known_without_registration() -> None:
    def body(rank: int) -> Any:
        process_set = ProcessSet([0, 2])
        before = process_set.included()
        assert not leaves_out_this_rank(process_set)
        add_process_set(process_set)
        during = process_set.included()
        assert leaves_out_this_rank(process_set) is not during
        remove_process_set(process_set)
        return before, during, process_set.included()

    assert run_ranks(3, body) == [(True,) * 3, (False,) * 3, (True,) * 3]


def test_process_sets_must_be_registered_objects() -> None:
    def body(rank: int) -> None:
        for wrong, words in ((None, "hvd.ProcessSet"), ([0], "hvd.ProcessSet"), (ProcessSet([0]), "not registered")):
            with pytest.raises(InvalidArgumentError, match=words):
                ops.allreduce(np.ones(1), process_set=wrong)  # type: ignore[arg-type]

    run_ranks(1, body)


def test_every_rank_may_refuse() -> None:
    def body(rank: int) -> None:
        for _ in range(2):
            with pytest.raises(InvalidArgumentError):
                ops.allreduce(np.ones(1, complex), name="x")
        assert ops.allreduce(np.ones(1), name="y", op=Sum).tolist() == [2]

    run_ranks(2, body)


def test_a_root_that_cannot_pickle_tells_the_others() -> None:
    def body(rank: int) -> Any:
        with pytest.raises(InvalidArgumentError if rank == 1 else MismatchError, match="generator"):
            broadcast_object((one for one in ()) if rank == 1 else None, 1)
        return allgather_object(rank), broadcast_object({"rank": rank}, 2, name="o")

    assert run_ranks(3, body) == [([0, 1, 2], {"rank": 2})] * 3


def test_versions() -> None:
    assert legacy.is_version_greater_equal_than("2.13.0", "2.9.1")
    assert not legacy.is_version_greater_equal_than("2.9.1", "2.13.0")
    assert legacy.is_version_greater_equal_than("2.13.0rc1", "2.13.0")
    assert legacy.is_version_greater_equal_than("2.13", "2.13.0")
    assert not legacy.is_version_greater_equal_than("2.13", "2.13.1")
    for wrong in ("2", "x", 2, None):
        with pytest.raises(ValueError, match="version"):
            legacy.is_version_greater_equal_than(wrong, "1.0.0")
    legacy.check_installed_version("numpy", np.__version__)
    with pytest.raises(HorovodVersionMismatchError, match="numpy 0.0.1"):
        legacy.check_installed_version("numpy", "0.0.1")


def test_environment_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HVD_TEST_A", "before")
    monkeypatch.delenv("HVD_TEST_B", raising=False)
    with legacy.env(HVD_TEST_A=None, HVD_TEST_B=5):
        assert (os.environ["HVD_TEST_A"], os.environ["HVD_TEST_B"]) == ("before", "5")
    assert (os.environ["HVD_TEST_A"], "HVD_TEST_B" in os.environ) == ("before", False)


def test_small_questions() -> None:
    assert legacy.is_iterable([]) and not legacy.is_iterable(5)
    assert [legacy.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 8)] == [False, True, True, False, True]
    assert legacy.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]]
    assert legacy.get_ext_suffix().endswith(".so")
    with pytest.raises(ImportError):
        legacy.check_extension("horovod.nothing", "", "")


def test_ranks_as_messages_list_them() -> None:
    assert listed([3]) == "rank 3"
    assert listed([0, 2, 5]) == "ranks 0, 2, 5"
    assert listed(range(16)).endswith(", 14, 15")
    assert listed(range(17)).endswith(", 14, ... (17 ranks)")
