"""Notes of whose gradients are reduced already, so that nobody reduces them twice.

A distributed tape, or Keras 2's `compute_gradients`, notes the variables; a distributed optimizer looks before it
applies. The variables are noted, not the gradients, which may be clipped or scaled on the way. A note belongs to the
place where the gradient was computed, which is eager mode or the outermost function being traced, and counts once; in a
function once in each graph, since a condition has two.

A note can be wrong about a gradient: a plain optimizer has taken no notice of it, or a nested function that had been
traced before has left none. So it may decide only where a second reduction would be a mistake.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Optional, TypeVar

import tensorflow as tf

from horovod.tensorflow.collectives import ops

__all__ = ["forget_eager", "note", "take"]


@dataclass
class _Note:
    variable: weakref.ref[Any]
    by: Any
    applied: bool = False
    applied_in: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)


@dataclass
class _HandedOut:
    """What the functions traced so far have reduced without applying it. Counted, for it must not matter whether a
    function's graph is still there: the ranks collect garbage at different times."""

    variable: weakref.ref[Any]
    by: Any
    functions: int = 0


_Any = TypeVar("_Any", _Note, _HandedOut)
_Notes = dict[int, _Note]
_eager: Final[_Notes] = {}
_handed_out: Final[dict[int, _HandedOut]] = {}
_in_graphs: Final[weakref.WeakKeyDictionary[Any, _Notes]] = weakref.WeakKeyDictionary()


def note(gradients: Sequence[Any], variables: Sequence[Any], by: Any) -> None:
    """These gradients of these variables have been reduced. Local.

    Args:
        gradients: of a None nothing is noted.
        variables: or other tensors, which are left out.
        by: the reducer.
    """
    for gradient, variable in zip(gradients, variables):
        inner = ops.tensorflow_variable(variable)
        if gradient is None or isinstance(inner, tf.Tensor):
            continue
        graph = _outermost_graph(gradient)
        notes = _eager if graph is None else _in_graphs.setdefault(graph, {})
        before = _noted(notes, inner)
        notes[id(inner)] = _Note(weakref.ref(inner), by)
        if graph is not None:
            _hand_out(inner, by, 0 if before is not None and not before.applied else 1)


def take(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
    """The reducer of each of these gradients, which are about to be applied; None: not reduced. Local."""
    return [
        None if gradient is None else _taken(gradient, ops.tensorflow_variable(variable))
        for gradient, variable in zip(gradients, variables)
    ]


def forget_eager() -> None:
    """What has been noted in eager mode is of no optimizer that will be made from now on."""
    _eager.clear()


def _taken(gradient: Any, variable: Any) -> Any:
    outermost = _outermost_graph(gradient)
    found = _noted(_eager if outermost is None else _in_graphs.get(outermost, {}), variable)
    if found is not None and outermost is None:
        del _eager[id(variable)]
        return found.by
    here = tf.compat.v1.get_default_graph()
    if found is not None and here not in found.applied_in:
        found.applied_in.add(here)
        if not found.applied:
            # What a function applies itself is not what it hands out.
            _hand_out(variable, found.by, -1)
            found.applied = True
        return found.by
    if not _from_elsewhere(gradient):
        return None
    noted, handed = _noted(_eager, variable), _noted(_handed_out, variable)
    if noted is not None:
        return noted.by
    return handed.by if handed is not None and handed.functions > 0 else None


def _hand_out(variable: Any, by: Any, functions: int) -> None:
    handed = _noted(_handed_out, variable)
    if handed is None:
        key = id(variable)
        gone = weakref.ref(variable, lambda _: _handed_out.pop(key, None))
        handed = _handed_out[key] = _HandedOut(gone, by)
    handed.by, handed.functions = by, handed.functions + functions


def _noted(notes: dict[int, _Any], variable: Any) -> Optional[_Any]:
    found = notes.get(id(variable))
    return found if found is not None and found.variable() is variable else None


def _dense(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _outermost_graph(gradient: Any) -> Any:
    """None: it is a value of eager mode."""
    graph: Any = getattr(_dense(gradient), "graph", None)
    while getattr(getattr(graph, "outer_graph", None), "building_function", False):
        graph = graph.outer_graph
    return graph


def _from_elsewhere(gradient: Any) -> bool:
    """True for what a function may have returned or been given."""
    tensor = _dense(gradient)
    return getattr(tensor, "graph", None) is None or tensor.op.type == "Placeholder"
