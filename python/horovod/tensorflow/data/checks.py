"""Do the numbers of the two jobs fit? Pure: values in, a decision or an error out.

Used by `compute_worker`, `worker` and `compute_service`.
"""

from __future__ import annotations

from typing import Optional

from horovod._core.errors import InvalidArgumentError


def workers_per_dispatcher(ranks: int, dispatchers: int) -> int:
    """How many of the compute job's ranks serve each dispatcher.

    Raises:
        InvalidArgumentError: the ranks cannot be divided evenly.
    """
    if dispatchers < 1:
        raise InvalidArgumentError(f"A compute job needs at least 1 dispatcher. Received: --dispatchers {dispatchers}.")
    if ranks % dispatchers:
        raise InvalidArgumentError(
            f"A compute job of {ranks} ranks cannot give each of {dispatchers} dispatchers the same number of workers; "
            f"start it with -np a multiple of {dispatchers}, or change --dispatchers."
        )
    return ranks // dispatchers


def check_compute_size(ranks: int, dispatchers: int, per_dispatcher: int) -> None:
    """Raises:
    InvalidArgumentError: the config was made for another number of ranks.
    """
    if ranks != dispatchers * per_dispatcher:
        raise InvalidArgumentError(
            f"The compute job has {ranks} ranks, but its config is for {dispatchers} dispatcher(s) with "
            f"{per_dispatcher} worker(s) each; start it with -np {dispatchers * per_dispatcher}."
        )


def dispatcher_of(dispatchers: int, rank: int, size: Optional[int]) -> int:
    """Which dispatcher serves a training rank: the only one, or its own.

    Args:
        size: of the training job; None where it is not known.

    Raises:
        InvalidArgumentError: the rank is not in the job, or there is not one dispatcher per training rank.
    """
    if rank < 0 or (size is not None and rank >= size):
        raise InvalidArgumentError(f"Training rank {rank} is not in a training job of {size} ranks; pass hvd.rank().")
    if dispatchers == 1:
        return 0
    if (size is not None and size != dispatchers) or rank >= dispatchers:
        have = f"The training job has {size} ranks" if size is not None else f"The training job has a rank {rank}"
        raise InvalidArgumentError(
            f"{have}, the compute job {dispatchers} dispatchers; several dispatchers serve one training rank each. "
            f"Start the training job with -np {dispatchers}, or the compute job with --dispatchers "
            f"{size if size is not None else 'the size of the training job'}, or with --dispatchers 1."
        )
    return rank


def check_round_robin(reuse_dataset: bool, round_robin: bool, size: Optional[int]) -> None:
    """Raises:
    InvalidArgumentError: consumers that take turns must share a dataset, and sharers must be counted.
    """
    if round_robin and not reuse_dataset:
        raise InvalidArgumentError(
            "round_robin=True lets the training ranks take turns on one shared dataset, but reuse_dataset=False gives "
            "each rank its own; pass reuse_dataset=True as well."
        )
    if reuse_dataset and size is None:
        raise InvalidArgumentError(
            "reuse_dataset=True shares a dataset among the training ranks, but their number is not known; pass "
            "size=hvd.size(), or call hvd.init() first."
        )
