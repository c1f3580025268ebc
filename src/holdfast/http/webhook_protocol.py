"""Small webhooks straight from the connection to the inbox; every other request goes the way of ASGI.

    head read ──► a registered hook, HTTP/1.1, a known small length? ──► WebhookBatch ──► commit ──► one write
        │                                                more to wait for └──► a task: Ingest.respond ──┘
        └─ anything else ──► scope, messages, AsgiApp

What ASGI costs for a request is as much as taking a webhook in, and a task with its coroutines a quarter of
that. All ways share `Ingest`, and a test compares their answers, documents and figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from holdfast.http.asgi import AsgiApp
from holdfast.http.ingest import Ingest, RawHeaders, WebhookResponse, header_map
from holdfast.http.slow_clients import SlowClientProtocol
from holdfast.http.webhook_batch import WebhookBatch
from holdfast.http.webhook_cycle import WebhookCycle

# The server beneath stops reading past as much; a longer body has to wait for its place.
DIRECT_BYTES_MAX: Final = 65_536
_DIGITS_MAX: Final = 5
_OTHERWISE: Final = frozenset(("transfer-encoding", "expect", "upgrade"))


class WebhookProtocol(SlowClientProtocol):
    """A connection of the server; `AsgiApp.direct_webhooks` says which requests need no ASGI."""

    cycle: Any
    _usual_headers: RawHeaders | None = None
    _usual_lines = b""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plain = isinstance(self.app, AsgiApp) and not self.root_path and self.limit_concurrency is None
        self._hooks = self.app.direct_webhooks if plain else {}

    def on_headers_complete(self) -> None:
        ingest = self._hooks.get(self.url)
        cycle = None if ingest is None else self._direct_cycle(ingest)
        if cycle is None:
            super().on_headers_complete()
        else:
            self._in_head, self.cycle = False, cycle

    def _direct_cycle(self, ingest: Ingest) -> WebhookCycle | None:
        """The cycle of a request that can be answered directly; None for one that ASGI must serve."""
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or self.flow.write_paused:
            return None
        if self.cycle is not None and not self.cycle.response_complete:
            return None  # pipelined: it waits for its turn there
        headers = header_map(self.headers)
        length = headers.get("content-length", "")
        if not (length.isdecimal() and len(length) <= _DIGITS_MAX and int(length) <= DIRECT_BYTES_MAX):
            return None
        if not _OTHERWISE.isdisjoint(headers):
            return None
        return WebhookCycle(ingest, self.headers, headers, keep_alive=parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        if type(self.cycle) is WebhookCycle:
            self._overhead_bytes -= len(body)
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle = self.cycle
        if type(cycle) is WebhookCycle:
            self.reading_since_s, self._complete = None, True
            self._batch(cycle.ingest).add(self, cycle)
        else:
            super().on_message_complete()

    def _batch(self, ingest: Ingest) -> WebhookBatch:
        """The batch of a hook, which all connections of the server share."""
        batches: dict[Ingest, WebhookBatch] = self.app.webhook_batches
        batch = batches.get(ingest)
        if batch is None or batch.tasks is not self.tasks:
            batch = batches[ingest] = WebhookBatch(ingest, self.loop, self.tasks)
        return batch

    def hang_up(self) -> None:
        self.transport.close()

    def respond_by_task(self, cycle: WebhookCycle, responding: Coroutine[Any, Any, WebhookResponse]) -> None:
        task = self.loop.create_task(responding)
        self.tasks.add(task)  # type: ignore[arg-type]
        task.add_done_callback(partial(self._responded, cycle))

    def _responded(self, cycle: WebhookCycle, task: asyncio.Task[WebhookResponse]) -> None:
        self.tasks.discard(task)
        if task.cancelled():
            self.transport.close()
        else:
            self.respond(cycle, task.result())

    def respond(self, cycle: WebhookCycle, response: WebhookResponse) -> None:
        took_s = time.perf_counter() - cycle.began_s
        self.app.metrics.answered("POST", cycle.ingest.path, response.status, took_s)
        if not self.transport.is_closing():
            self._write(cycle, response)

    def _write(self, cycle: WebhookCycle, response: WebhookResponse) -> None:
        usual = self.server_state.default_headers
        if usual is not self._usual_headers:
            # The server makes a new list when the date changes, once a second.
            self._usual_headers, self._usual_lines = usual, _lines(usual)
        lines = self._usual_lines + _lines(response.headers) if response.headers else self._usual_lines
        if not cycle.keep_alive:
            lines += b"connection: close\r\n"
        self.transport.write(
            b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
            % (STATUS_LINE[response.status], len(response.body), lines, response.body)
        )
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()


def _lines(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])
