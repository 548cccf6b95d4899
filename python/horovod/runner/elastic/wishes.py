"""The user's settings of an elastic job, checked. Pure.

Used by `job`.
"""

from __future__ import annotations

from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod._core.settings import Settings
from horovod.runner.elastic.blacklist import check_cooldown


def are_elastic(settings: Settings) -> bool:
    """The ranks of the job may change."""
    return settings.min_num_proc is not None or bool(settings.host_discovery_script)


def checked(settings: Settings, first: int) -> Settings:
    """The settings of an elastic job, with what follows from them.

    Args:
        settings: as given.
        first: number of ranks to begin with.

    Raises:
        InvalidArgumentError: numbers that contradict one another.
        UnsupportedError: mpirun or jsrun would have to start the ranks.
    """
    least = first if settings.min_num_proc is None else settings.min_num_proc
    if least > first:
        raise InvalidArgumentError(f"--min-np is {least}, more than the {first} processes to begin with (-np).")
    if settings.max_num_proc is not None and settings.max_num_proc < first:
        raise InvalidArgumentError(
            f"--max-np is {settings.max_num_proc}, less than the {first} processes to begin with (-np)."
        )
    if settings.blacklist_cooldown_range is not None:
        check_cooldown(settings.blacklist_cooldown_range, "--blacklist-cooldown-range")
    if settings.use_mpi or settings.use_jsrun:
        name, flag = ("mpirun", "--mpi") if settings.use_mpi else ("jsrun", "--jsrun")
        raise UnsupportedError(
            f"Elastic jobs cannot be started by {name}, which ends all ranks when one dies; leave {flag} or --min-np "
            "out."
        )
    return settings.replace("elastic job", elastic=True, min_num_proc=least)
