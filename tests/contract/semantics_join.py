"""What holds for join: who has no more data stands in with what changes nothing, until all have joined."""

from __future__ import annotations

from typing import Callable

import numpy as np
from targets import Env

from horovod._core.errors import MismatchError


def uneven_steps(env: Env) -> None:
    hvd = env.hvd
    for round_ in range(2):
        # Rank r makes r + 1 steps; in step s the ranks s and above take part.
        for step in range(env.rank + 1):
            present = range(step, env.size)
            tensor = env.tensor(np.full(5, env.rank + 1))
            total = hvd.allreduce(tensor, op=hvd.Sum, name=f"step.{round_}.{step}")
            env.check(f"sum in step {step}", total, np.full(5, sum(r + 1 for r in present), np.float32))
            mean = hvd.allreduce(env.tensor([env.size]), name=f"mean.{round_}.{step}")
            # The divisor stays the number of all ranks.
            env.check(f"mean in step {step}", mean, np.array([len(present)], np.float32), rtol=1e-6)
        last = hvd.join()
        everybody = hvd.allgather_object(last)
        env.check_true(f"the last to join: {everybody}", len(set(everybody)) == 1 and 0 <= last < env.size)


def identities(env: Env) -> None:
    """Rank 0 joins at once; the others' reductions are as if it were not there."""
    hvd = env.hvd
    if env.rank > 0:
        ranks = range(1, env.size)
        for dtype in (np.float32, np.int32, np.uint8, np.float16):
            for op, right in (
                (hvd.Min, min(ranks)),
                (hvd.Max, max(ranks)),
                (hvd.Product, int(np.prod(list(ranks)))),
                (hvd.Sum, sum(ranks)),
            ):
                if np.dtype(dtype) == np.uint8 and right > 255:
                    continue
                name = f"identity.{np.dtype(dtype).name}.{op}"
                result = hvd.allreduce(env.tensor([env.rank, env.rank], dtype), op=op, name=name)
                env.check(name, result, np.array([right, right], dtype))
        group = hvd.grouped_allreduce([env.tensor([1]), env.tensor([2, 3])], op=hvd.Sum, name="identity.group")
        env.check("group", group[1], np.array([2, 3], np.float32) * (env.size - 1))
    hvd.join(np.int64(-1))
    env.still_usable("identities")


def other_operations_fail(env: Env) -> None:
    hvd = env.hvd
    if env.rank > 0:
        for kind, arguments in (("allgather", ()), ("broadcast", (1,)), ("alltoall", ()), ("reducescatter", ())):
            call = lambda: getattr(hvd, kind)(env.tensor(np.zeros(env.size)), *arguments, name="joined")  # noqa: E731, B023
            text = env.raises(f"{kind} after a join", MismatchError, call)
            env.check_true(f"{kind} after a join: {text!r}", "join" in text)
    hvd.join()
    env.still_usable("operations after a join")


def unnamed_operations_meet_again(env: Env) -> None:
    """The ranks have counted different numbers of unnamed operations, some of them refused, when a join ends."""
    hvd = env.hvd
    for round_ in range(2):
        for _ in range(env.rank + 1):
            hvd.allreduce(env.tensor([1.0]), op=hvd.Sum)
        if env.rank == env.size - 1 and env.size > 1:
            env.raises("unnamed after a join", MismatchError, lambda: hvd.allgather(env.tensor([1.0])))
            env.raises("object after a join", MismatchError, lambda: hvd.allgather_object("mine"))
        hvd.join()
        total = hvd.allreduce(env.tensor([1.0]), op=hvd.Sum)
        env.check(f"unnamed sum in round {round_}", total, np.array([env.size], np.float32))
        gathered = hvd.allgather(env.tensor([env.rank]))
        env.check(f"unnamed gather in round {round_}", gathered, np.arange(env.size, dtype=np.float32))
        env.check(f"objects in round {round_}", hvd.allgather_object(env.rank), list(range(env.size)))
        env.check(f"object in round {round_}", hvd.broadcast_object(env.rank, env.size - 1), env.size - 1)


JOIN: tuple[Callable[[Env], None], ...] = (
    uneven_steps,
    identities,
    other_operations_fail,
    unnamed_operations_meet_again,
)
