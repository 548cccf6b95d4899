"""One rank of a job that runs random programs, one after the other.

    PYTHONPATH=python:tests \
        python -m horovod.runner -np 3 python tests/contract/program_worker.py torch.3.7/12 torch.3.7/13:0,4

A word names a program, or behind a colon some steps of it (`random_programs.programs.Program`). Reports every program
when it begins and ends, and what was wrong. A program that takes too long prints the stacks and ends the rank.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import traceback
from typing import Any

import numpy as np
from jobs.report import report
from random_programs.draw import parsed
from random_programs.programs import AddSet, Blocking, Call, Join, Objects, Program, RemoveSet, Step, Together
from random_programs.ways import Outcome, Way, way_of
from targets import Env


class Follower:
    """Takes this rank's part in a program; what is wrong is noted in `env`."""

    def __init__(self, env: Env, way: Way) -> None:
        self._env, self._way = env, way
        self._sets: dict[int, Any] = {0: env.hvd.global_process_set}

    def follow(self, program: Program) -> None:
        """Takes the chosen steps, then removes the sets that are left."""
        for number in program.chosen:
            step, before = program.steps[number], len(self._env.failures)
            try:
                self._take(step, number)
            except Exception as error:
                raise RuntimeError(f"step {number}, {step}") from error
            self._env.failures[before:] = [f"step {number}: {text}" for text in self._env.failures[before:]]
        for number in [number for number in self._sets if number]:
            self._env.hvd.remove_process_set(self._sets.pop(number))

    def _take(self, step: Step, number: int) -> None:
        env, hvd = self._env, self._env.hvd
        if isinstance(step, AddSet):
            self._sets[step.process_set] = hvd.add_process_set(list(step.ranks))
        elif isinstance(step, RemoveSet):
            env.check("removed", hvd.remove_process_set(self._sets.pop(step.process_set)), True)
        elif isinstance(step, Blocking):
            self._block(step.call)
        elif isinstance(step, Together):
            outcomes = self._way.together(step, env.rank, self._sets, lambda: self._block(*step.between))
            order = step.wait_order(env.rank) if step.way in ("handles", "polled") else step.start_order(env.rank)
            for n, outcome in zip(order, outcomes):
                self._check(step.calls[n], outcome)
        elif isinstance(step, Objects):
            self._objects(step, number)
        else:
            self._join(step)

    def _block(self, *calls: Call) -> None:
        for call in calls:
            if self._env.rank in call.members:
                process_set = self._sets[call.process_set]
                self._check(call, self._way.blocking(call, self._env.rank, process_set))

    def _objects(self, step: Objects, number: int) -> None:
        env, hvd, process_set = self._env, self._env.hvd, self._sets[step.process_set]
        if env.rank not in step.members:
            return
        mine = {"rank": env.rank, "more": np.arange(number * env.rank)}
        if step.kind == "barrier":
            hvd.barrier(process_set=process_set)
            return
        if step.kind == "broadcast_object":
            got, ranks = [hvd.broadcast_object(mine, step.root, process_set=process_set)], [step.root]
        else:
            got, ranks = hvd.allgather_object(mine, process_set=process_set), list(step.members)
        env.check(f"{step}", [each["rank"] for each in got], ranks)
        env.check(f"{step}, more", [len(each["more"]) for each in got], [number * rank for rank in ranks])

    def _join(self, step: Join) -> None:
        env, hvd = self._env, self._env.hvd
        own = step.calls[: step.made[env.rank]]
        if step.at_once:
            outcomes = self._way.at_once(own, env.rank, self._sets[0])
        else:
            outcomes = [self._way.blocking(call, env.rank, self._sets[0]) for call in own]
        for call, outcome in zip(own, outcomes):
            self._check(call, outcome)
        last = int(hvd.join())
        # The last call of those that make most ends when all others have joined.
        most = [rank for rank, made in enumerate(step.made) if made == max(step.made)]
        env.check_true(f"join: {last} was last, of {step.made}", last in most)
        env.check(f"join: {last} was last for all", hvd.allgather_object(last), [last] * env.size)

    def _check(self, call: Call, outcome: Outcome) -> None:
        env = self._env
        expected, inputs = call.expected(env.rank), call.inputs(env.rank)
        env.check(f"results of {call}", len(outcome.results), len(expected))
        for n, (got, right) in enumerate(zip(outcome.results, expected)):
            env.check(f"result {n} of {call}", got, right, call.tolerance(n))
            env.check_true(f"result {n} of {call} is {got.dtype}", got.dtype == right.dtype)
        for n, (got, right) in enumerate(zip(outcome.afterwards, expected if call.in_place else inputs)):
            env.check(f"tensor {n} after {call}", got, right, call.tolerance(n) if call.in_place else 0.0)
        env.check(f"received splits of {call}", outcome.received, call.received_splits(env.rank) or [])
        env.check_true(f"other tensors than those given to {call}", outcome.same)


def main() -> int:
    """Runs the programs; exit code 1 if this rank failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--patience", type=float, default=30.0, help="seconds for a program")
    parser.add_argument("programs", nargs="+")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(2 * arguments.patience, exit=True)
    programs = [parsed(text) for text in arguments.programs]
    way = way_of(programs[0].framework)
    way.target.hvd.init(process_sets="dynamic")
    env = Env(way.target, "", "real")
    failed = False
    for program in programs:
        faulthandler.dump_traceback_later(arguments.patience, exit=True)
        report("begun", program=str(program), rank=env.rank)
        env.failures = []
        raised = False
        try:
            Follower(env, way).follow(program)
        except Exception:
            env.failures.append(traceback.format_exc())
            raised = True
        failed = failed or bool(env.failures)
        report("ended", program=str(program), rank=env.rank, failures=env.failures[:20])
        if raised:  # the ranks are no longer at the same place
            return 1
    way.target.hvd.shutdown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
