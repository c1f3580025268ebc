"""Webhooks that one turn of the event loop has read, stored by one request to the store.

A request of its own costs each message a future, a callback, a deadline and a place in two queues, as much as
its document. Each message is still verified, committed and answered by itself. Each step is taken for all
of them before the next: code that has just run is still in the processor's caches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from holdfast.http.ingest import Ingest, WebhookResponse
from holdfast.http.webhook_cycle import WebhookCycle
from holdfast.http.webhook_response import ResponseRenderer
from holdfast.http.whole_request import WholeRequestParser
from holdfast.kit.inbox import AcceptedMessage
from holdfast.store.commit import Outcome


class WebhookConnection(Protocol):
    """What a message came by and is answered by."""

    cycle: Any
    unread: bytes | None

    def read_as_usual(self) -> None: ...

    def write(self, cycle: WebhookCycle, response: bytes, now_s: float) -> None: ...

    def respond_by_task(
        self, cycle: WebhookCycle, responding: Coroutine[Any, Any, WebhookResponse]
    ) -> None: ...

    def hang_up(self) -> None: ...


_Cycles = list[tuple[WebhookConnection, WebhookCycle]]
_Accepted = list[tuple[WebhookConnection, WebhookCycle, AcceptedMessage]]


class WebhookBatch:
    """The messages of one hook that wait for the end of the loop's turn.

    The tasks of `state`, the server's: one that stops waits for what is stored, and cancels it when it waits
    no longer. `answered` counts requests by method, route, status and seconds.
    """

    def __init__(
        self,
        ingest: Ingest,
        state: Any,
        *,
        loop: asyncio.AbstractEventLoop,
        answered: Callable[..., None],
    ) -> None:
        self._ingest, self._loop, self._answered = ingest, loop, answered
        self.tasks: set[Any] = state.tasks
        self.renderer = ResponseRenderer(state)
        self._parser = WholeRequestParser()
        self._waiting: _Cycles = []
        self._unread: list[WebhookConnection] = []
        self._is_scheduled = False

    def add(self, connection: WebhookConnection, cycle: WebhookCycle) -> None:
        """Take in a request that was read."""
        self._waiting.append((connection, cycle))
        if not self._is_scheduled:
            self._schedule()

    def add_unread(self, connection: WebhookConnection) -> None:
        """Take in what is still to be read, unless the connection has read it by then."""
        self._unread.append(connection)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        # Not while sockets are read: uvloop releases the GIL after each, and a writer thread would take it.
        self._is_scheduled = True
        self._loop.call_soon(self._take_in)

    def _take_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        unread, self._unread = self._unread, []
        self._is_scheduled, began_s = False, time.perf_counter()
        for _, cycle in waiting:
            cycle.began_s = began_s
        cycles = [*waiting, *self._read(unread, began_s)]
        accepted: _Accepted = []
        for (connection, cycle), result in zip(cycles, self._accept(cycles), strict=True):
            if isinstance(result, AcceptedMessage):
                cycle.body = b""
                accepted.append((connection, cycle, result))
            else:
                self._respond_by_task(connection, cycle, result)
        if accepted:
            self._store(accepted)

    def _read(self, unread: Sequence[WebhookConnection], began_s: float) -> _Cycles:
        """Parse whole requests; what is something else is read as usual."""
        parse, ingest = self._parser.parse, self._ingest
        cycles: _Cycles = []
        for connection in unread:
            data = connection.unread
            if data is None:
                continue
            request = parse(data)
            if request is None:
                self._guarded(connection, connection.read_as_usual)
                continue
            connection.unread = None
            headers, body = request
            cycle = connection.cycle = WebhookCycle(ingest, None, headers, body, began_s)
            cycles.append((connection, cycle))
        return cycles

    def _accept(self, cycles: _Cycles) -> list[AcceptedMessage | Exception | None]:
        try:
            return self._ingest.accept([(cycle.headers, cycle.body) for _, cycle in cycles])
        except Exception as fault:
            return [fault] * len(cycles)

    def _respond_by_task(
        self, connection: WebhookConnection, cycle: WebhookCycle, fault: Exception | None
    ) -> None:
        """Refuse a message, or wait for what it needs besides its commit."""
        ingest, raw, body = self._ingest, cycle.raw_headers, cycle.body
        cycle.body = b""
        responding = ingest.respond(raw, cycle.headers, body) if fault is None else ingest.refuse(fault, raw)
        connection.respond_by_task(cycle, responding)

    def _store(self, accepted: _Accepted) -> None:
        try:
            storing = self._ingest.store([message for _, _, message in accepted], self._loop)
        except Exception as fault:
            if len(accepted) == 1:
                self._refuse(accepted, fault)
            else:
                # Singly, only the message at fault is refused.
                for one in accepted:
                    self._store([one])
            return
        self.tasks.add(storing)
        storing.add_done_callback(partial(self._answer, accepted))

    def _answer(self, accepted: _Accepted, storing: asyncio.Future[list[Outcome]]) -> None:
        self.tasks.discard(storing)
        in_time = self._ingest.is_in_time(storing)
        try:
            outcomes = storing.result()
        except asyncio.CancelledError:
            self._answer_cancelled(accepted, in_time=in_time)
            return
        except Exception as fault:
            self._refuse(accepted, fault)
            return
        self._ingest.leave(len(accepted))
        stored: _Cycles = []
        duplicate: _Cycles = []
        for (connection, cycle, message), outcome in zip(accepted, outcomes, strict=True):
            try:
                (stored if message.settle(outcome) else duplicate).append((connection, cycle))
            except Exception as fault:
                self._respond_by_task(connection, cycle, fault)
        self._respond(stored, self._ingest.stored_response(stored=True))
        self._respond(duplicate, self._ingest.stored_response(stored=False))

    def _respond(self, cycles: _Cycles, response: WebhookResponse) -> None:
        """Write the same response to all of a batch."""
        if not cycles:
            return
        took_s, now_s = time.perf_counter() - cycles[0][1].began_s, self._loop.time()
        self._answered("POST", self._ingest.path, response.status, took_s, count=len(cycles))
        rendered = self.renderer.render(response, keep_alive=True)
        for connection, cycle in cycles:
            if not cycle.keep_alive:
                closing = self.renderer.render(response, keep_alive=False)
                self._guarded(connection, connection.write, cycle, closing, now_s)
                continue
            try:
                connection.write(cycle, rendered, now_s)
            except Exception as fault:
                self._hang_up(connection, fault)

    def _guarded(self, connection: WebhookConnection, act: Callable[..., None], *args: Any) -> None:
        try:
            act(*args)
        except Exception as fault:
            self._hang_up(connection, fault)

    def _hang_up(self, connection: WebhookConnection, fault: Exception) -> None:
        """Give up a connection; the others of the batch are still to be answered."""
        self._loop.call_exception_handler({"message": "a webhook was not answered", "exception": fault})
        connection.hang_up()

    def _answer_cancelled(self, accepted: _Accepted, *, in_time: bool) -> None:
        """Answer those whose time is up; where the server stops and waits no longer, hang up."""
        self._ingest.leave(len(accepted))
        for connection, cycle, message in accepted:
            message.settle(None)
            if in_time:
                connection.hang_up()
            else:
                self._respond([(connection, cycle)], self._ingest.too_late(cycle.raw_headers))

    def _refuse(self, accepted: _Accepted, fault: Exception) -> None:
        self._ingest.leave(len(accepted))
        for connection, cycle, message in accepted:
            message.settle(None)
            self._respond_by_task(connection, cycle, fault)
