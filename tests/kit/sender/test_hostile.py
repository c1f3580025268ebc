"""Receivers and requests that attack: answers nobody asked for, headers that would change a request."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.net import AddressGuard, RawSender
from tests.kit.receiver import OK, Serving, answering, serving
from tests.kit.sender.sender_fixture import failure_of, outgoing

FORGED = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"


async def test_an_answer_nobody_asked_for_is_not_taken_for_the_next_one(sender: RawSender) -> None:
    async with serving(answering(OK + FORGED)) as receiver:
        for _ in range(3):
            assert (await sender.send(outgoing(receiver.url()))).excerpt == b"ok"
        assert receiver.connections == 3


async def test_bytes_that_come_while_resting_end_the_connection(sender: RawSender) -> None:
    late = asyncio.Event()

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(OK)
        await late.wait()
        writer.write(FORGED)
        await reader.read()

    async with serving(talk) as receiver:
        await sender.send(outgoing(receiver.url()))
        late.set()
        await asyncio.wait_for(receiver.ended.wait(), 30)
        assert (await sender.send(outgoing(receiver.url()))).excerpt == b"ok"
        assert receiver.connections == 2


SMUGGLED = [
    ("x-a", "1\r\nx-b: 2"), ("x-a", "1\nx-b: 2"), ("x-a", "1\rx-b: 2"), ("x-a", "nul\0"), ("x-a", "del\x7f"),
    ("x-a\r\nx-b", "1"), ("x a", "1"), ("x-a:", "1"), ("", "1"), ("x-é", "1"), ("x-a", "→"),
    ("Content-Length", "0"), ("transfer-encoding", "chunked"), ("host", "other"), ("connection", "close"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), SMUGGLED)
async def test_a_header_that_would_change_the_request_is_refused(
    sender: RawSender, name: str, value: str
) -> None:
    async with serving(answering(OK)) as receiver:
        request = msgspec.structs.replace(outgoing(receiver.url()), headers=((name, value),))
        assert await failure_of(sender, request) == "bad_request"
        assert (receiver.requests, receiver.connections) == ([], 0)


async def test_a_method_that_would_change_the_request_is_refused(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        request = msgspec.structs.replace(
            outgoing(receiver.url()), method="GET / HTTP/1.1\r\nx: y\r\n\r\nPOST"
        )
        assert await failure_of(sender, request) == "bad_request"


async def test_a_refused_address_is_not_connected_to() -> None:
    sender = RawSender(AddressGuard())
    async with serving(answering(OK)) as receiver:
        assert await failure_of(sender, outgoing(receiver.url())) == "refused_address"
        assert receiver.connections == 0
    await sender.close()


async def test_proxies_in_the_environment_are_not_used(
    sender: RawSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with serving(answering(OK)) as receiver:
        assert (await sender.send(outgoing(receiver.url()))).status == 200
