"""The sender against receivers that behave, misbehave and attack, over real sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator

import msgspec
import pytest
import trustme

from holdfast.kit.outbox.guard import AddressGuard
from holdfast.kit.outbox.pool import PoolLimits
from holdfast.kit.outbox.port import Outgoing, SendFailure
from holdfast.kit.outbox.sender import RawSender
from tests.kit.receiver import OK, Serving, Talk, answering, answering_once, never_answering, serving

HEADERS = (("content-type", "application/json"), ("webhook-id", "evt-1"))


def outgoing(url: str, *, timeout_s: float = 5.0, response_bytes_max: int = 65_536) -> Outgoing:
    return Outgoing("POST", url, HEADERS, b'{"a":1}', timeout_s, response_bytes_max)


def local(limits: PoolLimits | None = None) -> RawSender:
    return RawSender(AddressGuard(allow=["127.0.0.1"]), limits=limits)


@pytest.fixture
async def sender() -> AsyncIterator[RawSender]:
    made = local()
    yield made
    await made.close()


async def failure_of(sender: RawSender, request: Outgoing) -> str:
    with pytest.raises(SendFailure) as caught:
        await sender.send(request)
    return caught.value.reason


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


async def test_requests_share_a_kept_connection(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        for _ in range(20):
            await sender.send(outgoing(receiver.url()))
        assert (receiver.connections, len(receiver.requests)) == (1, 20)


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


async def test_a_receiver_that_says_close_is_not_asked_again_on_that_connection(sender: RawSender) -> None:
    raw = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(raw)) as receiver:
        for _ in range(3):
            await sender.send(outgoing(receiver.url()))
        assert receiver.connections == 3


async def test_header_names_are_lower_case_and_repeated_ones_are_joined(sender: RawSender) -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-A: 1\r\nx-a: 2\r\nRetry-After: 5\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(raw)) as receiver:
        headers = (await sender.send(outgoing(receiver.url()))).headers
    assert (headers["x-a"], headers["retry-after"]) == ("1, 2", "5")


async def test_an_answer_to_head_has_no_body_to_wait_for(sender: RawSender) -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")) as receiver:
        head = msgspec.structs.replace(outgoing(receiver.url()), method="HEAD", body=b"")
        assert (await sender.send(head)).status == 200


# -- limits -----------------------------------------------------------------------------------------


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
        assert 0.19 <= time.monotonic() - started < 1.0
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
        assert 0.19 <= time.monotonic() - started < 1.0
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


async def test_connections_to_one_receiver_are_bounded() -> None:
    sender = local(PoolLimits(per_host_max=3))
    async with serving(answering(OK)) as receiver:
        answers = await asyncio.gather(*(sender.send(outgoing(receiver.url())) for _ in range(50)))
        assert len(answers) == 50
        assert (receiver.open_most, receiver.connections) == (3, 3)
    await sender.close()


async def test_connections_in_all_are_bounded_and_receivers_take_turns() -> None:
    sender = local(PoolLimits(per_host_max=4, total_max=4))
    async with serving(answering(OK)) as first, serving(answering(OK)) as second:
        busy = [sender.send(outgoing(first.url())) for _ in range(100)]
        late = [sender.send(outgoing(second.url())) for _ in range(100)]
        most = 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, sender.stats().open_now)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*busy, *late)
        watching.cancel()
        assert (len(first.requests), len(second.requests)) == (100, 100)
        assert most == 4
    await sender.close()


async def test_a_full_sender_makes_room_for_another_receiver_by_closing_what_rests() -> None:
    sender = local(PoolLimits(per_host_max=2, total_max=2))
    async with serving(answering(OK)) as first, serving(answering(OK)) as second:
        await asyncio.gather(*(sender.send(outgoing(first.url())) for _ in range(2)))
        assert (await sender.send(outgoing(second.url(), timeout_s=2))).status == 200
        assert sender.stats().open_now <= 2
    await sender.close()


@pytest.mark.parametrize(
    "limits",
    [PoolLimits(per_host_max=5), PoolLimits(total_max=5)],
    ids=["to one host", "in all"],
)
async def test_receivers_in_doubt_leave_connections_to_the_others(limits: PoolLimits) -> None:
    sender = local(limits)
    doubtful = msgspec.structs.replace(outgoing("", timeout_s=0.5), in_doubt=True)

    async def hang_unless_known(
        state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while "/known" in (await state.read(reader)).line:
            writer.write(OK)
        await reader.read()

    async with serving(hang_unless_known) as receiver:
        stuck = [
            asyncio.create_task(failure_of(sender, msgspec.structs.replace(doubtful, url=receiver.url())))
            for _ in range(20)
        ]
        await receiver.received(4)
        known = f"http://127.0.0.1:{receiver.port}/known"
        for _ in range(3):
            assert (await sender.send(outgoing(known, timeout_s=0.4))).status == 200
        assert len(receiver.requests) == 4 + 3
        assert await asyncio.gather(*stuck) == ["timeout"] * 20
        assert (await sender.send(msgspec.structs.replace(doubtful, url=known))).status == 200
    await sender.close()


async def test_what_waits_for_a_place_among_the_slow_ones_keeps_its_whole_time() -> None:
    sender = local(PoolLimits(per_host_max=5))

    async def slowly(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read(reader)
            await asyncio.sleep(0.2)
            writer.write(OK)

    async with serving(slowly) as receiver:
        slow = msgspec.structs.replace(outgoing(receiver.url(), timeout_s=1.0), slow=True, wait_s=30.0)
        # Ten rounds of four take twice the time that one has.
        answers = await asyncio.gather(*(sender.send(slow) for _ in range(40)))
        assert [one.status for one in answers] == [200] * 40
        assert receiver.open_most == 4
        hurried = msgspec.structs.replace(slow, timeout_s=0.3, wait_s=0.0)
        ended = await asyncio.gather(*(sender.send(hurried) for _ in range(12)), return_exceptions=True)
        assert sum(isinstance(one, SendFailure) for one in ended) >= 4
    await sender.close()


async def test_whoever_waits_for_a_connection_gets_a_timeout_and_leaves_no_gap() -> None:
    sender = local(PoolLimits(per_host_max=1))
    async with serving(never_answering) as receiver:
        busy = asyncio.create_task(sender.send(outgoing(receiver.url(), timeout_s=0.4)))
        assert await failure_of(sender, outgoing(receiver.url(), timeout_s=0.1)) == "timeout"
        with pytest.raises(SendFailure):
            await busy
    async with serving(answering(OK)) as receiver:
        assert (await sender.send(outgoing(receiver.url()))).status == 200
    await sender.close()


async def test_a_cancelled_send_gives_its_place_to_the_next() -> None:
    sender = local(PoolLimits(per_host_max=1))
    async with serving(never_answering) as receiver:
        given_up = asyncio.create_task(sender.send(outgoing(receiver.url())))
        waiting = [asyncio.create_task(sender.send(outgoing(receiver.url()))) for _ in range(2)]
        await receiver.received(1)
        waiting[0].cancel()
        given_up.cancel()
        await receiver.received(2)
        assert given_up.cancelled()
        await sender.close()
        assert [type(e) for e in await asyncio.gather(*waiting, return_exceptions=True)] == [
            asyncio.CancelledError, SendFailure
        ]  # fmt: skip


async def test_a_connection_that_rests_too_long_is_closed() -> None:
    sender = local(PoolLimits(idle_s=0.05))
    async with serving(answering(OK)) as receiver:
        await sender.send(outgoing(receiver.url(), timeout_s=0.1))
        await asyncio.wait_for(receiver.ended.wait(), 2)
        assert sender.stats().open_now == 0
    await sender.close()


# -- faults -----------------------------------------------------------------------------------------


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


async def test_a_connection_closed_while_resting_is_never_written_to(sender: RawSender) -> None:
    async with serving(answering_once(OK)) as receiver:
        for nth in range(5):
            assert (await sender.send(outgoing(receiver.url()))).status == 200
            await receiver.ended.wait()
            receiver.ended.clear()
            assert len(receiver.requests) == nth + 1


async def test_a_receiver_that_hangs_up_at_once_takes_no_connection_away_for_good() -> None:
    sender = local(PoolLimits(per_host_max=1))

    async def hang_up(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with serving(hang_up) as receiver:
        for _ in range(20):
            assert await failure_of(sender, outgoing(receiver.url(), timeout_s=2)) == "reset"
        assert receiver.connections == 20
    await sender.close()
    assert sender.stats().open_now == 0


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


def closes_on_second() -> Talk:
    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read(reader)
        writer.write(OK)
        await writer.drain()
        await reader.readexactly(1)

    return talk


async def test_a_connection_closed_under_the_request_is_a_reset_and_nothing_is_sent_again(
    sender: RawSender,
) -> None:
    async with serving(closes_on_second()) as receiver:
        await sender.send(outgoing(receiver.url()))
        assert await failure_of(sender, outgoing(receiver.url())) == "reset"
        assert (len(receiver.requests), receiver.connections) == (1, 1)


@pytest.mark.parametrize("stated", ["timeout=0", "timeout=1", "max=5, Timeout = 1"])
async def test_a_connection_that_the_receiver_is_about_to_close_is_not_used_again(
    sender: RawSender, stated: str
) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nkeep-alive: %b\r\n\r\n" % stated.encode()
    async with serving(answering(answer)) as receiver:
        for _ in range(3):
            assert (await sender.send(outgoing(receiver.url()))).status == 200
        assert receiver.connections == 3
    assert sender.stats().open_now == 0


async def test_a_stated_rest_that_is_long_enough_keeps_the_connection(sender: RawSender) -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nkeep-alive: timeout=5\r\n\r\n"
    async with serving(answering(answer)) as receiver:
        for _ in range(3):
            await sender.send(outgoing(receiver.url()))
        assert receiver.connections == 1


def chaos(dice: random.Random) -> Talk:
    """Echoes each message's id, or breaks off in one of many ways."""

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await state.read(reader)
            echo = request.headers["webhook-id"].encode()
            whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(echo), echo)
            fate = dice.random()
            if fate < 0.05:
                writer.transport.abort()
                return
            if fate < 0.1:
                writer.write(whole[: dice.randrange(len(whole))])
                return
            if fate < 0.15:
                await reader.read()
                return
            for part in (whole[:20], whole[20:]) if fate < 0.4 else (whole,):
                writer.write(part)
                await asyncio.sleep(0)
            if fate < 0.45:
                return

    return talk


async def test_through_all_faults_each_caller_gets_its_own_answer_or_a_failure_and_no_place_is_lost() -> None:
    dice = random.Random(7)
    sender = local(PoolLimits(per_host_max=8, total_max=12))
    ended: Counter[str] = Counter()

    async def call(url: str, n: int) -> None:
        name = f"evt-{n}"
        request = Outgoing("POST", url, (("webhook-id", name),), b"x", dice.uniform(0.05, 0.4), 65_536)
        task = asyncio.create_task(sender.send(request))
        if dice.random() < 0.05:
            asyncio.get_running_loop().call_later(dice.uniform(0, 0.05), task.cancel)
        try:
            assert (await task).excerpt == name.encode()
            ended["answer"] += 1
        except SendFailure as failure:
            ended[failure.reason] += 1
        except asyncio.CancelledError:
            ended["cancelled"] += 1

    async with serving(chaos(dice)) as first, serving(chaos(dice)) as second:
        urls = [first.url(), second.url()]
        for _ in range(10):
            await asyncio.gather(*(call(urls[n % 2], n) for n in range(100)))
        for url in urls:
            await call(url, 1)
    assert ended.total() == 1_002
    assert min(ended[word] for word in ("answer", "reset", "timeout", "cancelled")) > 0
    await sender.close()
    assert sender.stats().open_now == 0


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
        await asyncio.wait_for(receiver.ended.wait(), 5)
        assert (await sender.send(outgoing(receiver.url()))).excerpt == b"ok"
        assert receiver.connections == 2


# -- what can't be sent -----------------------------------------------------------------------------

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


async def test_a_name_that_does_not_resolve_in_time_is_a_timeout() -> None:
    async def never(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    sender = RawSender(AddressGuard(resolver=never))
    assert await failure_of(sender, outgoing("https://slow.example/", timeout_s=0.1)) == "timeout"
    await sender.close()


async def test_closing_fails_what_is_under_way_and_refuses_what_comes_after(sender: RawSender) -> None:
    async with serving(never_answering) as receiver:
        busy = asyncio.create_task(sender.send(outgoing(receiver.url())))
        await receiver.received(1)
        await sender.close()
        with pytest.raises(SendFailure, match="closed"):
            await busy
        assert await failure_of(sender, outgoing(receiver.url())) == "connect"
        assert sender.stats().open_now == 0


async def test_closing_while_a_connection_is_being_opened_leaves_none_behind(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        await sender.send(outgoing(receiver.url()))
        opening = [asyncio.create_task(sender.send(outgoing(receiver.url()))) for _ in range(5)]
        await asyncio.sleep(0)
        await sender.close()
        ended = await asyncio.gather(*opening, return_exceptions=True)
        assert {type(one) for one in ended} == {SendFailure}
        # One of them found the kept connection; nothing was sent on those that opened too late.
        assert (sender.stats().open_now, len(receiver.requests)) == (0, 2)


# -- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA | None) -> RawSender:
    async def pinned(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    return RawSender(AddressGuard(allow=["127.0.0.1"], resolver=pinned), tls=context)


async def test_a_certificate_is_judged_by_the_urls_name_although_the_address_is_pinned(
    authority: trustme.CA,
) -> None:
    sender = trusting(authority)
    async with serving(answering(OK), server_side(authority, "hooks.example")) as receiver:
        for _ in range(3):
            answer = await sender.send(outgoing(receiver.url("hooks.example", "https")))
            assert (answer.status, answer.excerpt) == (200, b"ok")
        assert receiver.connections == 1
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert await failure_of(sender, outgoing(receiver.url("other.example", "https"))) == "tls"
    await sender.close()


async def test_a_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    sender = trusting(None)
    async with serving(answering(OK), server_side(authority, "hooks.example")) as receiver:
        assert await failure_of(sender, outgoing(receiver.url("hooks.example", "https"))) == "tls"
        assert receiver.requests == []
    await sender.close()


async def test_a_receiver_that_speaks_no_tls_is_a_tls_failure() -> None:
    async def plain(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK)

    sender = trusting(None)
    async with serving(plain) as receiver:
        assert await failure_of(sender, outgoing(receiver.url("hooks.example", "https"))) == "tls"
    await sender.close()


async def test_a_tls_handshake_that_hangs_is_a_timeout() -> None:
    async def silent(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4_096):
            pass

    sender = trusting(None)
    async with serving(silent) as receiver:
        request = outgoing(receiver.url("hooks.example", "https"), timeout_s=0.2)
        assert await failure_of(sender, request) == "timeout"
    await sender.close()
