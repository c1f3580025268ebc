"""Webhooks that one turn of the event loop has read, stored by one request to the store.

A request of its own costs each message a future, a callback, a deadline and a place in two queues, as much as
its document. Each message is still verified, committed and answered by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from holdfast.http.ingest import Ingest, WebhookResponse
from holdfast.http.webhook_cycle import WebhookCycle
from holdfast.kit.inbox import AcceptedMessage
from holdfast.store.commit import Outcome


class WebhookConnection(Protocol):
    """What answers a message."""

    def respond(self, cycle: WebhookCycle, response: WebhookResponse) -> None: ...

    def respond_by_task(
        self, cycle: WebhookCycle, responding: Coroutine[Any, Any, WebhookResponse]
    ) -> None: ...

    def hang_up(self) -> None: ...


_Accepted = list[tuple[WebhookConnection, WebhookCycle, AcceptedMessage]]


class WebhookBatch:
    """The messages of one hook that wait for the end of the loop's turn.

    `tasks` are the server's: one that stops waits for what is stored, and cancels it when it waits no longer.
    """

    def __init__(self, ingest: Ingest, loop: asyncio.AbstractEventLoop, tasks: set[Any]) -> None:
        self._ingest, self._loop, self.tasks = ingest, loop, tasks
        self._waiting: list[tuple[WebhookConnection, WebhookCycle]] = []

    def add(self, connection: WebhookConnection, cycle: WebhookCycle) -> None:
        self._waiting.append((connection, cycle))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._take_in)

    def _take_in(self) -> None:
        waiting, self._waiting = self._waiting, []
        began_s, ingest = time.perf_counter(), self._ingest
        accepted: _Accepted = []
        for connection, cycle in waiting:
            cycle.began_s, body, cycle.body = began_s, cycle.body, b""
            try:
                message = ingest.accept(cycle.headers, body)
            except Exception as fault:
                connection.respond_by_task(cycle, ingest.refuse(fault, cycle.raw))
                continue
            if message is None:
                connection.respond_by_task(cycle, ingest.respond(cycle.raw, cycle.headers, body))
            else:
                accepted.append((connection, cycle, message))
        if accepted:
            self._store(accepted)

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
        ingest = self._ingest
        for (connection, cycle, message), outcome in zip(accepted, outcomes, strict=True):
            ingest.leave()
            try:
                stored = message.settle(outcome)
            except Exception as fault:
                connection.respond_by_task(cycle, ingest.refuse(fault, cycle.raw))
                continue
            try:
                connection.respond(cycle, ingest.stored_response(stored=stored))
            except Exception as fault:
                # The others of the batch are still to be answered.
                self._loop.call_exception_handler(
                    {"message": "a webhook was not answered", "exception": fault}
                )
                connection.hang_up()

    def _answer_cancelled(self, accepted: _Accepted, *, in_time: bool) -> None:
        """Answer those whose time is up; where the server stops and waits no longer, hang up."""
        for connection, cycle, message in accepted:
            self._ingest.leave()
            message.settle(None)
            if in_time:
                connection.hang_up()
            else:
                connection.respond(cycle, self._ingest.too_late(cycle.raw))

    def _refuse(self, accepted: _Accepted, fault: Exception) -> None:
        for connection, cycle, message in accepted:
            self._ingest.leave()
            message.settle(None)
            connection.respond_by_task(cycle, self._ingest.refuse(fault, cycle.raw))
