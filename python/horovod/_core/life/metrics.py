"""`metrics`: what this rank has counted, as a dictionary."""

from __future__ import annotations

from typing import Any

from horovod._core.life import counters_page, session
from horovod._native import abi

__all__ = ["metrics"]


def metrics() -> dict[str, Any]:
    """The counters of this rank. Not collective, and cheap enough to be called after every step.

    All begin at 0 with each `init` and with each reset of an elastic job, except `resets` and `commits`.

    Returns:
        A dictionary with these keys:

        - rank, size: of this process.
        - failed: whether the engine has failed, so that every further operation raises.
        - operations: by kind, such as "allreduce", the number of `tensors` of this rank and the `bytes` of its inputs.
          Kinds without a tensor are left out. An operation that failed while it ran is counted.
        - batches: how often tensors were moved together; a single small operation is one too.
        - batches_by_backend: the batches of each backend ("host", "nccl", ...). Small operations may need none.
        - in_flight: tensors that were submitted and are not done.
        - steps: training steps. A step ends where a name comes again, so operations without a name make none.
        - seconds: a dictionary of times, in seconds. `blocked`: at least one thread of the program waited in Horovod;
          a call that finds its result at once does not count. Of these, `waiting`: for other ranks, before a batch
          began; `transferring`: while a batch ran. `pending`: tensors had been submitted, and other ranks had not
          submitted theirs; the program may have computed meanwhile. `in_batches`: batches ran.
        - stalls: how often it was reported that operations wait too long.
        - errors: operations that failed on this rank, and the failure of the engine.
        - last_error: the text of the last one, at most 255 bytes; empty if there was none.
        - epoch: of an elastic job; 0 elsewhere.
        - resets, commits: of an elastic state, since the process began.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    import json  # here: `import horovod.numpy` needs nothing of it

    current = session.require()
    told = json.loads(current.engine.describe())
    counters = told["counters"]
    seconds = counters["seconds"]
    waiting = max(0.0, seconds["blocked"] - seconds["transferring"])
    return {
        **{name: told[name] for name in ("rank", "size", "failed")},
        **{name: counters[name] for name in ("operations", "batches", "in_flight")},
        "batches_by_backend": {each["name"]: each["batches"] for each in told["backends"] if each["batches"]},
        **{name: counters[name] for name in ("steps", "stalls", "errors", "last_error")},
        "seconds": {**seconds, "waiting": waiting},
        "epoch": current.epoch,
        "resets": counters_page.read(abi.COUNTER_RESETS),
        "commits": counters_page.read(abi.COUNTER_COMMITS),
    }
