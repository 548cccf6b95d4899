"""Horovod's failures in errors of JAX, which has classes of its own for what fails in a compiled function."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final, Optional

import jax

from horovod._core.errors import HorovodError
from horovod._core.operations.described_call import failure_named_in

__all__ = ["failure_in", "translated"]

_FROM_XLA: Final = re.compile(r"[A-Z_]+: Horovod \w+Error: ")


def failure_in(error: BaseException) -> Optional[HorovodError]:
    """The failure of a collective that made JAX raise this; None: it is something else. JAX raises a JaxRuntimeError
    where results are waited for, and a ValueError from a function that was compiled before and runs at once."""
    if not isinstance(error, (jax.errors.JaxRuntimeError, ValueError)):
        return None
    if not isinstance(error, jax.errors.JaxRuntimeError) and not _FROM_XLA.match(str(error)):
        return None
    return failure_named_in(error)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raises Horovod's failure instead of JAX's error."""
    try:
        yield
    except Exception as error:
        failure = failure_in(error)
        if failure is None:
            raise
        raise failure from error
