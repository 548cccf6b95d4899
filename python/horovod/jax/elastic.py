"""Elastic training with JAX: the retry loop of `horovod._core.training.elastic` and a state of pytrees."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any, Callable, Final, cast

import jax
import jax.numpy as jnp

from horovod._core.life import context
from horovod._core.operations.objects import broadcast_object
from horovod._core.training.elastic import state
from horovod._core.training.elastic.loop import F, reset_engine, run_fn
from horovod._core.training.elastic.snapshot import Snapshot
from horovod.jax.failures import translated
from horovod.jax.optimizer import PassesState

__all__ = ["JaxState", "run"]


def run(func: F) -> F:
    """Decorator of a training function whose first argument is a state: runs it again after a failure or a change of
    hosts. Failures of collectives in compiled functions count like those outside.

    Collective: all ranks run the function.
    """

    @functools.wraps(func)
    def with_horovods_failures(held: Any, /, *args: Any, **kwargs: Any) -> Any:
        with translated():
            result = func(held, *args, **kwargs)
            # The last steps may still be running; wait, so that a failure there is retried, too.
            _await([result, held._attributes() if isinstance(held, JaxState) else None])
            return result

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
            _await(self._attributes())
            super().save()

    def restore(self) -> None:
        """Takes the values of the last commit, when steps that are still being computed have failed: their collectives
        must not be those of the next life."""
        _await(self._attributes(), Exception)  # those of a failed step fail
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the values of rank 0. Distributed optimizers with `backward_passes_per_step` start their step
        over: the sums in rank 0's state are of its passes only."""
        # Only these are rebuilt, because a tree does not keep that two of its leaves are one object.
        begun = {name: one for name, one in self._attributes().items() if any(map(_is_passes, _leaves(one)))}
        self._set_attributes(_mapped(_without_passes, begun))
        super().sync()

    def _to_write(self) -> dict[str, Snapshot]:
        return super()._to_write()  # `save` keeps nothing besides the attributes

    def reset(self) -> None:
        """Makes JAX compile functions again: they may contain numbers of ranks and process sets."""
        jax.clear_caches()


def _await(value: Any, *ignored: type[Exception]) -> None:
    """Waits until the arrays in a value have been computed."""
    for leaf in jax.tree_util.tree_leaves(list(_leaves(value))):
        with contextlib.suppress(*ignored):
            # What a function has taken over (donation) cannot be waited for.
            if not (isinstance(leaf, jax.Array) and leaf.is_deleted()):
                jax.block_until_ready(leaf)


def _is_passes(leaf: Any) -> bool:
    return isinstance(leaf, PassesState)


def _without_passes(leaf: Any) -> Any:
    if not _is_passes(leaf):
        return leaf
    passes, sums = jax.tree_util.tree_map(jnp.zeros_like, (leaf.passes, leaf.sums))
    return leaf._replace(passes=passes, sums=sums)


# JAX sorts their keys, which may be of several types.
_DICTIONARIES: Final = (dict, collections.defaultdict)


def _is_leaf(value: Any) -> bool:
    return type(value) in _DICTIONARIES or _is_passes(value)


def _leaves(value: Any) -> Iterator[Any]:
    """The leaves of the trees in a value; a PassesState is one. Dictionaries may have keys that cannot be sorted."""
    for leaf in jax.tree_util.tree_leaves(value, is_leaf=_is_leaf):
        if type(leaf) in _DICTIONARIES:
            for item in leaf.values():
                yield from _leaves(item)
        else:
            yield leaf


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The value, with `function` applied to each of its `_leaves`."""

    def of(leaf: Any) -> Any:
        if type(leaf) not in _DICTIONARIES:
            return function(leaf)
        mapped = copy.copy(leaf)
        for key, item in leaf.items():
            mapped[key] = _mapped(function, item)
        return mapped

    return jax.tree_util.tree_map(of, value, is_leaf=_is_leaf)
