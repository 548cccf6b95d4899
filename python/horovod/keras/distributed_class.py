"""The class of a distributed optimizer. Trainers learn from its text that it is Horovod's; Keras, which looks a class
up to find the name that it writes into files, finds the user's: files load without Horovod."""

from __future__ import annotations

from typing import Any, Callable, Final

from horovod.keras.installed import keras

__all__ = ["distributed_class"]

_MODULE: Final = "horovod._keras"  # known to existing scripts


class _Distributed(type):
    """Equal to the user's class, so that a lookup in Keras' tables finds the entry of that class."""

    def __repr__(cls) -> str:
        return f"<class '{_MODULE}.{cls.__name__}'>"

    def __eq__(cls, other: object) -> bool:
        return cls is other or cls.__dict__.get("_hvd_kind") is other

    def __hash__(cls) -> int:
        kind = cls.__dict__.get("_hvd_kind")
        return type.__hash__(cls) if kind is None else hash(kind)


def distributed_class(kind: Any, methods: type, wrap: Callable[[Any], Any]) -> Any:
    """A class derived from the user's.

    Args:
        kind: the user's class.
        methods: mixed in before it.
        wrap: turns a plain optimizer of the user's class into a distributed one with the same settings.
    """

    def from_config(cls: type, *args: Any, **kwargs: Any) -> Any:
        """A distributed optimizer of the same settings, from what `get_config` returns."""
        return wrap(kind.from_config(*args, **kwargs))

    metaclass: Any = type(_Distributed.__name__, (_Distributed, type(kind)), {})
    # TensorFlow keeps the public names of Keras 2's classes in the classes.
    public_names = {name: value for name, value in vars(kind).items() if "_api_names" in name}
    is_public = bool(public_names) or getattr(keras.optimizers, kind.__name__, None) is kind
    return metaclass(
        kind.__name__,
        (methods, kind),
        {
            **public_names,
            # Files hold the public name, or else the module.
            "__module__": _MODULE if is_public else kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "_hvd_kind": kind,
            "_hvd_wrap": staticmethod(wrap),
            "from_config": classmethod(from_config),
        },
    )
