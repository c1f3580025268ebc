"""Sends of callers that come together: prepared at once, and one request to the store.

Each is a commit of its own, so one can be refused while the others are made. A caller that comes alone waits
for nobody and is not batched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.kit.outbox.direct_handoff import DirectHandoff, HandoffPlaces
from holdfast.kit.outbox.models import Delivery
from holdfast.store import Store, Write, create, create_many
from holdfast.store.commit import Outcome


class _WaitingSend(msgspec.Struct, eq=False):
    """The deliveries of one send, and the future of its caller."""

    deliveries: Sequence[Delivery]
    future: asyncio.Future[None]
    places: HandoffPlaces = ()
    writes: Sequence[Write] = ()

    def end(self, outcome: Any) -> None:
        """Tell the caller what became of the commit."""
        if self.future.done():
            return  # its caller was cancelled
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(None)


class SendBatch:
    """Collects the sends of one iteration of the event loop, and commits them in the next."""

    def __init__(self, store: Store, handoff: DirectHandoff | None) -> None:
        self._store, self._handoff = store, handoff
        self._waiting: list[_WaitingSend] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.since: datetime | None = None  # when the first of those that wait was made
        self.expects_others = False  # the last batch had several sends, whose callers come back together

    def add(self, deliveries: Sequence[Delivery]) -> asyncio.Future[None]:
        """Return the future of the commit of these deliveries."""
        if not self._waiting:
            self._loop = (
                asyncio.get_running_loop()
            )  # once for a batch: Python 3.11 makes a system call for it
            self._loop.call_soon(self._commit)
            self.since = deliveries[0].created_at
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(_WaitingSend(deliveries, future))
        return future

    def _commit(self) -> None:
        sends, self._waiting = [one for one in self._waiting if not one.future.done()], []
        self.since = None
        if not sends:
            return
        self.expects_others = len(sends) > 1
        try:
            self._claim(sends)
            if not self._start_creates(sends):
                self._start(self._prepare(sends))
        except Exception as fault:  # nobody awaits this callback
            self._end(sends, [fault] * len(sends))

    def _claim(self, sends: list[_WaitingSend]) -> None:
        if self._handoff is not None:
            places = self._handoff.claim([send.deliveries for send in sends])
            for send, claimed in zip(sends, places, strict=True):
                send.places = claimed

    def _start_creates(self, sends: list[_WaitingSend]) -> bool:
        """Start to commit sends of one delivery each; False where one has several, or is refused."""
        if {len(send.deliveries) for send in sends} != {1}:
            return False
        try:
            committing = self._store.start_creates([send.deliveries[0] for send in sends])
        except HoldfastError:
            return False
        committing.add_done_callback(partial(self._committed, sends))
        return True

    def _prepare(self, sends: list[_WaitingSend]) -> list[_WaitingSend]:
        """Encode; return those that were not refused."""
        prepared = []
        for send, writes in zip(sends, creates([send.deliveries for send in sends]), strict=True):
            if isinstance(writes, HoldfastError):
                self._end([send], [writes])
            else:
                send.writes = writes
                prepared.append(send)
        return prepared

    def _start(self, sends: list[_WaitingSend]) -> None:
        if not sends:
            return
        try:
            committing = self._store.start_settle([send.writes for send in sends])
        except Exception as fault:
            if len(sends) > 1:
                for send in sends:  # singly, only the send at fault fails
                    self._start([send])
            else:
                self._end(sends, [fault])
            return
        committing.add_done_callback(partial(self._committed, sends))

    def _committed(self, sends: list[_WaitingSend], committing: asyncio.Future[list[Outcome]]) -> None:
        outcomes: Sequence[Any]
        if committing.cancelled():
            outcomes = [asyncio.CancelledError()] * len(sends)
        else:
            fault = committing.exception()
            outcomes = committing.result() if fault is None else [fault] * len(sends)
        self._end(sends, outcomes)

    def _end(self, sends: list[_WaitingSend], outcomes: Sequence[Any]) -> None:
        for send, outcome in zip(sends, outcomes, strict=True):
            send.end(outcome)
        asyncio.get_running_loop().call_soon(self._hand_over, sends, outcomes)

    def _hand_over(self, sends: list[_WaitingSend], outcomes: Sequence[Any]) -> None:
        """Hand over what was committed, after the next sends of its callers: the store then writes them while
        these are sent."""
        self._commit()
        if self._handoff is not None:
            for send, outcome in zip(sends, outcomes, strict=True):
                places, send.places = send.places, ()
                self._handoff.end(places, committed=not isinstance(outcome, BaseException))


def creates(commits: Sequence[Sequence[Delivery]]) -> list[list[Write] | HoldfastError]:
    """Return the creates of each commit's deliveries, or why one of them is refused."""
    try:
        writes = iter(create_many(chain.from_iterable(commits)))
    except HoldfastError:
        return [_creates_of(deliveries) for deliveries in commits]
    return [list(islice(writes, len(deliveries))) for deliveries in commits]


def _creates_of(deliveries: Sequence[Delivery]) -> list[Write] | HoldfastError:
    try:
        return [create(delivery) for delivery in deliveries]
    except HoldfastError as refusal:
        return refusal
