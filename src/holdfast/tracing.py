"""OpenTelemetry traces from incoming webhook to outgoing attempt; off, and free, until switched on.

    receive ──► (stored with the message) ──► handle ──► (stored with the delivery) ──► each attempt
    one trace, however long it takes and whichever process does each part

The W3C `traceparent` crosses from one process to the next: stored with the document and sent with the
request. Check `tracing.on` first: while it is False tracing must cost nothing.
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
_ENABLED_BY: Final = (
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
    """Export by OTLP if the standard `OTEL_…` variables ask for it; return whether it does.

    Example: `OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 holdfast serve`
    """
    variables = os.environ if environ is None else environ
    disabled = variables.get("OTEL_SDK_DISABLED") == "true" or variables.get("OTEL_TRACES_EXPORTER") == "none"
    if disabled or not any(variables.get(name) for name in _ENABLED_BY):
        return False
    try:
        switch_on(_otlp_provider())
    except ModuleNotFoundError as missing:
        log.warning(
            "traces are configured, but not exported: pip install 'holdfast-kit[otel]'", missing=missing.name
        )
    return on


def _otlp_provider() -> TracerProvider:
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
    """A span. Its parent is explicit: tasks inherit contexts that are not theirs.

    Example: `with tracing.span("handle github", kind="consumer", parent=item.trace): ...`
    """
    context = _PROPAGATOR.extract({HEADER: parent}, context=Context())
    prefixed = {f"holdfast.{word}": value for word, value in attributes.items()}
    with _tracer.start_as_current_span(name, context=context, kind=_KINDS[kind], attributes=prefixed) as span:
        yield span


def traceparent() -> str:
    """The current span's `traceparent`; empty outside of any trace."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(HEADER, "")


def mark_failed(span: Span, reason: str) -> None:
    span.set_status(Status(StatusCode.ERROR, reason))


def ids() -> dict[str, str]:
    """The ids of the current span, for a log line."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }
