"""Runs the cases of `cases` on one rank: some blocking, some in flight together and finished in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

from cases import Case, all_cases
from targets import Env

# How many asynchronous operations are in flight at once.
_IN_FLIGHT = 12


def run_cases(env: Env, cases: Callable[[int], Iterator[Case]] = all_cases) -> dict[str, int]:
    """Runs every case; failures are noted in `env`. Returns the counts."""
    run = 0
    waiting: list[tuple[Case, Any, int]] = []
    has = (case for case in cases(env.size) if case.dtype not in env.target.lacking)
    for index, case in enumerate(has):
        tensor = env.target.tensor(case.input(env.rank, env.size))
        if index % 2:
            _check(env, case, tensor, _blocking(env, case, tensor))
        else:
            waiting.append((case, tensor, _start(env, case, tensor)))
        if len(waiting) == _IN_FLIGHT:
            _finish(env, waiting)
        run += 1
    _finish(env, waiting)
    return {"run": run}


def _finish(env: Env, waiting: list[tuple[Case, Any, int]]) -> None:
    # Last in, first out: handles may be waited for in any order.
    while waiting:
        case, tensor, handle = waiting.pop()
        result = env.hvd.synchronize(handle)
        _check(env, case, tensor, result[0] if case.kind == "alltoall" else result)


def _check(env: Env, case: Case, tensor: Any, result: Any) -> None:
    what = f"{case.name} on {env.size} ranks"
    if case.kind == "alltoall_splits":
        result, received = result
        expected = [case.splits(other, env.size)[env.rank] for other in range(env.size)]
        env.check(f"{what}, received splits", [int(rows) for rows in env.target.array(received)], expected)
    env.check(what, result, case.expected(env.rank, env.size), case.tolerance())
    if case.kind in ("allreduce_", "broadcast_"):
        env.check_true(f"{what}: the result is not the tensor given", result is tensor)
    else:
        env.check(f"{what}, input afterwards", tensor, case.input(env.rank, env.size))


def _arguments(env: Env, case: Case) -> dict[str, Any]:
    if case.kind.startswith("allreduce") or case.kind == "reducescatter":
        return {"op": case.op, "prescale_factor": case.factors[0], "postscale_factor": case.factors[1]}
    if case.kind.startswith("broadcast"):
        return {"root_rank": case.root(env.size)}
    if case.kind == "alltoall_splits":
        return {"splits": case.splits(env.rank, env.size)}
    return {}


def _blocking(env: Env, case: Case, tensor: Any) -> Any:
    function: Callable[..., Any] = getattr(env.hvd, case.kind.replace("_splits", ""))
    return function(tensor, name=case.name, **_arguments(env, case))


def _start(env: Env, case: Case, tensor: Any) -> int:
    kind = case.kind.replace("_splits", "")
    function = getattr(env.hvd, f"{kind[:-1]}_async_" if kind.endswith("_") else f"{kind}_async")
    handle: int = function(tensor, name=case.name, **_arguments(env, case))
    return handle
