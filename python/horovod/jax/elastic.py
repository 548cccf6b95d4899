"""Elastic training with JAX: the retry loop of `horovod._core.training.elastic` and a state of pytrees."""

from __future__ import annotations

import contextlib
import functools
from typing import Any, cast

import jax

from horovod._core.life import context
from horovod._core.operations.objects import broadcast_object
from horovod._core.training.elastic import state
from horovod._core.training.elastic.loop import F, reset_engine, run_fn
from horovod._core.training.elastic.snapshot import Snapshot
from horovod.jax.failures import translated

__all__ = ["JaxState", "run"]


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts. Failures of collectives in compiled functions count like those outside.

    Collective: all ranks run the function.
    """

    @functools.wraps(func)
    def with_horovods_failures(*args: Any, **kwargs: Any) -> Any:
        with translated():
            return jax.block_until_ready(func(*args, **kwargs))

    return run_fn(cast("F", with_horovods_failures), reset_engine, translated)


class JaxState(state.ObjectState):
    """Pytrees and picklable values that survive a failure or a change of hosts.

    A commit copies the arrays, so that compiled functions may take over their memory (donation).

    Args:
        **kwargs: each becomes an attribute: `params=params, opt_state=opt_state, epoch=0`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(bcast_object=broadcast_object, get_rank=context.rank, **kwargs)

    def save(self) -> None:
        """Keeps the values in memory, when they have been computed.

        Raises:
            HorovodInternalError: a collective that they come from has failed.
        """
        with translated():
            jax.block_until_ready(self._attributes())
            super().save()

    def restore(self) -> None:
        """Takes the values of the last commit, when steps that are still being computed have failed: their collectives
        must not be those of the next life."""
        for leaf in jax.tree_util.tree_leaves(self._attributes()):
            with contextlib.suppress(Exception):  # a failed step's, or one whose memory a function has taken over
                jax.block_until_ready(leaf)
        super().restore()

    def _to_write(self) -> dict[str, Snapshot]:
        return super()._to_write()  # `save` keeps nothing besides the attributes

    def reset(self) -> None:
        """Makes JAX compile functions again: they may contain numbers of ranks and process sets."""
        jax.clear_caches()
