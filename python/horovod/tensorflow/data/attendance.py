"""A training process's presence at the compute service, and a thread that hears how the data service ends.

Used by `compute_service`: for the length of a `tf_data_service` block, and until the process ends once
`send_to_data_service` has been called. It knows no TensorFlow.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import Optional

from horovod.tensorflow.data.config import TfDataServiceConfig
from horovod.tensorflow.data.registry import FAILED, SHUTDOWN, TRAINING

log = logging.getLogger("horovod")


class Attendance:
    """From construction to `close`.

    Attributes:
        presence: at the compute service.
        problem: why the data service cannot be used any more; None as long as it can.
        shut_down: it was asked to end, and nothing has failed.
    """

    def __init__(self, config: TfDataServiceConfig, rank: int) -> None:
        """Raises what `ComputeClient` raises."""
        self.problem: Optional[str] = None
        self.shut_down = False
        self.presence = config.compute_client().join(TRAINING, rank)
        self._rank, self._pid = rank, os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        self._listeners: list[Callable[[str], None]] = []
        self._thread = threading.Thread(target=self._listen, name="horovod data service watch", daemon=True)
        self._thread.start()

    def on_problem(self, listener: Callable[[str], None]) -> None:
        """Calls the listener with the problem, once, from another thread; at once if there is one already."""
        with self._lock:
            if self.problem is None:
                self._listeners.append(listener)
                return
        listener(self.problem)

    def close(self) -> None:
        """Leaves. May be called twice. In a forked child, to which the presence does not belong, nothing happens."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._closed = True
        self.presence.close()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _listen(self) -> None:
        kind, message = self.presence.wait_for_end()
        with self._lock:
            self.shut_down = kind == SHUTDOWN
            if self._closed:
                return
            if kind == FAILED:
                self.problem = message
            else:
                self.problem = (
                    f"The compute job was shut down while training rank {self._rank} could still read from it. "
                    f"{message} Shut it down when all training ranks have read all that they need."
                )
            listeners = list(self._listeners)
        # A shutdown affects only ranks that go on reading, and then the error says so.
        log.log(logging.ERROR if kind == FAILED else logging.INFO, "data service: %s", self.problem)
        for listener in listeners:
            listener(self.problem)


_lock = threading.Lock()
_lasting: dict[tuple[bytes, int, int], Attendance] = {}  # by key, rank and process, which a fork changes


def lasting(config: TfDataServiceConfig, rank: int) -> Attendance:
    """The attendance of this process that lasts until it ends; made by the first call for a compute job."""
    with _lock:
        mine = (config.key, rank, os.getpid())
        if mine not in _lasting or _lasting[mine].problem is not None:
            _lasting[mine] = Attendance(config, rank)
            atexit.register(_lasting[mine].close)
        return _lasting[mine]
