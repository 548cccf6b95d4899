"""`GradientReducer`: counting, groups, factors, compression, missing gradients, failures. The gradients are NumPy
arrays in a dictionary."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import pytest
from fakes.ranks import run_ranks

from horovod._core.errors import InvalidArgumentError, MismatchError, UnsupportedError
from horovod._core.life.process_sets import ProcessSet
from horovod._core.operations.collectives import Collectives
from horovod._core.operations.reduce_ops import Adasum, Average, Sum
from horovod._core.operations.sparse import SparseReduction
from horovod._core.training.reducer import GradientReducer, GradientSource
from horovod._core.training.reduction_options import ReductionOptions, check_names
from horovod.numpy.adapter import adapter
from horovod.numpy.compression import Compression

NAMES = ("a", "b", "c", "d")


class Watching(Collectives):
    """Notes the order of submissions."""

    def __init__(self) -> None:
        super().__init__(adapter)
        self.submitted: list[Any] = []

    def start_allreduce(self, tensors: list[Any], arguments: Any, single: bool) -> Any:
        self.submitted.append(arguments.name)
        return super().start_allreduce(tensors, arguments, single)


class Model:
    """Gradients by key 0, 1, ...; the parameter of key k has k + 1 elements."""

    def __init__(self, options: Optional[ReductionOptions] = None, groups: Any = None, sparse: Any = None) -> None:
        self.gradients: dict[int, Any] = {key: np.zeros(key + 1, np.float32) for key in range(len(NAMES))}
        self.written: list[int] = []
        self.collectives = Watching()
        source = GradientSource(self.gradients.__getitem__, self._write, sparse)
        self.reducer = GradientReducer(
            self.collectives, list(enumerate(NAMES)), source, options or ReductionOptions(), groups
        )

    def _write(self, key: int, tensor: Any) -> None:
        self.written.append(key)
        self.gradients[key] = tensor

    def backward(self, value: float, keys: Any = (3, 2, 1, 0)) -> None:
        for key in keys:
            self.gradients[key] += value
            self.reducer.ready(key)


def test_gradients_are_averaged_as_they_come() -> None:
    def body(rank: int) -> Any:
        model = Model()
        for _ in range(2):
            model.gradients.update({key: np.zeros(key + 1, np.float32) for key in model.gradients})
            assert not model.reducer.step_has_begun
            model.backward(rank + 1, (3, 1, 0, 2))
            assert model.reducer.step_has_begun
            model.reducer.synchronize()
            assert not model.reducer.step_has_begun
            assert all(np.all(one == 1.5) for one in model.gradients.values())
        assert model.written == []
        return model.collectives.submitted

    assert run_ranks(2, body)[0] == ["d", "b", "a", "c"] * 2


def test_a_gradient_of_another_form_takes_the_long_way_again() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        for shape in (2, 2, 5, 5, 0):
            model.gradients[1] = np.ones(shape, np.float32)
            model.backward(0)
            model.reducer.synchronize()
            assert model.gradients[1].tolist() == [2.0] * shape

    run_ranks(2, body)


def test_reset_waits_and_counts_anew() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        for _ in range(3):
            model.backward(1, (3, 2))
            model.reducer.reset()
            assert not model.reducer.step_has_begun
        model.backward(1)
        model.reducer.synchronize()
        assert len(model.collectives.submitted) == 10

    run_ranks(2, body)


def test_several_passes_accumulate() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(backward_passes_per_step=3, op=Sum))
        model.backward(1)
        model.backward(10)
        assert model.collectives.submitted == []
        model.backward(100)
        assert len(model.collectives.submitted) == 4
        model.reducer.synchronize()
        assert all(np.all(one == 222) for one in model.gradients.values())

    run_ranks(2, body)


def test_one_pass_too_many_is_an_error_where_it_cannot_be_averaged() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        model.backward(1)
        with pytest.raises(AssertionError, match="'d' was computed more than backward_passes_per_step"):
            model.reducer.ready(3)
        model.reducer.synchronize()
        model.backward(1)
        model.reducer.synchronize()

    run_ranks(1, body)


def test_one_more_pass_is_averaged_once_more() -> None:
    def body(rank: int) -> Any:
        model = Model()
        model.backward(rank, (3, 1))  # rank 0: 0, rank 1: 1
        model.reducer.land()
        assert model.gradients[3].tolist() == [0.5] * 4
        # Rank 1 has computed a gradient that rank 0 has not; in which round does not matter.
        model.backward(2 * rank, (3, 2) if rank else (3,))
        assert not model.reducer.has_submitted(1)
        model.reducer.land()
        model.reducer.synchronize(once=True)
        expected = {0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5}
        assert all(np.all(model.gradients[key] == value) for key, value in expected.items()), model.gradients
        submitted = len(model.collectives.submitted)
        model.reducer.synchronize(once=True)
        assert len(model.collectives.submitted) == submitted
        model.reducer.forget_settled()
        model.reducer.synchronize()
        assert len(model.collectives.submitted) == submitted + 4
        return model.collectives.submitted

    submitted = run_ranks(2, body)
    assert sorted(submitted[0]) == sorted(submitted[1])
    assert submitted[0][:2] == ["d", "b"] and {"a", "c", "d.pass2", "b.pass2", "a.pass2", "c.pass2"} <= {*submitted[0]}


def test_the_number_of_passes_can_change() -> None:
    def body(rank: int) -> None:
        model = Model()
        model.reducer.set_backward_passes_per_step(np.int64(2))  # type: ignore[arg-type]
        passes = model.reducer.backward_passes_per_step
        assert passes == 2 and type(passes) is int
        model.backward(1)
        assert model.collectives.submitted == []
        for wrong in (0, -1, 1.5, True, None):
            with pytest.raises(InvalidArgumentError, match=">= 1"):
                model.reducer.set_backward_passes_per_step(wrong)  # type: ignore[arg-type]

    run_ranks(1, body)


def test_missing_gradients_take_part() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        # Rank 1 has used only half of the model.
        model.backward(1, (3, 2, 1, 0) if rank == 0 else (3, 1))
        model.reducer.synchronize()
        assert [float(model.gradients[key][0]) for key in range(4)] == [1, 2, 1, 2]

    run_ranks(2, body)


def test_settling_takes_in_what_only_other_ranks_have_submitted() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        model.reducer.settle(has_begun=False)
        assert not model.collectives.submitted
        model.backward(1, (3, 2, 1, 0) if rank == 0 else (3, 1))
        assert model.reducer.settle(has_begun=True)
        assert [float(model.gradients[key][0]) for key in range(4)] == [1, 2, 1, 2]
        model.reducer.synchronize()
        assert len(model.collectives.submitted) == 4
        # The next step's are with one another.
        for gradient in model.gradients.values():
            gradient[:] = 0
        model.backward(rank + 1)
        model.reducer.synchronize()
        assert all(np.all(gradient == 3) for gradient in model.gradients.values())

    run_ranks(2, body)


def test_a_step_before_the_last_pass_reduces_what_is_there() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum, backward_passes_per_step=2))
        model.backward(1)
        model.reducer.synchronize()
        assert all(np.all(one == 2) for one in model.gradients.values())
        model.backward(1)
        assert len(model.collectives.submitted) == 4

    run_ranks(2, body)


@pytest.mark.parametrize("groups", [2, [[0, 1], [2, 3]]])
def test_groups_go_when_complete(groups: Any) -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum), groups)
        model.backward(1, (3, 1))
        assert model.collectives.submitted == []
        model.backward(1, (2,))
        assert model.collectives.submitted == [("c", "d")]
        model.reducer.synchronize()
        assert model.collectives.submitted == [("c", "d"), ("a", "b")]
        assert [float(model.gradients[key][0]) for key in range(4)] == [0, 2, 2, 2]

    run_ranks(2, body)


def test_what_another_reducer_has_taken_completes_no_group() -> None:
    def body(rank: int) -> None:
        model = Model(groups=[[0, 1], [2, 3]])
        model.backward(1, keys=(0,))
        model.reducer.leave_out([0])
        assert not model.reducer.step_has_begun and not model.reducer.is_open
        model.backward(1, keys=(1,))
        assert model.collectives.submitted == []
        model.backward(1, keys=(0,))
        assert model.collectives.submitted == [("a", "b")]
        model.reducer.synchronize()

    run_ranks(1, body)


def test_parameters_in_no_group_go_alone() -> None:
    def body(rank: int) -> None:
        model = Model(groups=[[0, 2], [99]])
        model.backward(1)
        model.reducer.synchronize()
        assert model.collectives.submitted == ["d", "b", ("a", "c")]

    run_ranks(1, body)


def test_predivide_factor_splits_the_average() -> None:
    options = ReductionOptions(gradient_predivide_factor=4.0)
    assert options.factors == (0.25, 4.0)

    def body(rank: int) -> None:
        model = Model(options)
        model.backward(rank + 1)
        model.reducer.synchronize()
        assert all(np.all(one == 1.5) for one in model.gradients.values())

    run_ranks(2, body)


def test_compressed_gradients_are_written_back() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(compression=Compression.fp16, op=Sum))
        model.backward(0.5)
        model.reducer.synchronize()
        assert sorted(model.written) == [0, 1, 2, 3]
        assert all(one.dtype == np.float32 and np.all(one == 1.0) for one in model.gradients.values())

    run_ranks(2, body)


def test_what_derives_from_no_compression_compresses_in_every_step() -> None:
    class Doubled(Compression.none):  # type: ignore[name-defined,misc]
        @staticmethod
        def compress(tensor: Any) -> Any:
            return tensor * 2, None

    def body(rank: int) -> None:
        for compression in (Doubled, Doubled()):
            model = Model(ReductionOptions(compression=compression, op=Sum))
            for _ in range(3):
                model.gradients.update({key: np.zeros(key + 1, np.float32) for key in model.gradients})
                model.backward(0.5)
                model.reducer.synchronize()
                assert all(np.all(one == 2.0) for one in model.gradients.values())

    run_ranks(2, body)


def test_sparse_gradients_go_their_own_way() -> None:
    def body(rank: int) -> None:
        def sparse(tensor: Any, name: str) -> Any:
            return SparseReduction(lambda: tensor + 100, ()) if name == "b" else None

        model = Model(ReductionOptions(op=Sum), [[0, 1, 2]], sparse)
        model.backward(1)
        model.reducer.synchronize()
        assert model.collectives.submitted == ["d", ("a", "c")]
        assert model.written == [1]
        assert [float(model.gradients[key][0]) for key in range(4)] == [2, 101, 2, 2]

    run_ranks(2, body)


def test_after_a_failure_nothing_is_in_use() -> None:
    def body(rank: int) -> None:
        model = Model(ReductionOptions(op=Sum))
        if rank == 1:
            model.gradients[1] = np.zeros(77, np.float32)
        model.backward(1)
        with pytest.raises(MismatchError, match="'allreduce.b'.*77"):
            model.reducer.synchronize()
        # All others have been reduced, and the next step is a fresh one.
        assert [float(model.gradients[key][0]) for key in (0, 2, 3)] == [2, 2, 2]
        assert not model.reducer.step_has_begun
        model.gradients[1] = np.zeros(2, np.float32)
        model.backward(1)
        model.reducer.synchronize()
        assert float(model.gradients[1][0]) == 2

    run_ranks(2, body)


def test_options_that_contradict() -> None:
    with pytest.raises(ValueError, match="op=hvd.Average only"):
        ReductionOptions(op=Sum, gradient_predivide_factor=2.0)
    with pytest.raises(ValueError, match="> 0"):
        ReductionOptions(op=Average, gradient_predivide_factor=0.0)
    with pytest.raises(ValueError, match=">= 1"):
        ReductionOptions(backward_passes_per_step=0)
    with pytest.raises(ValueError, match="process_set must be"):
        ReductionOptions(process_set=0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compression must be"):
        ReductionOptions(compression="fp16")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="global process set"):
        ReductionOptions(op=Adasum, process_set=ProcessSet([0]))


def test_check_names() -> None:
    assert check_names([("x", 1), ("y", 2), ("z", 3)], [2, 1]) == [(2, "y"), (1, "x")]
    for named, words in (([("x", 1), ("x", 2)], "more than once: x"), ([1, 2], "tuples"), ([("x", 1)], "lacks 1 of")):
        with pytest.raises(InvalidArgumentError, match=words):
            check_names(named, [1, 2])
