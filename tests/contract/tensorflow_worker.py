"""One rank of the contract cases on TensorFlow, in one of its ways to run: reports like `worker`.

    PYTHONPATH=python:tests \
        python -m horovod.runner -np 3 python tests/contract/tensorflow_worker.py --target jit --directory DIR cases

Targets: "eager" runs case after case; "function" and "graph" put a dozen into one `tf.function`, or one graph of
TensorFlow 1, where they run at the same time; "jit" compiles that function with XLA. The cases are those of every
adapter; what TensorFlow does not have is counted as skipped, never left out in silence.

With HVD_TEST_TENSORFLOW_GPU, a library that TensorFlow can plug in as its GPU, inputs and operators are placed there,
and what has no kernel there fails.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import itertools
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import ml_dtypes
import numpy as np
import tensorflow as tf
from cases import EIGHT_BITS, Case, all_cases
from jobs.installed import require_installed
from jobs.report import report
from targets import Env, Target
from tensorflow.python.framework import load_library
from tensorflow_facts import FACTS
from tensorflow_gradients import FACTS as GRADIENTS
from tensorflow_surface import FACTS as SURFACE
from worker import run_facts

import horovod.tensorflow as hvd

# In one function or graph: all of them are under way at once.
_TOGETHER = 12


_PLUG_IN = os.environ.get("HVD_TEST_TENSORFLOW_GPU")
_DEVICE = "/GPU:0" if _PLUG_IN else None  # None: where TensorFlow likes

# Older versions have no 8-bit floats, and no version has kernels that bring them to a GPU.
_EIGHT_BITS = hasattr(tf.dtypes.experimental, "float8_e4m3fn") and not _PLUG_IN
# The contract's types and TensorFlow's own NumPy types: older versions know no others.
_OWN = {np.dtype(ml_dtypes.bfloat16): np.dtype(tf.bfloat16.as_numpy_dtype)}
for _name in ("float8_e4m3fn", "float8_e5m2") if _EIGHT_BITS else ():
    _OWN[np.dtype(getattr(ml_dtypes, _name))] = np.dtype(getattr(tf.dtypes.experimental, _name).as_numpy_dtype)
_CONTRACTS = {own: contracts for contracts, own in _OWN.items()}


def for_tensorflow(array: Any) -> Any:
    """The array in types that TensorFlow takes."""
    return array.view(_OWN.get(array.dtype, array.dtype))


def from_tensorflow(tensor: Any) -> Any:
    """The tensor as an array in the contract's types."""
    # By `numpy`, because NumPy cannot make an array of an eager scalar of 8 bits.
    array = np.asarray(tensor.numpy() if hasattr(tensor, "numpy") else tensor)
    return array.view(_CONTRACTS.get(array.dtype, array.dtype))


def tensorflow_target() -> Target:
    """Eager tensors; for `Env.check`."""
    return Target(
        "tensorflow",
        hvd,
        None,
        lambda array: tf.constant(for_tensorflow(array)),
        from_tensorflow,
        lambda: tf.zeros([3], tf.complex64),
        lambda: tf.zeros([4, 2]),
        lambda: [[1.0], [1.0, 2.0]],
    )


def call(env: Env, case: Case, tensor: Any) -> Any:
    """The operation of a case on an eager or symbolic tensor, or a variable."""
    with tf.device(_DEVICE):
        return _operation(env, case, tensor)


def _operation(env: Env, case: Case, tensor: Any) -> Any:
    if case.kind == "allreduce":
        pre, post = case.factors
        return hvd.allreduce(tensor, op=case.op, prescale_factor=pre, postscale_factor=post, name=case.name)
    if case.kind == "reducescatter":
        pre, post = case.factors
        return hvd.reducescatter(tensor, op=case.op, prescale_factor=pre, postscale_factor=post, name=case.name)
    if case.kind == "allgather":
        return hvd.allgather(tensor, name=case.name)
    if case.kind == "broadcast":
        return hvd.broadcast(tensor, case.root(env.size), name=case.name)
    if case.kind == "broadcast_":
        return tf.convert_to_tensor(hvd.broadcast_([tensor], case.root(env.size), name=case.name)[0])
    if case.kind == "alltoall":
        return hvd.alltoall(tensor, name=case.name)
    return hvd.alltoall(tensor, case.splits(env.rank, env.size), name=case.name)


def check(env: Env, case: Case, result: Any) -> None:
    """Compares with what NumPy says."""
    what = f"{case.name} on {env.size} ranks"
    if case.kind == "alltoall_splits":
        result, received = result
        expected = [case.splits(other, env.size)[env.rank] for other in range(env.size)]
        env.check(f"{what}, received splits", [int(rows) for rows in np.asarray(received)], expected)
    env.check(what, from_tensorflow(result), case.expected(env.rank, env.size), case.tolerance())


def together(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """In lots."""
    rest = iter(cases)
    while lot := list(itertools.islice(rest, _TOGETHER)):
        yield lot


def _there(tensor: Any) -> Any:
    """The tensor in the device's memory."""
    with tf.device(_DEVICE):
        return tf.identity(tensor) if _DEVICE else tensor


def holder(env: Env, case: Case) -> Any:
    """The input of a case: a tensor, or a variable for what happens in place."""
    value = for_tensorflow(case.input(env.rank, env.size))
    return tf.Variable(value) if case.kind == "broadcast_" else _there(tf.constant(value))


def run_eager(env: Env, cases: Sequence[Case]) -> None:
    for case in cases:
        check(env, case, call(env, case, holder(env, case)))


def run_function(env: Env, cases: Sequence[Case], **options: Any) -> None:
    for lot in together(cases):

        @tf.function(**options)
        def step(tensors: list[Any], lot: list[Case] = lot) -> list[Any]:
            return [call(env, case, tensor) for case, tensor in zip(lot, tensors)]

        results = step([holder(env, case) for case in lot])
        for case, result in zip(lot, results):
            check(env, case, result)


def run_graph(env: Env, cases: Sequence[Case]) -> None:
    for lot in together(cases):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            values = [for_tensorflow(case.input(env.rank, env.size)) for case in lot]
            fed = [tf.compat.v1.placeholder(value.dtype) for value in values]
            inputs = [
                tf.compat.v1.Variable(tensor, use_resource=True, validate_shape=False)
                if case.kind == "broadcast_"
                else _there(tensor)
                for case, tensor in zip(lot, fed)
            ]
            outputs = [call(env, case, tensor) for case, tensor in zip(lot, inputs)]
            feeds = dict(zip(fed, values))
            session.run(tf.compat.v1.global_variables_initializer(), feeds)
            results = session.run(outputs, feeds)
        for case, result in zip(lot, results):
            check(env, case, result)


MODES: dict[str, Callable[..., None]] = {
    "eager": run_eager,
    "function": run_function,
    "graph": run_graph,
    "jit": functools.partial(run_function, jit_compile=True),
}
# In place is for variables here: `allreduce_` does not exist.
_SKIPPED = ("allreduce_",)
# XLA must know how many rows arrive, and these have another number on every rank.
_SKIPPED_IN_XLA = (*_SKIPPED, "allgather", "alltoall_splits")
# The device that is plugged in has no variables.
_SKIPPED_ON_DEVICE = (*_SKIPPED, "broadcast_")


def _run_cases(env: Env, mode: str) -> dict[str, int]:
    every = list(all_cases(env.size))
    skipped = _SKIPPED_IN_XLA if mode == "jit" else _SKIPPED_ON_DEVICE if _DEVICE else _SKIPPED
    cases = [case for case in every if case.kind not in skipped and (_EIGHT_BITS or case.dtype not in EIGHT_BITS)]
    MODES[mode](env, cases)
    return {"run": len(cases), "skipped": len(every) - len(cases)}


def main() -> int:
    """Runs one mode; exit code 1 if this rank failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=sorted(MODES), required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--deadline", type=float, default=100.0)
    parser.add_argument("parts", nargs="+", choices=("cases", "facts", "gradients"))
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.deadline, exit=True)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if _PLUG_IN:
        load_library.load_pluggable_device_library(_PLUG_IN)
        tf.config.set_soft_device_placement(False)
    tf.get_logger().setLevel("ERROR")  # functions are made in loops here, which it warns of
    hvd.init(process_sets="dynamic")
    env = Env(tensorflow_target(), arguments.directory, "real")
    result: dict[str, Any] = {"rank": env.rank, "counts": {}}
    try:
        if "cases" in arguments.parts:
            result["counts"]["cases"] = _run_cases(env, arguments.target)
        if "facts" in arguments.parts:
            result["counts"]["facts"] = run_facts(env, SURFACE + FACTS)
        if "gradients" in arguments.parts:
            result["counts"]["gradients"] = run_facts(env, GRADIENTS)
        require_installed()
    except Exception:
        env.failures.append(f"{arguments.target}:\n{traceback.format_exc()}")
    result["failures"] = env.failures[:20]
    hvd.shutdown()
    report("contract", **result)
    return 1 if env.failures else 0


if __name__ == "__main__":
    sys.exit(main())
