"""Says at its first step that an optimizer made from a configuration is a plain one.

A saved file and `keras.optimizers.serialize` name the user's class, so that they can be read without Horovod. What is
made of them (`keras.models.load_model`, `keras.optimizers.deserialize`, a pickle) applies this rank's own gradients,
and the ranks drift apart. Keras has no hook for an optimizer's step: two methods of its base classes are wrapped when
`horovod.keras` is imported. They do what they did, and cost a look into a dictionary per step.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Callable, Final

from horovod._core.callers import users_level
from horovod._core.life import session
from horovod.keras.flavour import flavour

__all__ = ["forget", "watch"]

_MARK: Final = "_hvd_from_config"


def watch() -> None:
    """Wraps the base classes' methods, once."""
    for base in flavour.optimizer_bases():
        _wrap(base, "from_config", _marking)
        _wrap(base, flavour.APPLY, _telling)


def forget(optimizer: Any) -> None:
    """This optimizer, and one inside it, has become part of a distributed one."""
    for each in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        getattr(each, "__dict__", {}).pop(_MARK, None)


def _wrap(base: type, name: str, wrapper_of: Callable[[Any], Any]) -> None:
    owner = next(kind for kind in base.__mro__ if name in vars(kind))
    before = vars(owner)[name]
    plain = before.__func__ if isinstance(before, classmethod) else before
    if hasattr(plain, "_hvd_watches"):
        return
    after = functools.wraps(plain)(wrapper_of(plain))
    setattr(after, "_hvd_watches", True)  # noqa: B010 - mypy knows functions without attributes
    setattr(owner, name, classmethod(after) if isinstance(before, classmethod) else after)


def _marking(plain: Callable[..., Any]) -> Callable[..., Any]:
    def from_config(cls: type, *args: Any, **kwargs: Any) -> Any:
        made = plain(cls, *args, **kwargs)
        made.__dict__[_MARK] = True
        return made

    return from_config


def _telling(plain: Callable[..., Any]) -> Callable[..., Any]:
    def apply(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _MARK in self.__dict__ and session.current is not None and session.current.size > 1:
            del self.__dict__[_MARK]
            # The first argument is the gradients, whatever it is called; it may be an iterator.
            name = next(iter(kwargs), None) if not args else None
            gradients = list(args[0] if name is None else kwargs[name])
            if name is None:
                args = (gradients, *args[1:])
            else:
                kwargs[name] = gradients
            _warn(self, gradients, *args[1:], *(value for key, value in kwargs.items() if key != name))
        return plain(self, *args, **kwargs)

    return apply


def _warn(optimizer: Any, gradients: list[Any], *args: Any) -> None:
    if flavour.are_reduced(optimizer, gradients, *args):
        return
    current = session.require()
    warnings.warn(
        f"Rank {current.rank} of {current.size} trains alone with this {type(optimizer).__name__}: it was made from a "
        "configuration (a saved model, optimizers.deserialize, a pickle), which holds no DistributedOptimizer, so its "
        "gradients are not combined. Use hvd.load_model(path), or hvd.DistributedOptimizer(optimizer) before "
        "model.compile.",
        stacklevel=users_level(),
    )
