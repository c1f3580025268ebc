"""What the sender makes of answers: each way to give one, broken ones, slow ones, too long ones."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from holdfast.net import AddressGuard, RawSender
from tests.kit.receiver import OK, Serving, answering, answering_once, never_answering, serving
from tests.kit.sender.sender_fixture import HEADERS, failure_of, outgoing


async def test_the_receiver_gets_exactly_the_bytes_and_headers_given(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        answer = await sender.send(outgoing(receiver.url()))
        (request,) = receiver.requests
    assert (answer.status, answer.excerpt) == (200, b"ok")
    assert 0 < answer.latency_s < 5
    assert request.line == "POST /hook?x=1 HTTP/1.1"
    assert request.body == b'{"a":1}'
    assert request.headers == {
        "host": f"127.0.0.1:{receiver.port}", "content-length": "7", **dict(HEADERS)
    }  # fmt: skip


async def test_a_body_of_megabytes_arrives_whole(sender: RawSender) -> None:
    body = bytes(range(256)) * 8_192
    async with serving(answering(OK)) as receiver:
        await sender.send(msgspec.structs.replace(outgoing(receiver.url()), body=body))
        assert receiver.requests[0].body == body


CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx-late: 1\r\n\r\n"
)
ANSWERS = {
    "content-length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", 200, b"abcde"),
    "chunked": (CHUNKED, 200, b"abcde"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, b""),
    "interim first": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\n" + OK, 200, b"ok"),
    "redirect": (b"HTTP/1.1 302 F\r\nlocation: http://10.0.0.1/\r\ncontent-length: 0\r\n\r\n", 302, b""),
    "failure": (b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", 503, b""),
}


@pytest.mark.parametrize(("raw", "status", "excerpt"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_each_way_to_answer_is_understood_and_keeps_the_connection(
    sender: RawSender, raw: bytes, status: int, excerpt: bytes
) -> None:
    async with serving(answering(raw)) as receiver:
        answers = [await sender.send(outgoing(receiver.url())) for _ in range(3)]
        assert [(a.status, a.excerpt) for a in answers] == [(status, excerpt)] * 3
        assert (receiver.connections, len(receiver.requests)) == (1, 3)


@pytest.mark.parametrize("raw", [a[0] for a in ANSWERS.values()], ids=ANSWERS.keys())
async def test_an_answer_in_single_bytes_is_the_same_answer(sender: RawSender, raw: bytes) -> None:
    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        for at in range(len(raw)):
            writer.write(raw[at : at + 1])
            await asyncio.sleep(0)
        await reader.read()

    async with serving(answering(raw)) as whole, serving(talk) as drop_by_drop:
        expected = await sender.send(outgoing(whole.url()))
        got = await sender.send(outgoing(drop_by_drop.url()))
    assert (got.status, got.headers, got.excerpt) == (expected.status, expected.headers, expected.excerpt)


async def test_a_body_that_ends_with_the_connection_is_whole(sender: RawSender) -> None:
    async with serving(answering_once(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as receiver:
        assert (await sender.send(outgoing(receiver.url()))).excerpt == b"all of it"


async def test_header_names_are_lower_case_and_repeated_ones_are_joined(sender: RawSender) -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nRetry-After: 5\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(raw)) as receiver:
        headers = (await sender.send(outgoing(receiver.url()))).headers
    assert (headers["x-a"], headers["retry-after"]) == ("1, 2", "5")


async def test_an_answer_to_head_has_no_body_to_wait_for(sender: RawSender) -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")) as receiver:
        head = msgspec.structs.replace(outgoing(receiver.url()), method="HEAD", body=b"")
        assert (await sender.send(head)).status == 200


async def test_the_excerpt_is_the_first_kilobyte(sender: RawSender) -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"abcde" * 1_000
    async with serving(answering(raw)) as receiver:
        assert (await sender.send(outgoing(receiver.url()))).excerpt == (b"abcde" * 1_000)[:1_024]


async def test_a_body_over_the_limit_is_cut_off_and_still_an_answer(sender: RawSender) -> None:
    async def flood(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(b"HTTP/1.1 500 Oh\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
            await writer.drain()

    async with serving(flood) as receiver:
        answer = await sender.send(outgoing(receiver.url(), response_bytes_max=20_000))
        await receiver.ended.wait()
    assert (answer.status, len(answer.excerpt)) == (500, 1_024)


@pytest.mark.parametrize("lines", [1_200, 200_000], ids=["in one piece", "without end"])
async def test_a_head_over_the_limit_is_refused(sender: RawSender, lines: int) -> None:
    raw = b"HTTP/1.1 200 OK\r\n" + b"x-fill: 0123456789\r\n" * lines + b"content-length: 0\r\n\r\n"
    async with serving(answering(raw)) as receiver:
        assert await failure_of(sender, outgoing(receiver.url())) == "too_large"


async def test_interim_answers_without_end_are_refused(sender: RawSender) -> None:
    async with serving(answering(b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000)) as receiver:
        assert await failure_of(sender, outgoing(receiver.url())) == "too_large"


async def test_no_answer_is_a_timeout_at_the_time_limit(sender: RawSender) -> None:
    async with serving(never_answering) as receiver:
        started = time.monotonic()
        assert await failure_of(sender, outgoing(receiver.url(), timeout_s=0.2)) == "timeout"
        assert 0.19 <= time.monotonic() - started < 10.0
        await receiver.ended.wait()


async def test_a_kept_connection_holds_each_request_to_its_own_time_limit(sender: RawSender) -> None:
    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(OK)
        await never_answering(state, reader, writer)

    async with serving(talk) as receiver:
        await sender.send(outgoing(receiver.url(), timeout_s=60.0))
        started = time.monotonic()
        assert await failure_of(sender, outgoing(receiver.url(), timeout_s=0.2)) == "timeout"
        assert 0.19 <= time.monotonic() - started < 10.0
        assert receiver.connections == 1


async def test_a_body_that_drips_is_a_timeout(sender: RawSender) -> None:
    async def drip(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(drip) as receiver:
        assert await failure_of(sender, outgoing(receiver.url(), timeout_s=0.2)) == "timeout"


async def test_a_closed_port_is_a_failure_to_connect(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        url = receiver.url()
    assert await failure_of(sender, outgoing(url)) == "connect"


BROKEN = {
    "nothing": (b"", "reset"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncont", "reset"),
    "half a body": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", "reset"),
    "half a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf", "reset"),
    "no HTTP": (b"220 mail.example ESMTP\r\n", "bad_response"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx", "bad_response"),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "bad_response"
    ),
    "switched protocol": (b"HTTP/1.1 101 S\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n\0", "bad_response"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "reason"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_answer_is_a_named_failure(sender: RawSender, raw: bytes, reason: str) -> None:
    async with serving(answering_once(raw)) as receiver:
        assert await failure_of(sender, outgoing(receiver.url())) == reason


async def test_a_reset_connection_is_a_reset(sender: RawSender) -> None:
    async with serving(answering_once(b"", reset=True)) as receiver:
        assert await failure_of(sender, outgoing(receiver.url())) == "reset"
        assert len(receiver.requests) == 1


async def test_an_answer_before_the_whole_request_ends_the_connection(sender: RawSender) -> None:
    early = b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n"
    released = asyncio.Event()

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(early)
        await released.wait()
        while await reader.read(65_536):
            pass

    async with serving(talk) as receiver:
        request = msgspec.structs.replace(outgoing(receiver.url()), body=b"x" * 30_000_000)
        assert [(await sender.send(request)).status for _ in range(2)] == [413, 413]
        assert receiver.connections == 2
        released.set()


async def test_a_name_that_does_not_resolve_in_time_is_a_timeout() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    sender = RawSender(AddressGuard(resolver=never))
    assert await failure_of(sender, outgoing("https://slow.example/", timeout_s=0.1)) == "timeout"
    await sender.close()


async def test_a_receiver_that_says_close_is_not_asked_again_on_that_connection(sender: RawSender) -> None:
    raw = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(raw)) as receiver:
        for _ in range(3):
            await sender.send(outgoing(receiver.url()))
        assert receiver.connections == 3


def _said(body: bytes, note: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nx-note: %s\r\ncontent-length: %d\r\n\r\n%s" % (note.encode(), len(body), body)


async def test_an_answer_that_repeats_the_last_one_or_does_not_is_understood(sender: RawSender) -> None:
    first, other = _said(b"taken", "a"), _said(b"never", "b")
    sequence = (first, first, other, first, first)
    async with serving(answering(*sequence)) as receiver:
        given = [await sender.send(outgoing(receiver.url())) for _ in sequence]
    assert receiver.connections == 1
    notes = [(one.headers["x-note"], one.excerpt) for one in given]
    assert notes == [("a", b"taken"), ("a", b"taken"), ("b", b"never"), ("a", b"taken"), ("a", b"taken")]


async def test_a_repeated_answer_is_held_to_the_limit_of_its_own_request(sender: RawSender) -> None:
    async with serving(answering(_said(b"x" * 100, "a"))) as receiver:
        whole = await sender.send(outgoing(receiver.url()))
        cut = await sender.send(outgoing(receiver.url(), response_bytes_max=10))
    assert (len(whole.excerpt), len(cut.excerpt)) == (100, 10)


async def test_more_than_the_repeated_answer_is_not_taken_for_it(sender: RawSender) -> None:
    said = _said(b"ok", "a")
    async with serving(answering(said, said + said, said)) as receiver:
        for _ in range(3):
            assert (await sender.send(outgoing(receiver.url()))).excerpt == b"ok"
    assert receiver.connections == 2
