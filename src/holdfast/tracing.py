"""Traces from what comes in to what goes out, by OpenTelemetry; off, and free, until switched on.

    receive ──► (kept with the message) ──► handle ──► (kept with the delivery) ──► each attempt
    one trace, however long it takes and whichever process does each part

What crosses from one process to the next is one short text, the W3C `traceparent`, kept with the document and
sent with the request. Ask `tracing.on` before anything else here: while it is False nothing may be spent.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

log = structlog.get_logger("holdfast.tracing")

HEADER: Final = "traceparent"
_NAME: Final = "holdfast"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "consumer": SpanKind.CONSUMER}
_WANTED_BY: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER"
)  # fmt: skip

on: bool = False
_tracer: trace.Tracer = trace.NoOpTracer()


def switch_on(provider: TracerProvider) -> None:
    """Trace into this provider from now on."""
    global on, _tracer
    _tracer, on = provider.get_tracer(_NAME), True


def switch_off() -> None:
    global on, _tracer
    _tracer, on = trace.NoOpTracer(), False


def configure_export(environ: Mapping[str, str] | None = None) -> bool:
    """Export by OTLP where the standard `OTEL_…` variables ask for it; says whether it does.

    Example: `OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 holdfast serve`
    """
    found = os.environ if environ is None else environ
    refused = found.get("OTEL_SDK_DISABLED") == "true" or found.get("OTEL_TRACES_EXPORTER") == "none"
    if refused or not any(found.get(name) for name in _WANTED_BY):
        return False
    try:
        switch_on(_exporting())
    except ModuleNotFoundError as missing:
        log.warning("traces are wanted, but not exported: pip install 'holdfast[otel]'", missing=missing.name)
    return on


def _exporting() -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider as Provider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": _NAME}).merge(OTELResourceDetector().detect())
    provider = Provider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


@contextmanager
def span(
    name: str, *, kind: Literal["server", "client", "consumer"], parent: str, **attributes: str | int
) -> Iterator[Span]:
    """A part of a trace. Its parent is told, never guessed: tasks inherit contexts that are not theirs.

    Example: `with tracing.span("handle github", kind="consumer", parent=item.trace): ...`
    """
    context = _PROPAGATOR.extract({HEADER: parent}, context=Context())
    told = {f"holdfast.{word}": value for word, value in attributes.items()}
    with _tracer.start_as_current_span(name, context=context, kind=_KINDS[kind], attributes=told) as made:
        yield made


def traceparent() -> str:
    """Where we are, to be kept or sent along; empty outside of any trace."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(HEADER, "")


def mark_failed(part: Span, why: str) -> None:
    """Mark a part that ended without what it was for."""
    part.set_status(Status(StatusCode.ERROR, why))


def ids() -> dict[str, str]:
    """The ids of where we are, for a log line."""
    here = trace.get_current_span().get_span_context()
    if not here.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(here.trace_id), "span_id": trace.format_span_id(here.span_id)}
