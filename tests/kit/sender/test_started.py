"""Requests started without a task: written where a connection is idle, their results told by a callback."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.net import OutgoingRequest, RawSender, ReceiverResponse, SendFailure, SendResult
from tests.kit.receiver import OK, Serving, answering, serving
from tests.kit.sender.sender_fixture import HEADERS, local, outgoing


class Results:
    """What `on_result` was called with."""

    def __init__(self) -> None:
        self.given: asyncio.Queue[SendResult] = asyncio.Queue()

    def __call__(self, result: SendResult) -> None:
        self.given.put_nowait(result)

    async def next(self) -> SendResult:
        async with asyncio.timeout(30):
            return await self.given.get()


async def answering_the_first(
    state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the first request, and nothing after it."""
    await state.read(reader)
    writer.write(OK)
    await state.read(reader)
    await asyncio.Event().wait()


async def closing_after_one(
    state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await state.read(reader)
    writer.write(OK)
    await state.read(reader)
    writer.close()


async def test_a_request_is_started_on_an_idle_connection_only(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        results = Results()
        assert sender.start(outgoing(receiver.url()), results) is None
        await sender.send(outgoing(receiver.url()))
        assert sender.start(outgoing(receiver.url()), results) is not None
        assert sender.start(outgoing(receiver.url()), results) is None, "its one connection is in use"
        response = await results.next()
        assert isinstance(response, ReceiverResponse)
        assert (response.status, response.excerpt) == (200, b"ok")
    assert len(receiver.requests) == 2
    assert results.given.empty()


async def test_a_result_may_start_the_next_request_on_the_same_connection(sender: RawSender) -> None:
    results = Results()
    async with serving(answering(OK)) as receiver:
        await sender.send(outgoing(receiver.url()))
        left = 20

        def go_on(result: SendResult) -> None:
            nonlocal left
            results(result)
            left -= 1
            if left:
                assert sender.start(outgoing(receiver.url()), go_on) is not None

        go_on(await sender.send(outgoing(receiver.url())))
        assert [type(await results.next()) for _ in range(20)] == [ReceiverResponse] * 20
    assert len(receiver.requests) == 21
    assert sender.stats().opened == 1


async def test_a_started_request_is_held_to_its_time_limit(sender: RawSender) -> None:
    results = Results()
    async with serving(answering_the_first) as receiver:
        await sender.send(outgoing(receiver.url()))
        sender.start(outgoing(receiver.url(), timeout_s=0.05), results)
        failure = await results.next()
    assert isinstance(failure, SendFailure)
    assert failure.reason == "timeout"


async def test_a_connection_that_breaks_under_a_started_request_is_a_reset(sender: RawSender) -> None:
    results = Results()
    async with serving(closing_after_one) as receiver:
        await sender.send(outgoing(receiver.url()))
        sender.start(outgoing(receiver.url()), results)
        failure = await results.next()
    assert isinstance(failure, SendFailure)
    assert failure.reason == "reset"
    assert results.given.empty()


async def test_a_request_that_can_not_be_sent_takes_no_connection(sender: RawSender) -> None:
    results = Results()
    async with serving(answering(OK)) as receiver:
        await sender.send(outgoing(receiver.url()))
        headers = (*HEADERS, ("x-note", "a\r\nb"))
        with pytest.raises(SendFailure):
            sender.start(OutgoingRequest("POST", receiver.url(), headers, b"", 5.0, 1_024), results)
        assert sender.start(outgoing(receiver.url()), results) is not None
        assert isinstance(await results.next(), ReceiverResponse)
    assert sender.stats().opened == 1


async def test_an_abandoned_request_closes_its_connection_and_tells_nothing(sender: RawSender) -> None:
    results = Results()
    async with serving(answering_the_first) as receiver:
        await sender.send(outgoing(receiver.url()))
        exchange = sender.start(outgoing(receiver.url()), results)
        assert exchange is not None
        exchange.abandon(results)
        await sender.close()
    assert sender.stats().open_now == 0
    assert results.given.empty()


async def test_abandoning_what_has_ended_leaves_the_next_request_alone(sender: RawSender) -> None:
    first, second = Results(), Results()
    async with serving(answering(OK)) as receiver:
        await sender.send(outgoing(receiver.url()))
        exchange = sender.start(outgoing(receiver.url()), first)
        assert exchange is not None
        await first.next()
        assert sender.start(outgoing(receiver.url()), second) is exchange
        exchange.abandon(first)
        assert isinstance(await second.next(), ReceiverResponse)


async def test_closing_the_sender_tells_what_was_started_and_starts_nothing_more() -> None:
    sender, results = local(), Results()
    async with serving(answering_the_first) as receiver:
        await sender.send(outgoing(receiver.url()))
        sender.start(outgoing(receiver.url()), results)
        await sender.close()
        failure = await results.next()
        assert sender.start(outgoing(receiver.url()), results) is None
    assert isinstance(failure, SendFailure)
    assert failure.reason == "reset"
