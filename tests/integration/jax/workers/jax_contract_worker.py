"""The contract's cases of values (tests/contract/cases.py) on JAX's arrays: at once, and in compiled functions."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jobs.case_runner import expect_raises, run_cases

import horovod.jax as hvd
from horovod._core.tensors import dtypes

sys.path.insert(0, str(Path(__file__).parents[3] / "contract"))
from cases import LARGE, all_cases

jax.config.update("jax_enable_x64", True)
KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "alltoall_splits", "reducescatter")


def called(case, array):
    if case.kind == "allreduce" or case.kind == "reducescatter":
        before, after = case.factors
        operation = hvd.allreduce if case.kind == "allreduce" else hvd.reducescatter
        return operation(array, case.op, case.name, prescale_factor=before, postscale_factor=after)
    if case.kind == "broadcast":
        return hvd.broadcast(array, case.root(hvd.size()), case.name)
    if case.kind == "alltoall_splits":
        rows, received = hvd.alltoall(array, case.splits(hvd.rank(), hvd.size()), case.name)
        assert received.tolist() == [case.splits(other, hvd.size())[hvd.rank()] for other in range(hvd.size())]
        return rows
    return (hvd.allgather if case.kind == "allgather" else hvd.alltoall)(array, name=case.name)


def check(case, result):
    expected = case.expected(hvd.rank(), hvd.size())
    assert isinstance(result, jax.Array) and result.dtype == expected.dtype, (case.name, result.dtype)
    got, wide = (np.asarray(one).astype(np.float64) for one in (result, expected))
    tolerance = case.tolerance()
    assert got.shape == wide.shape and (np.abs(got - wide) <= tolerance * np.maximum(np.abs(wide), 1)).all(), case.name


def given(case):
    return jax.device_put(case.input(hvd.rank(), hvd.size()))  # jnp.asarray would compile for each shape


def case_values_at_once():
    run = 0
    for case in all_cases(hvd.size()):
        if case.kind in KINDS and (case.count < LARGE or case.dtype == dtypes.FLOAT32):
            check(case, called(case, given(case)))
            run += 1
    assert run > 600, run


def case_values_in_compiled_functions():
    """One function for each dtype; equal numbers of rows, and one for each rank."""
    run = 0
    for dtype in range(len(dtypes.NAMES)):
        # The ranks of the contract's allgather have different numbers of rows; it is below.
        cases = [case for case in all_cases(hvd.size()) if case.dtype == dtype and case.count == hvd.size() + 1]
        cases = [case for case in cases if case.kind in ("allreduce", "broadcast", "alltoall", "reducescatter")]
        compiled = jax.jit(lambda arrays, cases=cases: [called(case, a) for case, a in zip(cases, arrays)])
        for case, result in zip(cases, compiled([given(case) for case in cases])):
            check(case, result)
        run += len(cases)
    assert run > 150, run


def case_allgather_of_every_dtype_in_a_compiled_function():
    arrays = [jnp.full((2, 2), hvd.rank() + 1, dtype) for dtype in (jnp.int8, jnp.uint16, jnp.float16, jnp.bfloat16)]
    for array, result in zip(arrays, jax.jit(hvd.allgather)(arrays)):
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(result, np.float32)[:, 0], [1, 1, 2, 2])


def case_what_the_contract_refuses():
    """The last rank's fault, of which the others learn."""
    last = hvd.rank() == hvd.size() - 1
    for bad, good, words in (
        (lambda: hvd.allreduce(np.zeros(2, np.complex64), name="c"), lambda: hvd.allreduce(np.zeros(2), name="c"), "c"),
        (lambda: hvd.broadcast(1.0, 9, "r"), lambda: hvd.broadcast(1.0, 0, "r"), "root_rank 9"),
        (lambda: hvd.allgather(1.0, name="s"), lambda: hvd.allgather(np.zeros(1), name="s"), "scalar"),
    ):
        kind = ValueError if last else hvd.HorovodInternalError
        expect_raises(kind, bad if last else good, words)
    assert float(hvd.allreduce(1.0, hvd.Sum, "after")) == hvd.size()


run_cases(globals(), hvd)
