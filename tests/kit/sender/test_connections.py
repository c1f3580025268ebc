"""The sender's connections: kept, bounded, shared fairly, and none lost through any fault."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter

import pytest

from holdfast.net import (
    ConnectionShares,
    OutgoingRequest,
    PoolLimits,
    RawSender,
    ReceiverResponse,
    SendFailure,
)
from tests.kit.receiver import OK, Serving, Talk, answering, answering_once, never_answering, serving
from tests.kit.sender.sender_fixture import failure_of, local, outgoing


async def test_requests_share_a_kept_connection(sender: RawSender) -> None:
    async with serving(answering(OK)) as receiver:
        for _ in range(20):
            await sender.send(outgoing(receiver.url()))
        assert (receiver.connections, len(receiver.requests)) == (1, 20)


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
        assert (await sender.send(outgoing(second.url(), timeout_s=30))).status == 200
        assert sender.stats().open_now <= 2
    await sender.close()


@pytest.mark.parametrize(
    "limits",
    [PoolLimits(per_host_max=5), PoolLimits(total_max=5)],
    ids=["to one host", "in all"],
)
async def test_receivers_in_doubt_leave_connections_to_the_others(limits: PoolLimits) -> None:
    sender, shares = local(limits), ConnectionShares(limits)

    async def send_in_doubt(url: str) -> ReceiverResponse:
        # What waits for a place and what hangs in one end within the same time.
        began = time.monotonic()
        async with shares.place(f"127.0.0.1:{receiver.port}", in_doubt=True, within_s=6.0):
            return await sender.send(outgoing(url, timeout_s=6.0 - (time.monotonic() - began)))

    async def hang_unless_known(
        state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while "/known" in (await state.read(reader)).line:
            writer.write(OK)
        await reader.read()

    async with serving(hang_unless_known) as receiver:
        stuck = [asyncio.create_task(send_in_doubt(receiver.url())) for _ in range(20)]
        await receiver.received(4)
        known = f"http://127.0.0.1:{receiver.port}/known"
        for _ in range(3):
            assert (await sender.send(outgoing(known, timeout_s=5.0))).status == 200
        assert len(receiver.requests) == 4 + 3
        ended = await asyncio.gather(*stuck, return_exceptions=True)
        assert [getattr(one, "reason", one) for one in ended] == ["timeout"] * 20
        assert (await send_in_doubt(known)).status == 200
    await sender.close()


async def test_what_waits_for_a_place_among_the_slow_ones_keeps_its_whole_time() -> None:
    limits = PoolLimits(per_host_max=5)
    sender, shares = local(limits), ConnectionShares(limits)

    async def send_slow(url: str, *, timeout_s: float, within_s: float) -> ReceiverResponse:
        async with shares.place("the host", in_doubt=False, within_s=within_s):
            return await sender.send(outgoing(url, timeout_s=timeout_s))

    async def slowly(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read(reader)
            await asyncio.sleep(0.5)
            writer.write(OK)

    async with serving(slowly) as receiver:
        # Ten rounds of four take longer than the time that one has.
        answers = await asyncio.gather(
            *(send_slow(receiver.url(), timeout_s=4.5, within_s=60.0) for _ in range(40))
        )
        assert [one.status for one in answers] == [200] * 40
        assert receiver.open_most == 4
        hurried = [send_slow(receiver.url(), timeout_s=0.3, within_s=0.3) for _ in range(12)]
        ended = await asyncio.gather(*hurried, return_exceptions=True)
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
        await asyncio.wait_for(receiver.ended.wait(), 30)
        assert sender.stats().open_now == 0
    await sender.close()


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
        request = OutgoingRequest("POST", url, (("webhook-id", name),), b"x", dice.uniform(0.05, 0.4), 65_536)
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
