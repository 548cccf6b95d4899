"""What holds for send and recv: who meets whom, what returns when, and what fails on which rank."""

from __future__ import annotations

from typing import Any, Callable

import ml_dtypes
import numpy as np
from targets import Env

from horovod._core.errors import MismatchError

_SMALL = 16384  # float32 elements: the largest tensor that is copied
_SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (3, 5), (2, 0, 4), (_SMALL,), (_SMALL + 1,), (300_001,))


def _values(rank: int, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    return (np.arange(np.prod(shape, dtype=int)) % 97 + rank).astype(dtype).reshape(shape)


def _neighbours(env: Env) -> tuple[int, int]:
    return (env.rank + 1) % env.size, (env.rank - 1) % env.size


def around_a_ring(env: Env) -> None:
    after, before = _neighbours(env)
    for shape in _SHAPES:
        for _ in range(3):
            mine, theirs = env.target.tensor(_values(env.rank, shape)), env.target.tensor(_values(-1, shape))
            handle = env.hvd.send_async(mine, after)
            env.check_true("recv returns the tensor given", env.hvd.recv(theirs, before) is theirs)
            env.check_true("send_async yields its tensor", env.hvd.synchronize(handle) is mine)
            env.check(f"received {shape}", theirs, _values(before, shape))


def every_dtype(env: Env) -> None:
    after, before = _neighbours(env)
    for dtype in (np.uint8, np.int64, np.float16, np.float64, np.bool_, ml_dtypes.bfloat16):
        mine, theirs = env.target.tensor(_values(env.rank, (7,), dtype)), env.target.tensor(_values(0, (7,), dtype))
        handle = env.hvd.recv_async(theirs, before)
        env.hvd.send(mine, after)
        env.check_true("recv_async yields the tensor given", env.hvd.synchronize(handle) is theirs)
        env.check(f"received {np.dtype(dtype)}", theirs, _values(before, (7,), dtype))


def all_send_first(env: Env) -> None:
    after, before = _neighbours(env)
    for step in range(4):
        tensor = env.target.tensor(_values(env.rank + step, (_SMALL,)))
        env.hvd.send(tensor, after, name="a name")
        received = env.hvd.recv(tensor, before, name="another one")  # it may be changed
        env.check("received after a send", received, _values(before + step, (_SMALL,)))


def pairs_keep_their_order(env: Env) -> None:
    after, before = _neighbours(env)
    count = 40
    tensors = [env.target.tensor(_values(env.rank * 100 + n, (n % 7 + 1,))) for n in range(count)]
    received = [env.target.tensor(_values(0, (n % 7 + 1,))) for n in range(count)]
    handles = [env.hvd.recv_async(tensor, before, name="alike") for tensor in received[: count // 2]]
    handles += [env.hvd.send_async(tensor, after, name="alike") for tensor in tensors]
    handles += [env.hvd.recv_async(tensor, before, name="alike") for tensor in received[count // 2 :]]
    for handle in reversed(handles):
        env.hvd.synchronize(handle)
    for n, tensor in enumerate(received):
        env.check(f"number {n}", tensor, _values(before * 100 + n, (n % 7 + 1,)))


def two_ranks_alone(env: Env) -> None:
    """The others are somewhere else."""
    first, last = 0, env.size - 1
    for shape in ((3,), (100_000,)):
        for _ in range(5):
            tensor = env.target.tensor(_values(env.rank, shape))
            if env.size > 1 and env.rank == last:
                env.hvd.send(tensor, first)
                env.check("the answer", env.hvd.recv(tensor, first), _values(last, shape) * 2)
            elif env.size > 1 and env.rank == first:
                env.hvd.recv(tensor, last)
                env.hvd.send(env.target.tensor(env.target.array(tensor) * 2), last)
    env.hvd.barrier()


def beside_collectives(env: Env) -> None:
    after, before = _neighbours(env)
    mine, theirs = env.target.tensor(_values(env.rank, (100_000,))), env.target.tensor(_values(0, (100_000,)))
    for step in range(3):
        handles = [env.hvd.send_async(mine, after)] if step % 2 == env.rank % 2 else []
        reduced = env.hvd.allreduce_async(mine, op=env.hvd.Sum, name=f"beside.{step}")
        if not handles:
            handles = [env.hvd.send_async(mine, after)]
        handles.append(env.hvd.recv_async(theirs, before))
        for handle in handles:
            env.hvd.synchronize(handle)
        env.check("received", theirs, _values(before, (100_000,)))
        total = sum(_values(rank, (100_000,)) for rank in range(env.size))
        env.check("reduced", env.hvd.synchronize(reduced), total)


def to_oneself(env: Env) -> None:
    for shape in _SHAPES:
        mine, again = env.target.tensor(_values(env.rank, shape)), env.target.tensor(_values(-1, shape))
        handle = env.hvd.send_async(mine, env.rank)
        env.check("sent, received", env.hvd.recv(again, env.rank), _values(env.rank, shape))
        env.hvd.synchronize(handle)
        handle = env.hvd.recv_async(mine, env.rank)
        env.hvd.send(env.target.tensor(_values(5, shape)), env.rank)
        env.check("received, sent", env.hvd.synchronize(handle), _values(5, shape))
        env.hvd.send(mine, env.rank)
        env.check("blocking", env.hvd.recv(again, env.rank), _values(5, shape))
    text = env.raises("nothing was sent", ValueError, lambda: env.hvd.recv(env.tensor([1]), env.rank))
    env.check_true(f"nothing was sent: {text!r}", "sent itself nothing" in text)


def another_dtype_or_shape(env: Env) -> None:
    after, before = _neighbours(env)
    for other in (env.tensor([1, 2], np.float64), env.tensor([1, 2, 3])):
        sent, received = env.hvd.send_async(env.tensor([1, 2]), after), env.hvd.recv_async(other, before)
        for handle in (sent, received):
            text = env.raises("another tensor", MismatchError, lambda handle=handle: env.hvd.synchronize(handle))
            env.check_true(f"another tensor: {text!r}", "float32 [2]" in text)
        # The pair goes on.
        handle = env.hvd.send_async(env.tensor([env.rank]), after)
        env.check("received", env.hvd.recv(env.tensor([-1]), before), np.array([before], np.float32))
        env.hvd.synchronize(handle)
    env.still_usable("another dtype or shape")


def a_send_that_had_returned(env: Env) -> None:
    """The next one raises its failure, once. That one keeps its place in the pair: its recv fails too."""
    after, before = _neighbours(env)
    env.hvd.send(env.tensor([1, 2]), after)
    received = env.hvd.recv_async(env.tensor([1, 2, 3]), before)
    env.raises("of the receiver", MismatchError, lambda: env.hvd.synchronize(received))
    env.hvd.synchronize(env.hvd.allreduce_async(env.tensor([1]), name="behind it"))  # what came before it is known
    if env.size > 1:  # a rank alone has sent to itself, and its recv has raised
        text = env.raises("of the next send", MismatchError, lambda: env.hvd.send(env.tensor([3]), after))
        env.check_true(f"of the next send: {text!r}", "not begun" in text)
        text = env.raises("of its recv", MismatchError, lambda: env.hvd.recv(env.tensor([-1]), before))
        env.check_true(f"of its recv: {text!r}", "not begun" in text)
    env.hvd.send(env.tensor([env.rank]), after)
    env.check("received", env.hvd.recv(env.tensor([-1]), before), np.array([before], np.float32))


def bad_arguments(env: Env) -> None:
    tensor = env.tensor([1.0])
    for call in (env.hvd.send, env.hvd.recv, env.hvd.send_async, env.hvd.recv_async):
        for rank in (env.size, -1, "0", 1.5, None):
            text = env.raises(f"rank {rank!r}", ValueError, lambda call=call, rank=rank: call(tensor, rank))
            env.check_true(f"rank {rank!r}: {text!r}", "rank" in text)
        env.raises("a list", ValueError, lambda call=call: call([1.0], 0))
        env.raises("a name", ValueError, lambda call=call: call(tensor, 0, name=3))
        env.raises("a set", ValueError, lambda call=call: call(tensor, 0, process_set=0))
        env.raises("a dtype", ValueError, lambda call=call: call(env.target.unsupported(), 0))
    env.raises("gaps", ValueError, lambda: env.hvd.recv(env.target.gappy(), 0))
    env.still_usable("bad arguments")


def ranks_of_a_set(env: Env) -> None:
    if env.size == 1:
        return
    members = env.hvd.add_process_set(env.hvd.ProcessSet(range(1, env.size)))
    if env.rank == 0:
        env.raises("a stranger", ValueError, lambda: env.hvd.send(env.tensor([1]), 0, process_set=members))
    else:
        place, n = env.rank - 1, env.size - 1
        handle = env.hvd.send_async(env.tensor([env.rank]), (place + 1) % n, process_set=members)
        received = env.hvd.recv(env.tensor([-1]), (place - 1) % n, process_set=members)
        env.check("received in the set", received, np.array([(place - 1) % n + 1], np.float32))
        env.hvd.synchronize(handle)
        text = env.raises("outside", ValueError, lambda: env.hvd.send(env.tensor([1]), n, process_set=members))
        env.check_true(f"outside: {text!r}", "Ranks are those of the process set" in text)
    env.hvd.remove_process_set(members)


SENDS: tuple[Callable[[Env], None], ...] = (
    around_a_ring, every_dtype, all_send_first, pairs_keep_their_order, two_ranks_alone, beside_collectives, to_oneself,
    another_dtype_or_shape, a_send_that_had_returned, bad_arguments, ranks_of_a_set,
)  # fmt: skip
