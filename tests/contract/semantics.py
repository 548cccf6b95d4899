"""What holds beside the values: errors on every member, refusals, groups, handles, objects, numeric accuracy.

Each function is one fact, called on every rank with its `Env`; `SEMANTICS` lists them in the order in which all ranks
run them. The facts of process sets, join and the life of the engine are in `semantics_sets`, `semantics_join` and
`semantics_life`.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any, Callable

import numpy as np
from semantics_engine import ENGINE
from semantics_sends import SENDS
from semantics_values import VALUES
from targets import Env

from horovod._core.errors import HorovodInternalError, InvalidArgumentError, MismatchError
from horovod._core.life import handles
from horovod._core.operations.reduction_calls import ReduceArguments

# ---- mismatches


def _same_text_everywhere(env: Env, what: str, text: str) -> None:
    texts = env.hvd.allgather_object(text, name=f"texts.{what}")
    env.check_true(f"{what}: the ranks got different texts: {texts}", len(set(texts)) == 1)


def _mismatch(env: Env, what: str, call: Callable[[], Any], *words: str) -> None:
    """All ranks get one and the same error, which holds all of `words`, and the engine goes on."""
    if env.size == 1:
        return
    text = env.raises(what, MismatchError, call)
    _same_text_everywhere(env, what, text)
    for word in words:
        env.check_true(f"{what}: {word!r} is not in {text!r}", word in text)
    env.still_usable(what)


def dtype_mismatch(env: Env) -> None:
    odd = env.rank == env.size - 1
    tensor = env.tensor([1, 2], np.float64 if odd else np.float32)
    words = ("odd.dtype", "float64", "float32", f"rank {env.size - 1} sent float64 [2]")
    _mismatch(env, "dtype", lambda: env.hvd.allreduce(tensor, name="odd.dtype"), *words)
    if env.engine == "real":
        _mismatch(env, "name", lambda: env.hvd.allreduce(tensor, name="odd.dtype"), "allreduce 'odd.dtype': rank")
    _mismatch(env, "dtype, allgather", lambda: env.hvd.allgather(tensor, name="odd.dtype"), "float64")


def shape_mismatch(env: Env) -> None:
    odd = env.rank == env.size - 1
    tensor = env.tensor([[1, 2], [3, 4]]) if odd else env.tensor([1, 2, 3, 4])
    _mismatch(env, "shape", lambda: env.hvd.allreduce(tensor, name="odd.shape"), "odd.shape", "[2, 2]", "[4]")
    _mismatch(env, "shape, broadcast", lambda: env.hvd.broadcast(tensor, 0, name="odd.shape"), "[2, 2]", "[4]")
    _mismatch(env, "shape, allgather", lambda: env.hvd.allgather(tensor, name="odd.shape"), "odd.shape")
    wide = env.tensor(np.zeros((env.size, 3 if odd else 2)))
    _mismatch(env, "shape, alltoall", lambda: env.hvd.alltoall(wide, name="odd.shape"), "odd.shape")
    _mismatch(env, "shape, reducescatter", lambda: env.hvd.reducescatter(wide, name="odd.shape"), "odd.shape")


def shape_mismatch_of_a_cached_name(env: Env) -> None:
    for _ in range(3):
        env.hvd.allreduce(env.tensor([1, 2]), name="cached.shape")
    tensor = env.tensor([1, 2, 3] if env.rank == 0 else [1, 2])
    _mismatch(env, "cached shape", lambda: env.hvd.allreduce(tensor, name="cached.shape"), "[3]", "[2]")
    # All ranks change together: that is no mismatch.
    changed = env.hvd.allreduce(env.tensor([1, 2, 3, 4]), name="cached.shape", op=env.hvd.Sum)
    env.check("cached name with a new shape", changed, np.array([1, 2, 3, 4], np.float32) * env.size)


def op_mismatch(env: Env) -> None:
    op = env.hvd.Max if env.rank == 0 else env.hvd.Min
    _mismatch(env, "op", lambda: env.hvd.allreduce(env.tensor([1]), name="odd.op", op=op), "Max", "Min")


def factor_mismatch(env: Env) -> None:
    factor = 0.5 if env.rank == 0 else 2.0
    call = lambda: env.hvd.allreduce(env.tensor([1]), name="odd.factor", prescale_factor=factor)  # noqa: E731
    _mismatch(env, "factor", call, "odd.factor", "0.5", "2")


def root_mismatch(env: Env) -> None:
    root = 0 if env.rank == 0 else env.size - 1
    call = lambda: env.hvd.broadcast(env.tensor([1]), root, name="odd.root")  # noqa: E731
    _mismatch(env, "root", call, "odd.root", f"{env.size - 1}")


def group_mismatch(env: Env) -> None:
    # Named one by one, as a distributed optimizer does it. The tensors would fit, but not the groups.
    names = ("odd.group.a", "odd.group.b", "odd.group.c")[: 2 if env.rank == 0 else 3]
    arguments = ReduceArguments(names, None, env.hvd.Sum, 1.0, 1.0, env.hvd.global_process_set)
    call = lambda: handles.finish(  # noqa: E731
        env.target.collectives.start_allreduce([env.tensor([1]) for _ in names], arguments, False)
    )
    _mismatch(env, "group", call, "group")


# ---- refusals


def _refused_by_last(env: Env, what: str, bad: Callable[[], Any], good: Callable[[], Any], *words: str) -> None:
    """The last rank gets a ValueError at once, all others a MismatchError with its reason."""
    last = env.size - 1
    if env.rank == last:
        text = env.raises(what, ValueError, bad)
        env.check_true(f"{what}: {text!r} is an infrastructure error", not text.startswith("rank"))
    else:
        text = env.raises(what, MismatchError, good)
        env.check_true(f"{what}: rank {last} is not named in {text!r}", f"rank {last}" in text)
    for word in words:
        env.check_true(f"{what}: {word!r} is not in {text!r}", word in text)
    env.still_usable(what)


def unsupported_dtype(env: Env) -> None:
    for name in ("refused.dtype", None):
        bad = lambda: env.hvd.allreduce(env.target.unsupported(), name=name)  # noqa: E731, B023
        good = lambda: env.hvd.allreduce(env.tensor([1, 2, 3]), name=name)  # noqa: E731, B023
        _refused_by_last(env, f"dtype, name {name}", bad, good, "complex64")


def no_tensor(env: Env) -> None:
    fine = env.tensor(np.zeros(env.size))
    if env.target.name == "tensorflow":
        return
    for kind in ("allreduce", "allreduce_", "reducescatter", "allgather"):
        function = getattr(env.hvd, kind)
        bad = lambda: function("1.5", name="refused.number")  # noqa: E731, B023
        good = lambda: function(fine, name="refused.number")  # noqa: E731, B023
        _refused_by_last(env, f"no tensor for {kind}", bad, good, "Received: str;", "(value) makes one")
    for kind in ("grouped_allreduce", "grouped_reducescatter"):
        function = getattr(env.hvd, kind)
        bad = lambda: function([fine, "1.5"], name="refused.numbers")  # noqa: E731, B023
        good = lambda: function([fine, fine], name="refused.numbers")  # noqa: E731, B023
        _refused_by_last(env, f"no tensor for {kind}", bad, good, "Received: str;")


def refusal_of_a_group(env: Env) -> None:
    fine = env.tensor([1])
    bad = lambda: env.hvd.grouped_allreduce([fine, env.target.unsupported()], name="refused.group")  # noqa: E731
    good = lambda: env.hvd.grouped_allreduce([fine, fine], name="refused.group")  # noqa: E731
    for _ in range(2):
        _refused_by_last(env, "group", bad, good, "complex64")
    # Nothing of the refusal is left for the next one of this name.
    result = env.hvd.grouped_allreduce([fine, fine], name="refused.group", op=env.hvd.Sum)
    env.check("the group after its refusal", result[1], np.array([env.size], np.float32))
    unnamed = lambda: env.hvd.grouped_allreduce([fine, env.target.unsupported()])  # noqa: E731
    _refused_by_last(env, "unnamed group", unnamed, lambda: env.hvd.grouped_allreduce([fine, fine]), "complex64")
    result = env.hvd.grouped_allreduce([fine, fine], op=env.hvd.Sum)
    env.check("the unnamed group after its refusal", result[1], np.array([env.size], np.float32))


def values_elsewhere(env: Env) -> None:
    """A tensor whose memory does not hold its values, whichever call it is given to."""
    if env.target.name == "tensorflow":
        return
    unfit, fine = env.target.unfit(), env.tensor(np.zeros(env.size))
    for kind in ("allreduce", "allreduce_", "allgather", "alltoall", "reducescatter"):
        function = getattr(env.hvd, kind)
        bad, good = lambda: function(unfit, name="refused.form"), lambda: function(fine, name="refused.form")  # noqa: B023
        _refused_by_last(env, f"{kind} of values elsewhere", bad, good, "Received")
    for kind in ("grouped_allreduce", "grouped_allgather", "grouped_reducescatter"):
        function = getattr(env.hvd, kind)
        bad, good = lambda: function([fine, unfit]), lambda: function([fine, fine])  # noqa: B023
        _refused_by_last(env, f"{kind} of values elsewhere", bad, good, "Received")
    bad, good = lambda: env.hvd.broadcast(unfit, 0), lambda: env.hvd.broadcast(fine, 0)
    _refused_by_last(env, "broadcast of values elsewhere", bad, good, "Received")


def gaps_in_place(env: Env) -> None:
    bad = lambda: env.hvd.allreduce_(env.target.gappy(), name="refused.gaps")  # noqa: E731
    good = lambda: env.hvd.allreduce_(env.tensor(np.zeros((4, 2))), name="refused.gaps")  # noqa: E731
    if env.target.name == "numpy":
        _refused_by_last(env, "gaps", bad, good, "contiguous")


def bad_splits(env: Env) -> None:
    rows = env.tensor(np.zeros((2 * env.size, 2)))
    good = lambda: env.hvd.alltoall(rows, name="refused.splits")  # noqa: E731
    for splits, word in (
        ([1] * (env.size + 1), "one entry per member"),
        ([2 * env.size + 1] + [0] * (env.size - 1), "rows"),
        ([-1] + [1] * (env.size - 1), ">= 0"),
        ([0.5] * env.size, "integers"),
    ):
        bad = lambda: env.hvd.alltoall(rows, splits=splits, name="refused.splits")  # noqa: E731, B023
        _refused_by_last(env, f"splits {splits}", bad, good, word)


def indivisible_rows(env: Env) -> None:
    if env.size == 1:
        return
    bad = lambda: env.hvd.alltoall(env.tensor(np.zeros(env.size + 1)), name="refused.rows")  # noqa: E731
    good = lambda: env.hvd.alltoall(env.tensor(np.zeros(env.size)), name="refused.rows")  # noqa: E731
    _refused_by_last(env, "rows", bad, good, "equally")


def scalars(env: Env) -> None:
    for kind in ("allgather", "alltoall", "reducescatter"):
        function = getattr(env.hvd, kind)
        bad = lambda: function(env.tensor(1.0), name="refused.scalar")  # noqa: E731, B023
        good = lambda: function(env.tensor(np.zeros(env.size)), name="refused.scalar")  # noqa: E731, B023
        _refused_by_last(env, f"scalar {kind}", bad, good, "scalar")
    env.check("scalar allreduce", env.hvd.allreduce(env.tensor(2.0), op=env.hvd.Sum), np.float32(2.0 * env.size))


def names_and_sets_that_are_none(env: Env) -> None:
    """The others learn of a bad name if theirs is none, and of a bad process set if theirs is the global one."""
    if env.target.name == "tensorflow":
        return
    fine = env.tensor(np.zeros(env.size))
    for kind in ("allreduce", "allreduce_", "allgather", "alltoall", "reducescatter"):
        function = getattr(env.hvd, kind)
        for name in ("a\0b", 5):
            bad = lambda: function(fine, name=name)  # noqa: E731, B023
            _refused_by_last(env, f"{kind} by {name!r}", bad, lambda: function(fine), "name must be")  # noqa: B023
        for process_set in (None, 77, "all"):
            bad = lambda: function(fine, name="refused.set", process_set=process_set)  # noqa: E731, B023
            good = lambda: function(fine, name="refused.set")  # noqa: E731, B023
            _refused_by_last(env, f"{kind} in {process_set!r}", bad, good, "hvd.ProcessSet")
    for function in (env.hvd.broadcast_object, env.hvd.allgather_object):
        bad = lambda: function(1, process_set=77)  # noqa: E731, B023
        _refused_by_last(env, "objects in 77", bad, lambda: function(1), "hvd.ProcessSet")  # noqa: B023
    group = [fine, fine]
    bad, good = lambda: env.hvd.grouped_allreduce(group, name=5), lambda: env.hvd.grouped_allreduce(group)
    _refused_by_last(env, "group by a bad name", bad, good, "name must be")
    result = env.hvd.grouped_allreduce([env.tensor([1]), env.tensor([1])], op=env.hvd.Sum)
    env.check("an unnamed group after it", result[1], np.array([env.size], np.float32))


def root_that_does_not_exist(env: Env) -> None:
    bad = lambda: env.hvd.broadcast(env.tensor([1]), env.size, name="refused.root")  # noqa: E731
    good = lambda: env.hvd.broadcast(env.tensor([1]), 0, name="refused.root")  # noqa: E731
    _refused_by_last(env, "root", bad, good, "root")


def reductions_that_do_not_exist(env: Env) -> None:
    tensor = env.tensor([1])
    env.raises("op 17", ValueError, lambda: env.hvd.allreduce(tensor, op=17, name="refused.op.number"))
    env.raises("op and average", ValueError, lambda: env.hvd.allreduce(tensor, average=True, op=env.hvd.Sum))
    env.raises("Min of a reducescatter", ValueError, lambda: env.hvd.reducescatter(tensor, op=env.hvd.Min))
    env.raises("average of bool", ValueError, lambda: env.hvd.allreduce(env.tensor([1], np.bool_)))
    env.raises(
        "Adasum of int",
        (ValueError, NotImplementedError),
        lambda: env.hvd.allreduce(env.tensor([1], np.int32), op=env.hvd.Adasum),
    )
    if env.size in (3, 7):
        env.raises("Adasum", NotImplementedError, lambda: env.hvd.allreduce(tensor, op=env.hvd.Adasum))
    env.raises("no tensor", ValueError, lambda: env.hvd.allreduce([1, 2, 3]))
    env.raises("no factor", ValueError, lambda: env.hvd.allreduce(tensor, prescale_factor="much"))
    # All ranks refused alike, so nobody waits for anybody.
    env.still_usable("refused reductions")


# ---- handles


def duplicate_name(env: Env) -> None:
    if env.size == 1:
        return
    first = env.hvd.allreduce_async(env.tensor([1]), name="duplicate", op=env.hvd.Sum) if env.rank == 0 else None
    if env.rank == 0:
        # The others have not submitted it yet (they wait for the barrier's end below), so the first one is in flight.
        text = env.raises("duplicate", ValueError, lambda: env.hvd.allreduce_async(env.tensor([2]), name="duplicate"))
        env.check_true(f"duplicate: {text!r}", "duplicate" in text)
    env.hvd.barrier()
    if first is None:
        first = env.hvd.allreduce_async(env.tensor([1]), name="duplicate", op=env.hvd.Sum)
    env.check("the first of two", env.hvd.synchronize(first), np.array([env.size], np.float32))
    env.still_usable("duplicate")


def handles_in_any_order(env: Env) -> None:
    count = 30
    order = np.random.default_rng(env.rank).permutation(count)
    started = {int(i): env.hvd.allreduce_async(env.tensor([i]), name=f"any.{i}", op=env.hvd.Sum) for i in order}
    for i in np.random.default_rng(env.rank + 100).permutation(count):
        env.check(f"handle {i}", env.hvd.synchronize(started[int(i)]), np.array([i * env.size], np.float32))
    env.check("a handle used up", env.hvd.synchronize(started[0]), None)
    env.check("poll of a handle used up", env.hvd.poll(started[0]), True)
    env.raises("an unknown handle", ValueError, lambda: env.hvd.synchronize(10**9))
    env.raises("poll of an unknown handle", ValueError, lambda: env.hvd.poll(10**9))


def poll_turns_true(env: Env) -> None:
    handle = env.hvd.allreduce_async(env.tensor([1]), name="polled")
    while not env.hvd.poll(handle):
        pass
    env.check("polled", env.hvd.synchronize(handle), np.array([1], np.float32))


def unnamed_in_order(env: Env) -> None:
    started = [env.hvd.allreduce_async(env.tensor([i]), op=env.hvd.Sum) for i in range(20)]
    gathers = [env.hvd.allgather_async(env.tensor([i])) for i in range(5)]
    for i, handle in reversed(list(enumerate(started))):
        env.check(f"unnamed {i}", env.hvd.synchronize(handle), np.array([i * env.size], np.float32))
    for i, handle in enumerate(gathers):
        env.check(f"unnamed gather {i}", env.hvd.synchronize(handle), np.full(env.size, i, np.float32))


def tensors_kept_alive(env: Env) -> None:
    started = [
        env.hvd.allreduce_async_(env.tensor(np.full(5000, i)), name=f"alive.{i}", op=env.hvd.Max) for i in range(20)
    ]
    # Nothing but the handles refers to the tensors now; new ones would reuse their memory.
    others = [env.tensor(np.full(5000, -1)) for _ in range(40)]
    for i, handle in enumerate(started):
        env.check(f"kept alive {i}", env.hvd.synchronize(handle), np.full(5000, i, np.float32))
    env.check("others", others[-1], np.full(5000, -1, np.float32))


def results_outlive_their_handles(env: Env) -> None:
    results = [env.hvd.allgather(env.tensor(np.full(1000, i))) for i in range(20)]
    for i, result in enumerate(results):
        env.check(f"result {i}", result, np.full(1000 * env.size, i, np.float32))


# ---- groups


def groups(env: Env) -> None:
    for round_ in range(3):
        arrays = [np.full(n, env.rank + n + round_, dtype) for n in (1, 7, 0, 300) for dtype in (np.float32, np.int64)]
        tensors = [env.target.tensor(array) for array in arrays]
        extra = sum(range(env.size))
        expected = [array * env.size - env.rank * env.size + extra for array in arrays]
        results = env.hvd.grouped_allreduce(tensors, name="group", op=env.hvd.Sum)
        for i, (result, right) in enumerate(zip(results, expected)):
            env.check(f"group member {i}", result, right.astype(arrays[i].dtype))
        in_place = env.hvd.grouped_allreduce_(tensors, name="group.in.place", op=env.hvd.Sum)
        env.check_true("in place", all(a is b for a, b in zip(in_place, tensors)))
        for i, (result, right) in enumerate(zip(tensors, expected)):
            env.check(f"group member {i} in place", result, right.astype(arrays[i].dtype))
    gathered = env.hvd.grouped_allgather([env.tensor([[env.rank]]), env.tensor(np.zeros((env.rank, 2)))], name="group")
    env.check("gathered 0", gathered[0], np.arange(env.size, dtype=np.float32).reshape(-1, 1))
    env.check("gathered 1", gathered[1], np.zeros((sum(range(env.size)), 2), np.float32))
    parts = env.hvd.grouped_reducescatter([env.tensor(np.ones(env.size)), env.tensor(np.ones((2 * env.size, 2)))])
    env.check("scattered 0", parts[0], np.ones(1, np.float32))
    env.check("scattered 1", parts[1], np.ones((2, 2), np.float32))
    env.check("empty group", list(env.hvd.grouped_allreduce([])), [])
    twice = env.tensor([1])
    env.raises("one tensor twice", ValueError, lambda: env.hvd.grouped_allreduce_([twice, twice], name="group.twice"))


def groups_in_any_order(env: Env) -> None:
    names = [f"ordered.{i}" for i in range(6)]
    mine = names if env.rank % 2 else names[::-1]
    tensors = [env.tensor([1]), env.tensor(np.ones(200))]
    started = {name: env.hvd.grouped_allreduce_async(tensors, name=name, op=env.hvd.Sum) for name in mine}
    for name in names:
        env.check(name, env.hvd.synchronize(started[name])[1], np.full(200, env.size, np.float32))


# ---- objects, order


def objects(env: Env) -> None:
    root = env.size - 1
    given = env.hvd.broadcast_object({"rank": env.rank, "data": [1, "two"]}, root, name="object")
    env.check("broadcast_object", given, {"rank": root, "data": [1, "two"]})
    big = env.hvd.broadcast_object(b"x" * 300000 if env.rank == 0 else None, 0)
    env.check("a large object", big, b"x" * 300000)
    # Sizes that differ, one of them tiny, and a function of this file.
    every = env.hvd.allgather_object(["y" * 1000 * env.rank, lambda: 7])
    env.check("allgather_object", [len(one[0]) for one in every], [1000 * rank for rank in range(env.size)])
    env.check("a function", [one[1]() for one in every], [7] * env.size)
    refused = (InvalidArgumentError,) if env.rank == 0 else (MismatchError,)
    env.raises("no pickle", refused, lambda: env.hvd.broadcast_object(threading.Lock() if env.rank == 0 else None))
    env.still_usable("no pickle")


def barrier(env: Env) -> None:
    for round_ in range(5):
        mark = os.path.join(env.directory, f"barrier.{round_}.{env.rank}")
        with open(mark, "w"):
            pass
        env.hvd.barrier()
        missing = [
            r for r in range(env.size) if not os.path.exists(os.path.join(env.directory, f"barrier.{round_}.{r}"))
        ]
        env.check(f"ranks not yet at barrier {round_}", missing, [])


def several_threads(env: Env) -> None:
    enter = getattr(env, "enter_thread", None)
    failures: list[str] = []

    def work(thread: int) -> None:
        if enter is not None:
            enter()
        for i in range(10):
            expected = np.full(50, (thread + i) * env.size, np.float32)
            result = env.hvd.allreduce(
                env.tensor(np.full(50, thread + i)), name=f"thread.{thread}.{i % 3}", op=env.hvd.Sum
            )
            if not np.array_equal(env.target.array(result), expected):
                failures.append(f"thread {thread}, step {i}: {env.target.array(result)[0]} instead of {expected[0]}")

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    env.check("threads", failures, [])


def many_names(env: Env) -> None:
    """More names than the cache holds, several rounds, each with other shapes: ids are given, taken away and given
    again."""
    for round_, n in itertools.product(range(3), range(60)):
        expected = np.full(1 + round_ + n % 3, n * env.size, np.float32)
        result = env.hvd.allreduce(env.tensor(np.full(1 + round_ + n % 3, n)), name=f"many.{n}", op=env.hvd.Sum)
        env.check(f"name {n}, round {round_}", result, expected)


def deprecated_average(env: Env) -> None:
    import warnings

    two = env.tensor([2])  # before: a framework may warn of its own
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        total = env.hvd.allreduce(two, average=False)
        mean = env.hvd.allreduce(two, average=True)
    env.check("average=False", total, np.array([2 * env.size], np.float32))
    env.check("average=True", mean, np.array([2], np.float32))
    if env.engine == "real":  # the filters are one per process, and the fake's ranks share one
        env.check("warnings", {one.category for one in caught}, {DeprecationWarning})
        env.check("the line that they point at", {one.filename for one in caught}, {__file__})


def errors_of_the_right_kind(env: Env) -> None:
    env.check_true("MismatchError", issubclass(MismatchError, HorovodInternalError))
    env.check_true("HorovodInternalError", issubclass(env.hvd.HorovodInternalError, RuntimeError))


SEMANTICS: tuple[Callable[[Env], None], ...] = (
    dtype_mismatch,
    shape_mismatch,
    shape_mismatch_of_a_cached_name,
    op_mismatch,
    factor_mismatch,
    root_mismatch,
    group_mismatch,
    unsupported_dtype,
    no_tensor,
    refusal_of_a_group,
    values_elsewhere,
    gaps_in_place,
    bad_splits,
    indivisible_rows,
    scalars,
    names_and_sets_that_are_none,
    root_that_does_not_exist,
    reductions_that_do_not_exist,
    duplicate_name,
    handles_in_any_order,
    poll_turns_true,
    unnamed_in_order,
    tensors_kept_alive,
    results_outlive_their_handles,
    groups,
    groups_in_any_order,
    objects,
    barrier,
    several_threads,
    many_names,
    deprecated_average,
    errors_of_the_right_kind,
    *VALUES,
    *SENDS,
    *ENGINE,
)
