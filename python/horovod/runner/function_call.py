"""The call that `horovod.run` ships to the ranks: what is wrong with it is reported before anything starts.

Used by `function`, and by `horovod.spark`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Final, NamedTuple, Optional

from horovod._core.errors import InvalidArgumentError

_DEPTH: Final = 4  # of objects inside objects, where what cannot be pickled is looked for
_MOST_PARTS: Final = 1000  # of one object, that are tried


class Call(NamedTuple):
    """`func(*args, **kwargs)`."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def payload(self, caller: str = "horovod.run") -> bytes:
        """What the ranks read: this process's import path, and the call by cloudpickle.

        Args:
            caller: what the user has called, for messages.

        Raises:
            InvalidArgumentError: something cannot be pickled; it is named.
        """
        path = pickle.dumps(list(sys.path))
        return len(path).to_bytes(8, "little") + path + _pickled(self, caller)


def checked(func: object, args: object, kwargs: object, caller: str = "horovod.run") -> Call:
    """The call that a user has asked for.

    Args:
        func, args, kwargs: of it.
        caller: what the user has called, for messages.

    Raises:
        InvalidArgumentError: it cannot be one.
    """
    if not callable(func):
        raise InvalidArgumentError(f"{caller}: func is {_a(func)}, which cannot be called. {_instead_of(func, caller)}")
    name = _name(func)
    if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func):
        kind = "a coroutine" if inspect.iscoroutinefunction(func) else "a generator"
        raise InvalidArgumentError(
            f"{caller}: calling {name} runs nothing, it makes {kind}. Pass a function that runs it and returns its "
            "result."
        )
    if isinstance(args, (str, bytes, Mapping)) or not isinstance(args, Iterable):
        raise InvalidArgumentError(
            f"{caller}: args is {_a(args)}, not a tuple of the function's arguments. For one argument write "
            "args=(value,)."
        )
    if not isinstance(kwargs, Mapping) or not all(isinstance(key, str) for key in kwargs):
        raise InvalidArgumentError(
            f"{caller}: kwargs is {_a(kwargs)}, not a dictionary of the function's named arguments. Write "
            "kwargs={'name': value}."
        )
    call = Call(func, tuple(args), dict(kwargs))
    if problem := _misfit(call):
        raise InvalidArgumentError(
            f"{caller}: {name} cannot be called with the args and kwargs given: {problem}. Give the function's "
            f"arguments like this: {caller}(train, args=(x,), kwargs={{'name': y}})."
        )
    return call


def _misfit(call: Call) -> str:
    """Why the arguments do not fit the function's parameters; empty if they do, or that cannot be known."""
    try:
        signature = inspect.signature(call.func, follow_wrapped=False)  # a decorator may supply arguments
    except (TypeError, ValueError):  # a function of C has no signature
        return ""
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _pickled(call: Call, caller: str) -> bytes:
    cloudpickle = _cloudpickle()
    try:
        return bytes(cloudpickle.dumps(tuple(call)))
    except Exception as error:  # whatever the classes of the user's objects raise
        found = _unpicklable(call)
        what = f"{found} cannot be pickled" if found else f"{_name(call.func)} and its arguments cannot be pickled"
        raise InvalidArgumentError(
            f"{caller}: {what}: {error}. The ranks are other processes: make such an object inside the function, or "
            "pass what it is made from."
        ) from error


def _unpicklable(call: Call) -> str:
    """The first thing that the call needs and that cannot be pickled by itself, in words; empty if there is none."""
    name = _name(call.func)
    for what, value in _needed(call):
        if not _can_be_pickled(value):
            return f"{what}{_inside(value)}" if what.startswith("args") else f"{what} of {name}{_inside(value)}"
    return ""


def _needed(call: Call) -> Iterator[tuple[str, object]]:
    """Name and value of all that the call needs."""
    for index, value in enumerate(call.args):
        yield f"args[{index}]", value
    for key, value in call.kwargs.items():
        yield f"the argument {key!r}", value
    func = call.func
    if isinstance(func, functools.partial):
        for index, value in enumerate(func.args):
            yield f"the bound argument {index}", value
        for key, value in func.keywords.items():
            yield f"the bound argument {key!r}", value
        func = func.func
    func = inspect.unwrap(func)
    if (owner := getattr(func, "__self__", None)) is not None:
        yield "the object", owner
    with contextlib.suppress(TypeError, ValueError):
        variables = inspect.getclosurevars(getattr(func, "__func__", func))
        for key, value in {**variables.nonlocals, **variables.globals}.items():
            yield f"the variable {key!r}", value


def _inside(value: object, depth: int = _DEPTH) -> str:
    """Which part of a value it is that cannot be pickled, in words; empty where it is the value itself."""
    for what, part in _parts(value) if depth else ():
        if not _can_be_pickled(part):
            return f", {what}{_inside(part, depth - 1)}"
    return f" ({_a(value)})"


def _parts(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        found = [(f"its item {key!r}", part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        found = [(f"its item {index}", part) for index, part in enumerate(value)]
    else:
        found = [(f"its attribute {key!r}", part) for key, part in getattr(value, "__dict__", {}).items()]
    return found[:_MOST_PARTS]


def _can_be_pickled(value: object) -> bool:
    try:
        _cloudpickle().dumps(value)
    except Exception:
        return False
    return True


def _cloudpickle() -> Any:
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError as error:
        raise RuntimeError("horovod.run needs cloudpickle to ship the function (pip install cloudpickle).") from error
    return cloudpickle


def _a(value: object) -> str:
    name = "None" if value is None else type(value).__name__
    return name if value is None else f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _name(func: Callable[..., Any]) -> str:
    name: Optional[str] = getattr(func, "__qualname__", None)
    return f"{name.rpartition('<locals>.')[2]}()" if name else _a(func)


def _instead_of(func: object, caller: str) -> str:
    if isinstance(func, str):
        return f"A script is run by a command: horovodrun -np 2 python {func}"
    return f"Pass the function, not what it returns: {caller}(train, args=(x,)) instead of {caller}(train(x))."
