"""One rank of a contract job: runs the parts it is asked for and reports counts and failures.

    PYTHONPATH=python:tests \
        python -m horovod.runner -np 3 python tests/contract/worker.py --target numpy --directory DIR cases semantics

Started by `test_contract` through our own launcher. It decides nothing about which job runs.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import traceback
from typing import Any, Callable

import numpy as np
from case_runner import run_cases
from cases import eight_bit_cases
from jobs import ways
from jobs.installed import require_installed
from jobs.report import report
from semantics import SEMANTICS
from semantics_join import JOIN
from semantics_life import LIFE
from semantics_sets import DYNAMIC, static_sets
from targets import TARGETS, Env


def run_facts(env: Env, facts: tuple[Callable[[Env], None], ...]) -> dict[str, int]:
    """Runs facts one after the other. A fact that raises ends everything: the ranks are no longer at the same place."""
    run = 0
    for fact in facts:
        if fact.__name__ in env.target.leaves_out:
            continue
        run += 1
        before = len(env.failures)
        try:
            fact(env)
        except Exception as error:
            raise RuntimeError(f"{fact.__name__} raised") from error
        env.failures[before:] = [f"{fact.__name__}: {text}" for text in env.failures[before:]]
    return {"run": run}


def big_tensors(env: Env) -> None:
    """More than 2^31 elements; NumPy only, without further copies of that size."""
    n = 2**31 + 5
    tensor = np.full(n, env.rank + 1, np.int8)
    env.hvd.allreduce_(tensor, op=env.hvd.Sum, name="big")
    total = env.size * (env.size + 1) // 2
    for start in range(0, n, 1 << 28):
        part = tensor[start : start + (1 << 28)]
        env.check_true(f"elements from {start}", bool(np.all(part == total)))
    tensor[-1] = env.rank
    env.hvd.broadcast_(tensor, env.size - 1, name="big")
    env.check("the last element", tensor[-2:].copy(), np.array([total, env.size - 1], np.int8))


def _static(env: Env) -> dict[str, int]:
    return run_facts(env, (static_sets,))


PARTS: dict[str, Callable[[Env], dict[str, int]]] = {
    "cases": run_cases,
    "eight bits": lambda env: run_cases(env, eight_bit_cases),
    "semantics": lambda env: run_facts(env, SEMANTICS),
    "sets": lambda env: run_facts(env, DYNAMIC),
    "static": _static,
    "big": lambda env: run_facts(env, (big_tensors,)),
    "join": lambda env: run_facts(env, JOIN),
    "life": lambda env: run_facts(env, LIFE),
}


def main() -> int:
    """Runs the parts; exit code 1 if this rank failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", choices=sorted(TARGETS), required=True)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--deadline", type=float, default=100.0)
    parser.add_argument("parts", nargs="+", choices=sorted(PARTS))
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.deadline, exit=True)
    target = TARGETS[arguments.target]()
    env: Any = Env(target, arguments.directory, "real")
    if arguments.parts == ["static"]:
        size = int(os.environ["HOROVOD_SIZE"])
        env.static_sets = [target.hvd.ProcessSet(list(range(0, size, 2))), target.hvd.ProcessSet([size - 1])]
        target.hvd.init(process_sets=env.static_sets)
    else:
        target.hvd.init(process_sets="dynamic")
    result: dict[str, Any] = {"rank": env.rank, "counts": {}}
    for part in arguments.parts:
        try:
            result["counts"][part] = PARTS[part](env)
        except Exception:
            env.failures.append(f"{part}:\n{traceback.format_exc()}")
            break
    try:
        ways.require_asked()
        require_installed()
    except AssertionError as error:
        env.failures.append(str(error))
    result["failures"] = env.failures[:20]
    target.hvd.shutdown()
    if faults := target.faults():
        result["failures"].append(f"faults: {faults}")
        env.failures.append(faults)
    report("contract", **result)
    return 1 if env.failures else 0


if __name__ == "__main__":
    sys.exit(main())
