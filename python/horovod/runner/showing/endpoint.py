"""Serves the figures of a job to Prometheus (`--metrics-port`), by its client library.

Used by `cli`. The library answers in threads of its own, which ask the `desk`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from horovod._core.errors import InvalidArgumentError
from horovod.runner.live.exposition import families
from horovod.runner.live.figures import Reading
from horovod.runner.live.straggler import straggler
from horovod.runner.live.table import rows
from horovod.runner.showing.desk import Desk

_LEAST_PERIOD_S: Final = 5.0  # between two answers, for the slowest rank in it


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


@contextlib.contextmanager
def serving(desk: Desk, address: str, port: int) -> Iterator[None]:
    """For its time, `http://address:port/metrics` has the figures.

    Raises:
        InvalidArgumentError: `prometheus_client` is missing, or nothing can listen there.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise InvalidArgumentError(
            f"--metrics-port needs the package prometheus_client ({error}). Install it: pip install "
            "'prometheus_client>=0.19'"
        ) from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(desk))
    try:
        server, thread = start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgumentError(
            f"--metrics-port: nothing can listen on port {port} of {address}: {reason}. Choose another port, or "
            "another --metrics-address."
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1.0)
