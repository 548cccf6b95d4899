"""Random operations against the real engine: overlapping process sets x threads x groups x mistakes x join x evictions,
from one seed.

    PYTHONPATH=python:tests HOROVOD_CACHE_CAPACITY=8 \
        python -m horovod.runner -np 4 python tests/contract/stress.py --seed 1 --iterations 20

All ranks draw the same plan from the seed, so each knows what every operation must yield. The threads of a rank follow
plans of their own, whose order is equal on all ranks; between the threads anything may happen. Reports like
`worker.py`; the seed repeats a failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import threading
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
from jobs.report import report
from targets import TARGETS, Env

from horovod._core.errors import MismatchError

THREADS = 3
OPS_PER_THREAD = 12
KINDS = ("allreduce", "allreduce_", "async", "group", "allgather", "broadcast", "alltoall", "reducescatter", "mistake")


@dataclass(frozen=True)
class Step:
    """One operation of one thread's plan, equal on all ranks."""

    kind: str
    members: tuple[int, ...]
    set_index: int
    name: str
    elems: int
    odd_one: int


def plan(rng: random.Random, sets: list[tuple[int, ...]], thread: int) -> list[Step]:
    """What a thread does in one round. Names come back, with other sizes and in other sets."""
    steps = []
    for _ in range(OPS_PER_THREAD):
        index = rng.randrange(len(sets))
        elems = rng.choice((0, 1, 3, 64, 1000, 70000 if rng.random() < 0.2 else 17))
        name = f"{rng.choice('abcdef')}.{thread}"
        steps.append(Step(rng.choice(KINDS), sets[index], index, name, elems, rng.choice(sets[index])))
    return steps


class Stress:
    """One rank's run.

    Args:
        env: of this rank.
        seed: equal on all ranks.
    """

    def __init__(self, env: Env, seed: int) -> None:
        self._env = env
        self._seed = seed
        self._failures: list[str] = []

    def round(self, number: int) -> None:
        """Registers sets, lets the threads run, joins with uneven numbers of steps, forgets the sets."""
        env, rng = self._env, random.Random(f"{self._seed}.{number}")
        ranks = range(env.size)
        drawn = {tuple(sorted(rng.sample(ranks, rng.randint(1, env.size)))) for _ in range(3)} - {tuple(ranks)}
        sets = [tuple(ranks), *sorted(drawn)]
        registered = [env.hvd.global_process_set, *(env.hvd.add_process_set(list(one)) for one in sets[1:])]
        plans = [plan(rng, sets, thread) for thread in range(THREADS)]
        threads = [threading.Thread(target=self._follow, args=(number, one, registered)) for one in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._join(number, [rng.randrange(6) for _ in ranks])
        for one in registered[1:]:
            env.hvd.remove_process_set(one)
        if self._failures:
            raise AssertionError("\n".join(self._failures))

    def _follow(self, number: int, steps: list[Step], registered: list[Any]) -> None:
        try:
            for step in steps:
                if self._env.rank in step.members:
                    self._do(step, registered[step.set_index])
        except Exception:
            self._failures.append(f"round {number}, {step}:\n{traceback.format_exc()}")

    def _do(self, step: Step, process_set: Any) -> None:
        env, hvd = self._env, self._env.hvd
        size, index = len(step.members), step.members.index(env.rank)
        own = env.tensor(np.full(step.elems, env.rank + 1))
        total = np.full(step.elems, sum(step.members) + size, np.float32)
        common = {"name": step.name, "process_set": process_set}
        if step.kind == "mistake":
            if size > 1:
                odd = env.tensor(np.zeros(step.elems + 1)) if env.rank == step.odd_one else own
                text = env.raises(f"{step}", MismatchError, lambda: hvd.allreduce(odd, **common))
                env.check_true(f"{step}: {text!r}", step.name in text)
        elif step.kind == "allreduce":
            env.check(f"{step}", hvd.allreduce(own, op=hvd.Sum, **common), total)
        elif step.kind == "allreduce_":
            env.check(f"{step}", hvd.allreduce_(own, op=hvd.Sum, **common), total)
        elif step.kind == "async":
            started = [
                hvd.allreduce_async(own, op=hvd.Sum, name=f"{step.name}.{i}", process_set=process_set) for i in range(5)
            ]
            for handle in reversed(started):
                env.check(f"{step}", hvd.synchronize(handle), total)
        elif step.kind == "group":
            results = hvd.grouped_allreduce([own, env.tensor([1.0]), own], op=hvd.Sum, **common)
            env.check(f"{step}", results[2], total)
        elif step.kind == "allgather":
            mine = env.tensor(np.full((step.elems % 50 + index, 2), env.rank))
            parts = [np.full((step.elems % 50 + i, 2), r, np.float32) for i, r in enumerate(step.members)]
            env.check(f"{step}", hvd.allgather(mine, **common), np.concatenate(parts))
        elif step.kind == "broadcast":
            right = np.full(step.elems, step.odd_one + 1, np.float32)
            env.check(f"{step}", hvd.broadcast(own, step.odd_one, **common), right)
        elif step.kind == "alltoall":
            rows, _ = hvd.alltoall(env.tensor(np.repeat(np.arange(size), 2)), splits=[2] * size, **common)
            env.check(f"{step}", rows, np.full(2 * size, index, np.float32))
        else:
            block = hvd.reducescatter(env.tensor(np.arange(2 * size)), op=hvd.Sum, **common)
            env.check(f"{step}", block, np.array([2 * index, 2 * index + 1], np.float32) * size)

    def _join(self, number: int, steps_of: list[int]) -> None:
        env, hvd = self._env, self._env.hvd
        for step in range(steps_of[env.rank]):
            present = [rank for rank, steps in enumerate(steps_of) if steps > step]
            total = hvd.allreduce(env.tensor([env.rank + 1]), op=hvd.Sum, name=f"join.{step}")
            env.check(f"join {number}.{step}", total, np.array([sum(present) + len(present)], np.float32))
        last = hvd.join()
        env.check_true(f"join {number}: rank {last}", 0 <= last < env.size)


def main() -> int:
    """Runs the rounds; exit code 1 if this rank failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=sorted(TARGETS), default="numpy")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--directory", default="")
    parser.add_argument("--deadline", type=float, default=100.0)
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.deadline, exit=True)
    target = TARGETS[arguments.target]()
    target.hvd.init(process_sets="dynamic")
    env = Env(target, arguments.directory, "real")
    stress = Stress(env, arguments.seed)
    done = 0
    try:
        while done < arguments.iterations and not env.failures:
            stress.round(done)
            done += 1
    except Exception:
        env.failures.append(f"seed {arguments.seed}, round {done}:\n{traceback.format_exc()}")
    result = {"rank": env.rank, "counts": {"stress": {"run": done}}, "failures": env.failures[:20]}
    report("contract", **result)
    return 1 if env.failures else 0


if __name__ == "__main__":
    sys.exit(main())
