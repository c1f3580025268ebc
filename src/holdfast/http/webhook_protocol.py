"""Small webhooks straight from the connection to the inbox; every other request goes the way of ASGI.

    bytes read ──► a whole request to a registered hook? ──► WebhookBatch: parsed ──► commit ──► one write
        │                               anything unusual ◄───┘        │
    head read ──► a registered hook, HTTP/1.1, a known small length? ─┤
        │                                                             └──► more to wait for: Ingest.respond
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

from holdfast.http.asgi import AsgiApp
from holdfast.http.ingest import Ingest, WebhookResponse, header_map
from holdfast.http.slow_clients import SlowClientProtocol
from holdfast.http.webhook_batch import WebhookBatch
from holdfast.http.webhook_cycle import WebhookCycle
from holdfast.http.whole_request import NOT_ORDINARY

# The server beneath stops reading past as much; a longer body has to wait for its place.
DIRECT_BYTES_MAX: Final = 65_536
_DIGITS_MAX: Final = 5
_LINE_BYTES_MAX: Final = 1_000


class WebhookProtocol(SlowClientProtocol):
    """A connection of the server; `AsgiApp.direct_webhooks` says which requests need no ASGI.

    `unread` is a request, whole as it seems, that waits for the end of the loop's turn to be read.
    """

    cycle: Any
    unread: bytes | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        plain = isinstance(self.app, AsgiApp) and not self.root_path and self.limit_concurrency is None
        self._hooks = self.app.direct_webhooks if plain else {}
        self._batches: dict[bytes, WebhookBatch] = {}  # by the request lines that this connection had

    def data_received(self, data: bytes) -> None:
        end = data.find(b"\r", 0, _LINE_BYTES_MAX)
        line = data[:end] if end > 0 else b""
        batch, cycle = self._batches.get(line) or self._batch_of_line(line), self.cycle
        idle = self._complete and self.unread is None and (cycle is None or cycle.response_complete)
        if batch is None or not idle or self.flow.write_paused or len(data) > DIRECT_BYTES_MAX:
            self.read_as_usual()
            super().data_received(data)
            return
        self.unread, self.idle_since_s, self.reading_since_s = data, None, None
        batch.add_unread(self)

    def _batch_of_line(self, line: bytes) -> WebhookBatch | None:
        """The batch of the hook that a request line asks for."""
        if not (line.startswith(b"POST ") and line.endswith(b" HTTP/1.1")):
            return None
        ingest = self._hooks.get(line[5:-9])
        if ingest is not None:
            self._batches[line] = self._batch(ingest)
        return self._batches.get(line)

    def read_as_usual(self) -> None:
        """Read what waits to be read as all other requests are."""
        data, self.unread = self.unread, None
        if data is not None:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.read_as_usual()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        self.read_as_usual()
        super().shutdown()

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
        if not NOT_ORDINARY.isdisjoint(headers):
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
            answered = self.app.metrics.answered
            batch = batches[ingest] = WebhookBatch(
                ingest, self.server_state, loop=self.loop, answered=answered
            )
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
            return
        response, took_s = task.result(), time.perf_counter() - cycle.began_s
        batch = self._batch(cycle.ingest)
        self.app.metrics.answered("POST", cycle.ingest.path, response.status, took_s)
        self.write(cycle, batch.renderer.render(response, keep_alive=cycle.keep_alive), self.loop.time())

    def write(self, cycle: WebhookCycle, response: bytes, now_s: float) -> None:
        """Write a response, and go on with what was sent meanwhile."""
        transport = self.transport
        if transport.is_closing():
            return
        transport.write(response)
        cycle.response_complete = True
        if cycle.keep_alive and not self.pipeline and not self.flow.read_paused:
            self.server_state.total_requests += 1
            self.idle_since_s = now_s
            return
        if not cycle.keep_alive:
            transport.close()
        self.on_response_complete()
