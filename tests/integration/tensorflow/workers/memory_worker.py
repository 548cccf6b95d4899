"""Ranks without memory in each way into the core: TensorFlow raises an error that says so, and what follows works. Then
rank 1 alone has none, of which rank 0 learns, and once more without catching the error. Prints a line for each way that
is right."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

import tensorflow as tf

import horovod.tensorflow as hvd

malloc = ctypes.CDLL(os.environ["LD_PRELOAD"])  # fake_memory.cc


def total(name: str) -> Callable[[Any], Any]:
    return lambda tensor: hvd.allreduce(tensor, op=hvd.Sum, name=name)


hvd.init()
two = tf.fill([3], 2.0)
ways = {
    "eager": total("eager"),
    "function": tf.function(total("function")),
    "xla": tf.function(total("xla"), jit_compile=True),
    "size": tf.function(lambda _: hvd.size_op()),
}
for way, call in ways.items():
    expected = call(two).numpy()  # traced, compiled, and its kernel made
    malloc.fake_memory_refuse_once()
    try:
        call(two)
    except tf.errors.OpError as error:
        assert "out of memory" in str(error), error
        assert isinstance(error, (tf.errors.ResourceExhaustedError, tf.errors.InternalError)), type(error)
    else:
        raise AssertionError(f"{way}: memory was there")
    assert (call(two).numpy() == expected).all(), way
    print(f"passed: {way}")
for way in ("eager", "function"):
    if hvd.rank() == 1:
        malloc.fake_memory_refuse_once()
    try:
        ways[way](two)
    except tf.errors.OpError as error:
        assert ("rank 1 refused it: out of memory." if hvd.rank() == 0 else "out of memory") in str(error), error
    else:
        raise AssertionError(f"{way}: rank 1 had no memory")
    assert (ways[way](two).numpy() == 2.0 * hvd.size()).all(), way
    print(f"passed: {way}, rank 1 alone")
if hvd.rank() == 1:
    malloc.fake_memory_refuse_once()
ways["eager"](two)
