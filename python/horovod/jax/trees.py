"""Pytrees as lists of arrays with names, and back: what all operations do first and last."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from horovod._core.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Leaves", "flatten", "key_data", "with_keys"]

_TAKEN: Final = (jax.Array, np.ndarray, np.generic, bool, int, float)


class Leaves(NamedTuple):
    """The leaves of a tree.

    Args:
        arrays: of JAX.
        names: "NAME['dense']['kernel']", as a program would write the leaf; "NAME" where the tree is an array.
        structure: of the tree.
    """

    arrays: list[Any]
    names: tuple[str, ...]
    structure: Any

    def tree(self, arrays: list[Any]) -> Any:
        """The tree with other leaves."""
        return jax.tree_util.tree_unflatten(self.structure, arrays)


def flatten(what: str, tree: Any, name: str) -> Leaves:
    """The leaves of a tree of arrays and numbers; None is no leaf.

    Args:
        what: begins the messages.
        tree: of arrays of JAX or NumPy, and numbers.
        name: begins the names.

    Raises:
        InvalidArgumentError: a leaf is something else.
        UnsupportedError: parts of an array are on devices of other processes.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = tuple(name + jax.tree_util.keystr(path) for path, _ in paths)
    return Leaves([_array(f"{what} '{own}'", leaf) for own, (_, leaf) in zip(names, paths)], names, structure)


def key_data(tree: Any) -> Any:
    """The tree with numbers instead of random keys (`jax.random.key`): what can be sent of them."""
    return jax.tree_util.tree_map(lambda leaf: jax.random.key_data(leaf) if _is_key(leaf) else leaf, tree)


def with_keys(tree: Any, like: Any) -> Any:
    """A tree of `key_data` with random keys where the other tree has some."""

    def key(leaf: Any, other: Any) -> Any:
        return jax.random.wrap_key_data(leaf, impl=jax.random.key_impl(other)) if _is_key(other) else leaf

    return jax.tree_util.tree_map(key, tree, like)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _array(what: str, leaf: Any) -> Any:
    if not isinstance(leaf, _TAKEN):
        raise InvalidArgumentError(
            f"{what} is no array but a {type(leaf).__name__}. Give trees of arrays and numbers; hvd.broadcast_object "
            "and hvd.allgather_object take everything that can be pickled."
        )
    if not isinstance(leaf, jax.Array):
        return _of_numpy(what, leaf)
    if _is_key(leaf):
        raise InvalidArgumentError(
            f"{what} has dtype {leaf.dtype}, which has no bytes to send. Only broadcasts take keys; give others "
            "jax.random.key_data(key), and make keys of the result by jax.random.wrap_key_data."
        )
    if not isinstance(leaf, jax.core.Tracer) and not leaf.is_fully_addressable:
        raise UnsupportedError(
            f"{what} is spread over devices of other processes, of which this one sees a part. Combine such arrays in "
            "a compiled function by jax.lax.psum, or give this process's part (array.addressable_data(0))."
        )
    return leaf


def _of_numpy(what: str, leaf: Any) -> Any:
    """A number or an array of NumPy's, as JAX holds it."""
    try:
        array = jnp.asarray(leaf)
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidArgumentError(f"{what} cannot be an array of JAX: {error}") from None
    given = np.asarray(leaf)
    if given.dtype.kind in "iu" and given.size and array.dtype.itemsize < given.dtype.itemsize:
        bounds = np.iinfo(array.dtype)
        if given.min() < bounds.min or given.max() > bounds.max:
            raise InvalidArgumentError(
                f"{what} has {given.dtype} numbers that {array.dtype} cannot hold, which JAX makes of them. Set "
                "jax_enable_x64, or send them with hvd.broadcast_object or hvd.allgather_object."
            )
    return array
