"""TensorFlow's dispatcher and worker, started so that other hosts reach them.

Used by `worker` and `compute_service`. TensorFlow's servers listen on all interfaces and know no authentication; what
is chosen here is the address that they are called by.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf  # type: ignore[import-untyped,import-not-found,unused-ignore]

from horovod._core.errors import HorovodInternalError
from horovod.tensorflow.data.addresses import joined

_service: Any = tf.data.experimental.service

# A server that is forgotten stops, at a time when its counterpart may be gone and it would hang.
_started: list[Any] = []


def start_dispatcher(host: str, port: int = 0) -> tuple[Any, str]:
    """Starts a dispatcher in this process; 0: a free port.

    Returns:
        The server (`stop` ends it), and its "host:port" for clients and workers.
    """
    server = _service.DispatchServer(_service.DispatcherConfig(port=port, protocol="grpc"))
    _started.append(server)
    return server, joined(host, int(server.target.rpartition(":")[2]))


def stop(server: Any) -> None:
    """Stops a dispatcher, or a worker while its dispatcher still runs."""
    server.stop()
    _started.remove(server)


def start_worker(host: str, dispatcher: str, timeout_s: float) -> Any:
    """Starts a worker in this process that serves the dispatcher at "host:port".

    Raises:
        HorovodInternalError: the dispatcher does not answer within `timeout_s`.
    """
    config = _service.WorkerConfig(
        dispatcher_address=dispatcher,
        worker_address=(f"[{host}]" if ":" in host else host) + ":%port%",  # TensorFlow fills in the port
        protocol="grpc",
        dispatcher_timeout_ms=int(timeout_s * 1000),
    )
    try:
        _started.append(_service.WorkerServer(config))
        return _started[-1]
    except tf.errors.OpError as error:
        raise HorovodInternalError(
            f"A worker on {host} could not register with its dispatcher at {dispatcher} within {timeout_s:g} s: "
            f"{error}. Both hosts must reach each other at these addresses, without a firewall between them."
        ) from error
