"""What the driver does, counted: for Prometheus, and for whoever wants to know what a run cost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import prometheus_client
from cassandra.cluster import ResponseFuture, Session

_REQUESTS = prometheus_client.Counter(
    "sweepflow_cassandra_requests", "Requests to Cassandra by how they ended", ["outcome"]
)
_REPEATED = prometheus_client.Counter("sweepflow_cassandra_repeated", "Requests that were made again")
_IN_FLIGHT = prometheus_client.Gauge("sweepflow_cassandra_in_flight", "Requests that are not answered yet")
_SECONDS = prometheus_client.Histogram(
    "sweepflow_cassandra_request_seconds",
    "How long requests to Cassandra took",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)


class Meters:
    """Of one session. The process-wide figures go up with them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def watch(self, session: Session) -> None:
        session.add_request_init_listener(self._began)

    def counts(self) -> Counter[str]:
        """By outcome: `ok`, the name of an error, `repeated`, and `speculative` for those asked of a second node."""
        with self._lock:
            return self._counts.copy()

    def repeated(self) -> None:
        _REPEATED.inc()
        self._count("repeated")

    def _began(self, future: ResponseFuture) -> None:
        began = time.perf_counter()
        _IN_FLIGHT.inc()

        def ended(outcome: str) -> None:
            _IN_FLIGHT.dec()
            _SECONDS.observe(time.perf_counter() - began)
            _REQUESTS.labels(outcome).inc()
            self._count(outcome)
            if len(future.attempted_hosts) > 1:
                self._count("speculative")

        def failed(error: Any) -> None:
            ended(type(error).__name__)

        future.add_callbacks(lambda _: ended("ok"), failed)

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
