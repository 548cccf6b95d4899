"""Functions that torch.compile breaks its graph at, without the second that importing the compiler takes.

`torch.compiler.disable` imports the compiler at once, on every rank of every script. These wait until the script has
imported it; nothing can be traced before that. Used by the functions of this package that must not be traced.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

_F = TypeVar("_F", bound=Callable[..., Any])

_COMPILER = "torch._dynamo"


def outside_graphs(function: _F) -> _F:
    """The function, wrapped by `torch.compiler.disable`. Costs 0.1 us where the compiler is not loaded."""
    disabled: Any = None

    def call(*arguments: Any, **keywords: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            if _COMPILER not in sys.modules:
                return function(*arguments, **keywords)
            disabled = torch.compiler.disable(function)  # type: ignore[no-untyped-call,unused-ignore]
        return disabled(*arguments, **keywords)

    if _COMPILER in sys.modules or not _passed_by(call.__code__):
        made: Any = torch.compiler.disable(function)  # type: ignore[no-untyped-call,unused-ignore]
    else:
        made = functools.wraps(function)(call)
        made._torchdynamo_disable = True  # a tracer breaks its graph at a call of it
    return cast(_F, made)


def _passed_by(code: types.CodeType) -> bool:
    """Lets the tracer run frames of this code as they are, if this torch allows that without its compiler."""
    frames: Any = torch._C._dynamo.eval_frame
    try:
        if hasattr(frames, "skip_code"):  # before torch 2.7
            frames.skip_code(code)
        else:
            action = frames._FrameAction
            frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
    except (AttributeError, TypeError):
        return False
    return True


def constant_in_graphs(function: _F) -> _F:
    """The function, wrapped by `torch.compiler.assume_constant_result`."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
