"""What holds for process sets: registration, membership, ids, independence of one another."""

from __future__ import annotations

import threading
import time
from typing import Callable

import numpy as np
from targets import Env

from horovod._core.errors import MismatchError
from horovod._core.life.process_sets import ids_and_ranks, of_members, with_id


def add_and_remove(env: Env) -> None:
    if env.size == 1:
        return
    hvd = env.hvd
    ranks = list(range(1, env.size))
    process_set = hvd.ProcessSet(ranks[::-1])
    env.check("ranks are sorted", process_set.ranks, ranks)
    env.check(
        "unregistered", (process_set.size(), process_set.rank(), process_set.included()), (None, None, env.rank > 0)
    )
    env.raises("unregistered", ValueError, lambda: hvd.allreduce(env.tensor([1]), process_set=process_set))
    env.check_true("the set itself is returned", hvd.add_process_set(process_set) is process_set)
    env.check("size", process_set.size(), env.size - 1)
    env.check("included", process_set.included(), env.rank > 0)
    if env.rank == 0:
        env.raises("rank of a stranger", ValueError, process_set.rank)
        text = env.raises(
            "op of a stranger", ValueError, lambda: hvd.allreduce(env.tensor([1]), process_set=process_set)
        )
        env.check_true(f"a stranger's text: {text!r}", "not a member" in text)
    else:
        env.check("rank", process_set.rank(), env.rank - 1)
        total = hvd.allreduce(env.tensor([env.rank]), op=hvd.Sum, process_set=process_set)
        env.check("sum of the set", total, np.array([sum(ranks)], np.float32))
        mean = hvd.allreduce(env.tensor([6.0]), process_set=process_set)
        env.check("mean of the set", mean, np.array([6.0], np.float32))
        gathered = hvd.allgather(env.tensor([env.rank]), process_set=process_set)
        env.check("gathered in the set", gathered, np.array(ranks, np.float32))
        sent = hvd.broadcast(env.tensor([env.rank]), root_rank=env.size - 1, process_set=process_set)
        env.check("the root is a global rank", sent, np.array([env.size - 1], np.float32))
        text = env.raises(
            "root outside", ValueError, lambda: hvd.broadcast(env.tensor([1]), 0, process_set=process_set)
        )
        env.check_true(f"root outside: {text!r}", "global" in text)
        swapped = hvd.alltoall(env.tensor([env.rank] * (env.size - 1)), process_set=process_set)
        env.check("alltoall in the set", swapped, np.array(ranks, np.float32))
        block = hvd.reducescatter(env.tensor(np.ones(env.size - 1)), op=hvd.Sum, process_set=process_set)
        env.check("reducescatter in the set", block, np.array([env.size - 1], np.float32))
        env.check("objects in the set", hvd.allgather_object(env.rank, process_set=process_set), ranks)
        hvd.barrier(process_set=process_set)
        env.raises(
            "Adasum",
            NotImplementedError,
            lambda: hvd.allreduce(env.tensor([1]), op=hvd.Adasum, process_set=process_set),
        )
    env.check("removed", hvd.remove_process_set(process_set), True)
    env.check("its id", process_set.process_set_id, None)
    env.check("removed twice", hvd.remove_process_set(process_set), False)
    env.check("the global set", hvd.remove_process_set(hvd.global_process_set), False)
    env.still_usable("add and remove")


def registration_errors(env: Env) -> None:
    hvd = env.hvd
    env.raises("all ranks again", ValueError, lambda: hvd.add_process_set(list(range(env.size))))
    env.raises("no such rank", ValueError, lambda: hvd.add_process_set([env.size]))
    env.raises("no ranks", ValueError, lambda: hvd.add_process_set([]))
    env.raises("no integers", ValueError, lambda: hvd.ProcessSet(["a"]))
    env.raises("a rank twice", ValueError, lambda: hvd.ProcessSet([0, 0]))
    if env.size > 2:
        text = env.raises("ranks disagree", MismatchError, lambda: hvd.add_process_set([0] if env.rank == 0 else [1]))
        env.check_true(f"ranks disagree: {text!r}", bool(text))
        first = hvd.add_process_set([0, 1])
        env.raises("the same again", ValueError, lambda: hvd.add_process_set([1, 0]))
        hvd.remove_process_set(first)
    env.still_usable("registration errors")


def sets_one_after_another(env: Env) -> None:
    """A set that was used and removed leaves nothing to the next one: neither its id, nor names, nor counters."""
    if env.size < 3:
        return
    hvd = env.hvd
    ids = []
    for ranks in ([0, 1], [1, 2], [0, 2]):
        process_set = hvd.add_process_set(ranks)
        ids.append(process_set.process_set_id)
        if process_set.included():
            # The same name and shapes each time: what was prepared for an earlier set must not be used.
            for _ in range(2):
                tensor = env.tensor([env.rank])
                hvd.allreduce_(tensor, name="again", op=hvd.Sum, process_set=process_set)
                env.check(f"sum of {ranks}", tensor, np.array([sum(ranks)], np.float32))
            unnamed = hvd.allreduce(env.tensor([1.0]), op=hvd.Sum, process_set=process_set)
            env.check(f"unnamed sum of {ranks}", unnamed, np.array([2], np.float32))
        hvd.remove_process_set(process_set)
    env.check_true(f"ids {ids} rise", sorted(set(ids)) == ids)


def sets_that_their_members_ask_for_alone(env: Env) -> None:
    """As the groups of torch.distributed do."""
    if env.size < 3:
        return
    pairs = [[0, env.size - 1], [1, env.size - 1], [0, 1]]
    for ranks in pairs:
        if env.rank in ranks:
            total = env.hvd.allreduce(env.tensor([env.rank]), op=env.hvd.Sum, process_set=of_members(ranks))
            env.check(f"sum of {ranks}", total, np.array([sum(ranks)], np.float32))
    env.hvd.barrier()
    if env.rank in pairs[0]:
        env.check_true("the set is there", of_members(pairs[0]) is of_members(pairs[0]))
    text = env.raises("it exists", ValueError, lambda: env.hvd.add_process_set(pairs[0]))
    env.check_true(f"it exists: {text!r}", "already" in text)
    if env.rank == 0:
        env.raises("not a member", ValueError, lambda: of_members([1]))
    for ranks in pairs:
        while ranks not in ids_and_ranks().values():  # others than the members hear of it in passing
            time.sleep(0.01)
        (number,) = [number for number, members in ids_and_ranks().items() if members == ranks]
        env.hvd.remove_process_set(with_id(number))  # collective over all ranks
    env.still_usable("sets of members")


def overlapping_sets_from_threads(env: Env) -> None:
    if env.size < 3:
        return
    hvd = env.hvd
    sets = (
        [hvd.add_process_set([r, (r + 1) % env.size]) for r in range(env.size)]
        if env.size > 3
        else [hvd.add_process_set([r for r in range(3) if r != gap]) for gap in range(3)]
    )
    failures: list[str] = []
    enter = getattr(env, "enter_thread", None)

    def work(process_set: object) -> None:
        if enter is not None:
            enter()
        for i in range(15):
            # The same name in every set: they must not meet.
            total = hvd.allreduce(
                env.tensor(np.full(20, env.rank + i)), name="crowd", op=hvd.Sum, process_set=process_set
            )
            right = sum(process_set.ranks) + i * len(process_set.ranks)
            if not np.all(env.target.array(total) == right):
                failures.append(f"{process_set}: {env.target.array(total)[0]} instead of {right}")

    threads = [threading.Thread(target=work, args=(one,)) for one in sets if one.included()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    env.check("overlapping sets", failures, [])
    for one in sets:
        hvd.remove_process_set(one)
    env.still_usable("overlapping sets")


DYNAMIC: tuple[Callable[[Env], None], ...] = (
    add_and_remove,
    registration_errors,
    sets_one_after_another,
    sets_that_their_members_ask_for_alone,
    overlapping_sets_from_threads,
)


def static_sets(env: Env) -> None:
    """Run after `init(process_sets=env.static_sets)`, without dynamic sets."""
    hvd = env.hvd
    sets = env.static_sets
    env.check("ids in list order", [one.process_set_id for one in sets], list(range(1, len(sets) + 1)))
    for one in sets:
        if one.included():
            total = hvd.allreduce(env.tensor([env.rank]), op=hvd.Sum, process_set=one, name="static")
            env.check(f"sum of {one}", total, np.array([sum(one.ranks)], np.float32))
    env.raises("no dynamic sets", ValueError, lambda: hvd.add_process_set([0]))
    env.raises("no dynamic sets", ValueError, lambda: hvd.remove_process_set(sets[0]))
    # Without rank 0, whom the others are connected through, even a set of one rank cannot go on.
    hvd.barrier()
    hvd.shutdown()
    env.check("ids after shutdown", {one.process_set_id for one in sets}, {None})
    env.raises("not initialised", ValueError, lambda: hvd.allreduce(env.tensor([1])))
    hvd.init(process_sets=sets)
    env.check("ids after another init", [one.process_set_id for one in sets], list(range(1, len(sets) + 1)))
    env.still_usable("static sets")
