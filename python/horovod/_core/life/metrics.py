"""`metrics`: the engine's counters of this rank, as a dictionary."""

from __future__ import annotations

from typing import Any

from horovod._core.life import session

__all__ = ["metrics"]


def metrics() -> dict[str, Any]:
    """The counters of this rank. Not collective.

    All begin at 0 with each `init` and with each reset of an elastic job.

    Returns:
        A dictionary with these keys:

        - rank, size: of this process.
        - failed: whether the engine has failed, so that every further operation raises.
        - operations: by kind, such as "allreduce", the number of `tensors` of this rank and the `bytes` of its inputs.
          Kinds without a tensor are left out. An operation that failed while it ran is counted.
        - batches: how often tensors were moved together; a single small operation is one too.
        - batches_by_backend: the batches of each backend ("host", "nccl", ...). Small operations may need none.
        - in_flight: tensors that were submitted and are not done.

    Raises:
        NotInitializedError: `init` has not been called.
    """
    import json  # here: `import horovod.numpy` needs nothing of it

    told = json.loads(session.require().engine.describe())
    counters = told["counters"]
    return {
        **{name: told[name] for name in ("rank", "size", "failed")},
        **{name: counters[name] for name in ("operations", "batches", "in_flight")},
        "batches_by_backend": {each["name"]: each["batches"] for each in told["backends"] if each["batches"]},
    }
