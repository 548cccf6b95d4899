"""Serves the figures of a job to Prometheus (`--metrics-port`), by its client library.

Used by `cli`. Each connection has a thread, which asks the `desk`; there are few, and none is kept for long.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from socketserver import TCPServer, ThreadingMixIn
from types import MappingProxyType
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from horovod._core.errors import InvalidArgumentError
from horovod.runner.live.exposition import families
from horovod.runner.live.figures import Reading
from horovod.runner.live.straggler import straggler
from horovod.runner.live.table import rows
from horovod.runner.showing.desk import Desk

_LEAST_PERIOD_S: Final = 5.0  # between two answers, for the slowest rank in it
_MOST_CLIENTS: Final = 8  # at a time
_IDLE_S: Final = 5.0  # of a client that neither asks nor reads

_log: Final = logging.getLogger("horovod.runner")


class _Collector:
    """Makes the samples of one answer."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._lock = threading.Lock()
        self._before: Mapping[int, Reading] = MappingProxyType({})
        self._before_s = 0.0

    def collect(self) -> Iterator[Any]:
        """As `prometheus_client` wants it."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        snapshot = self._desk.ask()
        if snapshot is None:
            return
        elastic = self._desk.job["elastic"]
        total = rows(snapshot.readings, {}, snapshot.hosts, snapshot.left, elastic)
        with self._lock:
            period = rows(snapshot.readings, self._before, snapshot.hosts, snapshot.left, elastic)
            if snapshot.at_s - self._before_s >= _LEAST_PERIOD_S:
                self._before, self._before_s = snapshot.readings, snapshot.at_s
        for family in families(total, straggler(period), elastic):
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            made = kind(family.name, family.help, labels=family.labels)
            for labels, value in family.samples:
                made.add_metric(labels, value)
            yield made


class _Handler(WSGIRequestHandler):
    """One client."""

    timeout = _IDLE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: standard error is the job's."""


class _Server(ThreadingMixIn, WSGIServer):
    """Listens at this address.

    Raises:
        OSError: it cannot.
    """

    daemon_threads = True
    block_on_close = False  # a client may keep its thread for some seconds

    def __init__(self, address: str, port: int) -> None:
        family, *_, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        self._clients = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__((str(place[0]), port), _Handler)

    def server_bind(self) -> None:
        """Without a question to a name server, which HTTPServer would ask."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Gives the client a thread, if there is room for one more."""
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._clients.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In that thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client has gone, or there was no room for its thread."""
        _log.debug("An answer to %s failed.", client_address, exc_info=True)


@contextlib.contextmanager
def serving(desk: Desk, address: str, port: int) -> Iterator[None]:
    """For its time, `http://address:port/metrics` has the figures.

    Raises:
        InvalidArgumentError: `prometheus_client` is missing, or nothing can listen there.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise InvalidArgumentError(
            f"--metrics-port needs the package prometheus_client ({error}). Install it: pip install "
            "'prometheus_client>=0.19'"
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(desk))
    try:
        server = _Server(address, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(
            f"--metrics-port: nothing can listen on port {port} of {address}: {reason}. Choose another port, or "
            "another --metrics-address."
        ) from None
    server.set_app(make_wsgi_app(registry))
    thread = threading.Thread(target=server.serve_forever, name="horovod-metrics", daemon=True)
    try:
        thread.start()
        yield
    finally:
        if thread.is_alive():
            with contextlib.suppress(OSError):
                server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread, which looks only twice a second
            server.shutdown()
        server.server_close()
