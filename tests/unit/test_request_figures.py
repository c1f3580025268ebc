"""Answered requests are shown as the client library itself would show them."""

from __future__ import annotations

import random

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from holdfast.http.request_figures import BOUNDS_S, RequestFigures


def test_the_text_is_that_of_the_library_s_own_counter_and_histogram() -> None:
    rng, registry, expected = random.Random(3), CollectorRegistry(), CollectorRegistry()
    figures = RequestFigures()
    registry.register(figures)
    labels = ("method", "route", "status")
    counter = Counter("holdfast_http_requests", "Requests answered.", labels, registry=expected)
    histogram = Histogram(
        "holdfast_http_request_seconds", "Time to the end of an answer.", labels[:2],
        buckets=BOUNDS_S, registry=expected,
    )  # fmt: skip
    for _ in range(500):
        method, route = rng.choice(("GET", "POST")), rng.choice(("/a", '/b"\\'))
        status = rng.choice((200, 503))
        seconds = rng.choice((*BOUNDS_S, rng.uniform(0, 0.02), rng.uniform(0, 20)))
        figures.answered(method, route, status, seconds)
        counter.labels(method, route, str(status)).inc()
        histogram.labels(method, route).observe(seconds)
    lines = [line for line in generate_latest(expected).decode().splitlines() if "_created" not in line]
    assert generate_latest(registry).decode().splitlines() == lines
