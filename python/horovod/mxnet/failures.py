"""Horovod's failures in errors of MXNet, whose engine tells of a failed operation where its results are waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Optional

from mxnet.base import MXNetError

from horovod._core.operations.described_call import failure_named_in

__all__ = ["translated", "wait_for"]


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raises Horovod's failure instead of MXNet's error."""
    try:
        yield
    except MXNetError as error:
        failure = failure_named_in(error)
        if failure is None:
            raise
        raise failure from error


def wait_for(arrays: Iterable[Any]) -> None:
    """Waits until all of the arrays are ready; then raises the first failure. None of the arrays tells it again."""
    first: Optional[Exception] = None
    for array in arrays:
        try:
            with translated():
                array.wait_to_read()
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
