"""A dataset that reads from a data service and raises, instead of waiting for ever, when that is gone.

TensorFlow's client retries for ever to reach a dispatcher or worker that has died; the training step that waits for
the next element cannot be interrupted from Python. So the remote dataset is read next to an *alarm*: a dataset that
looks ten times a second for a message, gives empty elements, which are dropped, and fails with the message when there
is one. Whichever is first is heard, in whatever order; while all is well this costs three small steps per element and
no Python. Used by `compute_service`; it knows no network.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

# The end of an iterator waits for the alarm's current look: TensorFlow cancels nothing when `take` has had enough.
_LOOK_S: Final = 0.1
_KEY: Final = 0  # of the only entry; a table may not map text to text

_plain: Any = tf.autograph.experimental.do_not_convert  # these functions have no Python control flow to convert


class Alarm:
    """Makes every dataset that it guards fail, once it rings."""

    def __init__(self) -> None:
        self._rung = threading.Lock()
        with tf.device("CPU:0"):
            self._failures: Any = tf.lookup.experimental.MutableHashTable(tf.int64, tf.string, default_value="")

    def ring(self, message: str) -> None:
        """Fails all guarded iterators, also future ones; the first message counts. Any thread may call it."""
        if self._rung.acquire(blocking=False):
            with tf.device("CPU:0"):
                self._failures.insert(tf.constant(_KEY, tf.int64), message)

    def guard(self, remote: Any) -> Any:
        """The same elements in the same order; `tf.errors.InvalidArgumentError` with the message once it rings."""
        spec = remote.element_spec
        optional = tf.experimental.Optional
        is_tuple = type(spec) is tuple  # whose parts `map` passes one by one

        def wrap(*element: Any) -> Any:
            return False, optional.from_value(element if is_tuple else element[0])

        def look(_: Any) -> Any:
            message = self._failures.lookup(tf.constant(_KEY, tf.int64))
            with tf.control_dependencies([tf.debugging.Assert(tf.equal(message, ""), [message])]):
                return tf.constant(False), optional.empty(spec)

        elements = remote.map(_plain(wrap))
        end = tf.data.Dataset.from_tensors((True, optional.empty(spec)))  # needed because the alarm never ends
        alarm = _every(_LOOK_S).map(_plain(look))
        either = tf.data.Dataset.from_tensors(elements.concatenate(end)).concatenate(
            tf.data.Dataset.from_tensors(alarm)
        )
        heard = either.interleave(
            _plain(lambda source: source), cycle_length=2, num_parallel_calls=2, deterministic=False
        )
        result = (
            heard.take_while(_plain(lambda is_end, element: tf.logical_not(is_end)))
            .filter(_plain(lambda is_end, element: element.has_value()))
            .map(_plain(lambda is_end, element: element.get_value()))
        )
        cardinality = remote.cardinality()
        if int(cardinality) != tf.data.UNKNOWN_CARDINALITY:
            result = result.apply(tf.data.experimental.assert_cardinality(cardinality))
        return result


def _every(seconds: float) -> Any:
    """A dataset that never ends and takes its time for each element."""
    numbers = tf.data.Dataset.range(tf.int64.max)
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(numbers),
        sleep_microseconds=int(seconds * 1e6),
        output_types=[tf.int64],
        output_shapes=[[]],
    )
    return tf.data.experimental.from_variant(slow, numbers.element_spec)
