"""A trace from webhook to delivery is one trace, and costs nothing while nobody wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from aiohttp import ClientSession, web
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import tracing
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Delivery, RetryPolicy
from holdfast.logs import log_to_stdout
from tests.http.processes import announce, holdfast_process, keep_endpoint
from tests.http.server_harness import SECRET, TENANT, ServerHarness
from tests.kit.receiver import OK, answering, serving

_FROM_OUTSIDE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_TRACE_ID = int("0af7651916cd43dd8448eb211c80319c", 16)
BUSY = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 0\r\n\r\n"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.switch_on(provider)
    try:
        yield exporter
    finally:
        tracing.switch_off()
        provider.shutdown()


async def _through(harness: ServerHarness, **headers: str) -> None:
    """One webhook, worked on and delivered."""
    token = await harness.token("admin")
    told = {"x-word": SECRET, "x-name": "m1", **headers}
    assert (await harness.ask("POST", "/echo-chamber/webhook", headers=told, data="hi"))[0] == 202
    status, body, _ = await harness.ask("POST", "/work/drain", token=token, json={"seconds": 20})
    assert (status, body["idle"]) == (200, True)


def _names(spans: tuple[ReadableSpan, ...]) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for one in spans:
        found.setdefault(one.name, []).append(one)
    return found


async def test_from_webhook_to_delivery_is_one_trace_that_began_outside(
    harness: ServerHarness, exported: InMemorySpanExporter
) -> None:
    async with serving(answering(BUSY, OK)) as there:
        await harness.endpoint(there.url(), retry=RetryPolicy(waits_s=(0.01,)))
        await _through(harness, traceparent=_FROM_OUTSIDE)
        sent = [dict(request.headers)["traceparent"] for request in there.requests]
    spans = _names(exported.get_finished_spans())
    (received,), (handled,) = spans["receive echoes"], spans["handle echoes"]
    first, second = spans["deliver echo"]
    ours = [received, handled, first, second]
    assert {one.context.trace_id for one in ours if one.context} == {_TRACE_ID}
    assert [one.parent.span_id for one in ours if one.parent] == [
        int("b7ad6b7169203331", 16), _id(received), _id(handled), _id(handled),
    ]  # fmt: skip
    assert sent == [f"00-{_TRACE_ID:032x}-{_id(one):016x}-01" for one in (first, second)]
    assert [one.attributes["http.response.status_code"] for one in (first, second) if one.attributes] == [
        503, 200
    ]  # fmt: skip
    assert (first.status.is_ok, second.status.is_ok) == (False, True)


def _id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


async def test_without_a_trace_from_outside_one_begins_here(
    harness: ServerHarness, exported: InMemorySpanExporter
) -> None:
    async with serving(answering(OK)) as there:
        await harness.endpoint(there.url())
        await _through(harness, traceparent="nonsense")
    spans = _names(exported.get_finished_spans())
    ours = [spans[name][0] for name in ("receive echoes", "handle echoes", "deliver echo")]
    assert ours[0].parent is None
    assert len({one.context.trace_id for one in ours if one.context}) == 1


async def test_a_request_is_a_part_named_by_its_route(
    harness: ServerHarness, exported: InMemorySpanExporter
) -> None:
    await harness.ask("GET", "/api/v1/deliveries/holdfast/none", token=await harness.token("viewer"))
    await harness.ask("GET", "/made/up/paths")
    names = [span.name for span in exported.get_finished_spans()]
    assert names == ["GET /api/v1/deliveries/{outbox}/{delivery_id}", "GET unrouted"]


async def test_nothing_is_kept_or_sent_while_nobody_traces(harness: ServerHarness) -> None:
    async with serving(answering(OK)) as there:
        await harness.endpoint(there.url())
        await _through(harness, traceparent=_FROM_OUTSIDE)
        assert "traceparent" not in dict(there.requests[0].headers)
    store = harness.runtime.store.tenant(TENANT)
    item, delivery = await store.get(InboxItem, "echoes_m1"), await store.get(Delivery, "m1~there")
    assert item is not None
    assert delivery is not None
    assert (item.doc.trace, delivery.doc.trace) == ("", "")


async def test_log_lines_name_the_trace_they_belong_to(
    exported: InMemorySpanExporter, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    try:
        log_to_stdout()
        with tracing.span("a", kind="consumer", parent=_FROM_OUTSIDE):
            structlog.get_logger().info("inside")
        structlog.get_logger().info("outside")
    finally:
        structlog.configure(**before)
    inside, outside = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert inside["trace_id"] == f"{_TRACE_ID:032x}"
    assert "trace_id" not in outside


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
    ],
)
def test_it_stays_off_unless_the_environment_asks(environ: dict[str, str]) -> None:
    assert tracing.configure_export(environ) is False
    assert tracing.on is False


@pytest.fixture
async def collector() -> AsyncIterator[tuple[str, asyncio.Queue[bytes]]]:
    """What takes spans in by OTLP over HTTP."""
    taken: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        taken.put_nowait(await request.read())
        return web.Response()

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}", taken
    await runner.cleanup()


async def test_two_processes_export_one_trace_where_the_standard_variables_say(
    tmp_path: Path, collector: tuple[str, asyncio.Queue[bytes]]
) -> None:
    announce(tmp_path)
    address, taken = collector
    environ = {
        "HOLDFAST_ALLOW": "127.0.0.1", "OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_SERVICE_NAME": "anchor",
        "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }  # fmt: skip
    async with serving(answering(OK)) as there:
        await keep_endpoint(tmp_path, {"HOLDFAST_ALLOW": "127.0.0.1"}, there.url())
        serve = ("serve", "--port", "0", "--no-work")
        async with (
            holdfast_process(tmp_path, *serve, environ=environ) as (_, served),
            holdfast_process(tmp_path, "work", environ=environ),
            ClientSession(served) as client,
        ):
            headers = {"x-word": SECRET, "x-name": "m1", "traceparent": _FROM_OUTSIDE}
            async with client.post("/echo-chamber/webhook", headers=headers, data="hi") as answer:
                assert answer.status == 202
            await asyncio.wait_for(there.received(1), 30)
            exported = await asyncio.wait_for(_with_all(taken, b"receive echoes", b"deliver echo"), 30)
    assert there.requests[0].headers["traceparent"].split("-")[1] == f"{_TRACE_ID:032x}"
    assert exported.count(_TRACE_ID.to_bytes(16, "big")) >= 3
    assert b"anchor" in exported


async def _with_all(taken: asyncio.Queue[bytes], *words: bytes) -> bytes:
    """What has come in once all of these are in it."""
    found = b""
    while not all(word in found for word in words):
        found += await taken.get()
    return found
