"""What the engine says of itself, what does not fit into it, and how its refusals can be caught."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any, Callable

import numpy as np
from targets import Env

from horovod._core.errors import HorovodError
from horovod._core.life import session
from horovod._core.life.autotuning import parameters
from horovod._native import abi

# Key -> type, as include/horovod/horovod.h promises of hvd_describe.
_ENGINE: dict[str, type] = {
    "abi": int, "rank": int, "size": int, "hostname": str, "simd": str, "shared_memory_ranks": int,
    "cores_per_rank": int, "failed": bool, "backends": list, "settings": dict, "process_sets": dict,
    "counters": dict,
}  # fmt: skip
_BACKEND: dict[str, type] = {"name": str, "usable": bool, "why_not": str, "version": int, "batches": int}
_COUNTERS: dict[str, type] = {
    **dict.fromkeys(("batches", "tensors", "sleeps", "in_flight", "steps", "stalls", "errors"), int),
    "operations": dict,
    "seconds": dict,
    "last_error": str,
}


def _check_types(env: Env, what: str, got: dict[str, Any], promised: dict[str, type]) -> None:
    env.check(what, {key: type(value) for key, value in got.items()}, promised)


def description(env: Env) -> None:
    told = json.loads(session.require().engine.describe())
    _check_types(env, "description", told, _ENGINE)
    _check_types(env, "counters", told["counters"], _COUNTERS)
    for backend in told["backends"]:
        _check_types(env, "backend", backend, _BACKEND)
        env.check("usable, or why not", backend["usable"], not backend["why_not"])
    backends = ["hierarchical", "nccl", "staged", "mpi", "host"]
    env.check("backends", [backend["name"] for backend in told["backends"]], backends)
    env.check("place", (told["rank"], told["size"], told["abi"]), (env.rank, env.size, abi.ABI_VERSION))
    env.check("the set of all ranks", told["process_sets"]["0"], list(range(env.size)))
    names = [name for name, *_ in abi.HvdConfig._fields_]
    env.check("settings", sorted(told["settings"]), sorted(names[names.index("hostname") + 1 :]))
    given = {
        "cache_capacity": int(os.environ.get("HOROVOD_CACHE_CAPACITY", -1)),
        "cycle_time_ms": float(os.environ.get("HOROVOD_CYCLE_TIME", 0)),
        "disable_group_fusion": os.environ.get("HOROVOD_DISABLE_GROUP_FUSION") == "1",
        "deterministic": os.environ.get("HOROVOD_DETERMINISTIC") == "1",
    }
    if env.engine == "real":
        env.check("settings as given", {name: told["settings"][name] for name in given}, given)


def metrics_count_what_moves(env: Env) -> None:
    before = env.hvd.metrics()
    none = {"tensors": 0, "bytes": 0}
    for count in (3, 5):
        env.hvd.allreduce(env.tensor([1.0] * count), op=env.hvd.Sum)
    env.hvd.broadcast(env.tensor([1.0] * 100_000), 0)
    after = env.hvd.metrics()
    if env.engine == "real":
        for kind, tensors, elements in (("allreduce", 2, 3 + 5), ("broadcast", 1, 100_000)):
            was, now = before["operations"].get(kind, none), after["operations"][kind]
            grown = {key: now[key] - was[key] for key in now}
            env.check(kind, grown, {"tensors": tensors, "bytes": 4 * elements})
        carried = [sum(told["batches_by_backend"].values()) for told in (before, after)]
        env.check("a backend carried the broadcast", carried[1] > carried[0], True)
        env.check("batches", after["batches"] - before["batches"], 3)
        env.check("seconds", set(after["seconds"]) > {"blocked", "waiting", "transferring", "pending"}, True)
    whole = (after["rank"], after["size"], after["failed"], after["in_flight"])
    env.check("this rank", whole, (env.rank, env.size, False, 0))


def profile_measures_a_block(env: Env) -> None:
    with env.hvd.profile() as outer:
        with env.hvd.profile() as inner:
            for _ in range(3):
                env.hvd.allreduce(env.tensor([1.0] * 1000), op=env.hvd.Sum, name="profiled")
        time.sleep(0.05)
    shares = outer.computing + outer.waiting + outer.transferring
    env.check("shares", abs(shares - outer.wall) < 1e-9, True)
    env.check("an outer block takes longer", outer.wall > inner.wall + 0.04, True)
    env.check("computing", outer.computing > 0.04, True)
    if env.engine == "real":
        env.check("operations", inner.operations, {"allreduce": {"tensors": 3, "bytes": 12_000}})
        env.check("steps", inner.steps >= 2, True)
    env.check("text", str(outer).startswith(f"rank {env.rank}: computing "), True)


def objects_are_sealed_between_strangers(env: Env) -> None:
    """Pickled bytes carry a code where ranks share no memory, that is, where others could send some."""
    env.check("sealed", session.require().seal is not None, env.apart)


def leftover_rows_again_and_again(env: Env) -> None:
    """Rows beyond the splits go nowhere, also when the name is known and the operation takes a shorter way."""
    rows = np.arange(3.0 * env.size, dtype=np.float32)
    for _ in range(4):
        result = env.hvd.alltoall(env.tensor(rows), splits=[1] * env.size, name="leftover")
        result = result[0] if isinstance(result, tuple) else result
        env.check("leftover rows", result, np.full(env.size, env.rank, np.float32))


def rows_beyond_32_bits(env: Env) -> None:
    """Rows without elements: any number of them costs no memory. Their number in a received split is what does not
    fit."""
    each = 2**31 + 5
    tensor = env.tensor(np.zeros((each * env.size, 0), np.uint8), np.uint8)
    env.check("rows", tuple(env.hvd.alltoall(tensor, name="many").shape), (each * env.size, 0))
    env.raises("splits", RuntimeError, lambda: env.hvd.alltoall(tensor, splits=[each] * env.size, name="many.splits"))
    handle = env.hvd.alltoall_async(tensor, name="many.async")
    env.raises("received splits", RuntimeError, lambda: env.hvd.synchronize(handle))
    env.still_usable("many rows")


def refusals_can_be_caught(env: Env) -> None:
    """Of one operation: as RuntimeError or as ValueError, whichever a program expects."""
    ones, flags = env.tensor([1.0, 1.0]), env.tensor([True], np.bool_)
    refused: dict[str, Callable[[], Any]] = {
        "reducescatter with Adasum": lambda: env.hvd.reducescatter(ones, op=env.hvd.Adasum, name="refused.1"),
        "reducescatter with Min": lambda: env.hvd.reducescatter(ones, op=env.hvd.Min, name="refused.2"),
        "average of bool": lambda: env.hvd.allreduce(flags, op=env.hvd.Average, name="refused.3"),
        "Adasum of integers": lambda: env.hvd.allreduce(env.tensor([1], np.int32), op=env.hvd.Adasum, name="refused.4"),
    }
    for what, call in refused.items():
        try:
            call()
            env.check_true(f"{what}: was not refused", False)
        except HorovodError as error:
            env.check(what, [isinstance(error, kind) for kind in (RuntimeError, ValueError)], [True, True])
    env.still_usable("refusals")


def parameters_change_at_one_place(env: Env) -> None:
    """Rank 0 changes them in the middle of a stream of operations; the others may not, and see them change."""
    before = parameters.in_force()
    if env.rank != 0:
        text = env.raises("not rank 0", ValueError, lambda: parameters.change(before))
        env.check_true(f"the remedy is told: {text!r}", "rank 0" in text)
    else:
        env.raises("no time", ValueError, lambda: parameters.change(replace(before, cycle_time_ms=-1.0)))
        env.raises("no size", ValueError, lambda: parameters.change(replace(before, fusion_threshold_bytes=-1)))
    data = np.arange(300_000, dtype=np.float32)
    for turn, way in enumerate((True, False, None)):
        asked = replace(before, hierarchical_allreduce=way, fusion_threshold_bytes=turn << 20)
        handles = [env.hvd.allreduce_async(env.tensor(data), op=env.hvd.Sum, name=f"early.{i}") for i in range(4)]
        if env.rank == 0:
            parameters.change(asked)
        handles += [env.hvd.allreduce_async(env.tensor(data), op=env.hvd.Sum, name=f"late.{i}") for i in range(4)]
        for handle in handles:
            env.check("sum", env.hvd.synchronize(handle), data * env.size)
        env.hvd.barrier()  # decided after the change: whoever is through it has seen that
        env.check("in force", parameters.in_force(), asked)
        told = json.loads(session.require().engine.describe())["settings"]
        if env.engine == "real":
            env.check("described", told["hierarchical_allreduce"], -1 if way is None else int(way))
        env.hvd.barrier()
    if env.rank == 0:
        parameters.change(before)
    env.still_usable("parameters")


ENGINE: tuple[Callable[[Env], None], ...] = (
    description,
    parameters_change_at_one_place,
    metrics_count_what_moves,
    profile_measures_a_block,
    objects_are_sealed_between_strangers,
    leftover_rows_again_and_again,
    rows_beyond_32_bits,
    refusals_can_be_caught,
)
