"""How much may be asked, how slowly and for how long; and from where a request is taken to come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar import get

from holdfast.config import RequestLimits
from holdfast.http.rate_limit import Addresses, Buckets
from holdfast.http.slow_clients import HEAD_BYTES_MAX
from holdfast.testing import ManualClock
from tests.http.processes import announce, holdfast_process
from tests.http.server_harness import SECRET, ServerHarness, echo_service, serving

# So slow to fill again that a busy machine makes no difference.
STINGY = {"caller_per_s": 0.01, "caller_burst": 3, "address_per_s": 0.01, "address_burst": 2}


def _is_fault(body: Any, headers: Mapping[str, str], code: str) -> None:
    assert set(body["error"]) == {"code", "message", "details", "requestId"}
    assert (body["error"]["code"], body["error"]["requestId"]) == (code, headers["x-request-id"])


async def test_a_caller_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=STINGY) as harness:
        token, other = await harness.token("viewer"), await harness.token("viewer")
        answers = [await harness.ask("GET", "/api/v1/usage", token=token) for _ in range(4)]
        assert [status for status, _, _ in answers] == [200, 200, 200, 429]
        _is_fault(*answers[-1][1:], "too_many_requests")
        assert 50 < int(answers[-1][2]["retry-after"]) <= 100
        assert (await harness.ask("GET", "/api/v1/usage", token=other))[0] == 200


async def test_asking_what_a_path_takes_counts_like_any_other_question(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=STINGY) as harness:
        answers = [await harness.ask("OPTIONS", "/api/v1/usage") for _ in range(3)]
        assert [status for status, _, _ in answers] == [204, 204, 429]


async def test_strangers_are_limited_by_their_address_and_known_callers_are_not(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=STINGY) as harness:
        asked = [("/api/v1/usage", None), ("/api/v1/usage", "hf_wrong"), ("/api/v1/usage", "hf_wrong")]
        statuses = [(await harness.ask("GET", path, token=token))[0] for path, token in asked]
        assert statuses == [401, 401, 429]
        assert (await harness.ask("GET", "/api/v1/usage"))[0] == 429
        assert (await harness.ask("GET", "/api/v1/usage", token=await harness.token("viewer")))[0] == 200


async def test_health_and_webhooks_are_always_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, limits=STINGY) as harness:
        for number in range(10):
            assert (await harness.ask("GET", "/health"))[0] == 200
            assert (await harness.ask("GET", "/health/ready"))[0] == 200
            assert await harness.send(f"m{number}") == 202


async def test_a_trusted_proxy_tells_whom_it_asks_for_and_nobody_else_does(tmp_path: Path) -> None:
    async with serving(tmp_path / "behind", limits=STINGY, proxies="127.0.0.1") as harness:
        assert await _fourth_of_different_addresses(harness) == 401
    async with serving(tmp_path / "open", limits=STINGY) as harness:
        assert await _fourth_of_different_addresses(harness) == 429


async def _fourth_of_different_addresses(harness: ServerHarness) -> int:
    status = 0
    for number in range(4):
        headers = {"x-forwarded-for": f"198.51.100.{number}"}
        status, _, _ = await harness.ask("GET", "/api/v1/usage", headers=headers)
    return status


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "made-up, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "198.51.100.1, made-up", "made-up"),
        ("::1", "198.51.100.1", "::/64"),
        ("::ffff:10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1:4711, 10.0.0.2:80", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8::7]:4711", "2001:db8::/64"),
        ("10.0.0.1", "[half", "[half"),
    ],
)
def test_the_first_hop_that_is_not_trusted_is_the_address(peer: str, forwarded: str, found: str) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    assert Addresses(["10.0.0.0/8"]).of({"client": (peer, 1), "headers": headers}) == found


def test_a_request_without_an_address_has_none() -> None:
    assert Addresses([]).of({"client": None, "headers": []}) == ""


@given(steps=st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(steps: list[int]) -> None:
    clock = _Ticking()
    buckets = Buckets(per_s=2.0, burst=5, clock=clock)
    given_out = 0
    for tenths in steps:
        clock.s += tenths / 10
        wait_s = buckets.take("k")
        given_out += wait_s == 0
        assert 0 <= wait_s <= 0.5
        assert given_out <= 5 + 2.0 * clock.s + 1e-6


class _Ticking(ManualClock):
    s = 0.0

    def monotonic(self) -> float:
        return self.s


def test_buckets_are_bounded_in_number() -> None:
    buckets = Buckets(per_s=0.001, burst=1, clock=ManualClock(), keys_max=3)
    assert [buckets.take(key) for key in "abc"] == [0, 0, 0]
    assert buckets.take("c") > 0
    assert buckets.take("d") == 0
    assert buckets.take("c") > 0
    assert buckets.take("a") == 0


@get("/never", opt={"needs": "public"})
async def never() -> None:
    await asyncio.Event().wait()


async def test_an_answer_that_takes_too_long_is_given_up_whole(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"request_s": 1.0}, more=lambda runtime: [never]) as harness:
        status, body, headers = await harness.ask("GET", "/never")
        assert (status, headers["retry-after"]) == (504, "1")
        _is_fault(body, headers, "timed_out")
        # The connection is as good as before.
        assert (await harness.ask("GET", "/health"))[0] == 200


@contextlib.contextmanager
def _nothing_can_be_written(home: Path) -> Iterator[None]:
    """Somebody else holds the store's file for writing."""
    with contextlib.closing(apsw.Connection(str(home / "holdfast.db"))) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_a_webhook_that_cant_be_kept_in_time_is_given_up_and_kept_once_when_it_comes_again(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, limits={"request_s": 0.5}) as harness:
        with _nothing_can_be_written(tmp_path):
            async with asyncio.timeout(60):
                status, body, headers = await harness.ask(
                    "POST", "/echo-chamber/webhook", headers={"x-word": SECRET, "x-name": "m1"}, data="hi"
                )
            assert (status, headers["retry-after"]) == (504, "1")
            _is_fault(body, headers, "timed_out")
            assert "send it again" in body["error"]["message"]
        assert await harness.send("m1") in (200, 202)
        assert await harness.send("m1") == 200
        waiting, _ = await harness.runtime.inbox.page("pending")
        assert [item.message_id for item in waiting] == ["m1"]
        _, told, _ = await harness.ask("GET", "/metrics", token=await harness.token("viewer"))
        counted = 'holdfast_http_requests_total{method="POST",route="/echo-chamber/webhook",status="504"} 1.0'
        assert counted in told


async def test_a_hook_may_have_a_time_limit_of_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, services=[echo_service(hook_s=0.3)]) as harness:
        with _nothing_can_be_written(tmp_path):
            async with asyncio.timeout(60):
                assert await harness.send("m1") == 504
        assert await harness.send("m1") in (200, 202)


async def test_a_route_may_take_longer_than_the_usual_time(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"request_s": 0.01}) as harness:
        token = await harness.token("admin")
        status, body, _ = await harness.ask("POST", "/work/drain", token=token, json={"seconds": 20})
        assert (status, body["idle"]) == (200, True)


async def test_slow_and_swollen_requests_are_dropped_by_a_real_server(tmp_path: Path) -> None:
    announce(tmp_path)
    limits = {"HOLDFAST_LIMITS": '{"read_s": 0.3}'}
    async with holdfast_process(tmp_path, "serve", "--port", "0", environ=limits) as (_, address):
        began = time.monotonic()
        heads = [b"", b"GET /health HTTP/1.1\r\nhost: a\r\nx: ", _STARTED + b"half"]
        silent, half_head, half_body = await asyncio.gather(*(_left_hanging(address, head) for head in heads))
        assert time.monotonic() - began < RequestLimits().read_s - 1
        for answer in (silent, half_head):
            assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b'{"error":{"code":"timed_out"' in answer
        assert half_body == b""
        swollen = await _left_hanging(address, b"GET / HTTP/1.1\r\nx: " + b"y" * (HEAD_BYTES_MAX + 1))
        assert swollen.startswith(b"HTTP/1.1 431 ")
        async with aiohttp.ClientSession(address) as client, client.get("/health") as answered:
            assert answered.status == 200


_STARTED = b"POST /echo-chamber/webhook HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"


async def _left_hanging(address: str, sent: bytes) -> bytes:
    """Whatever the server says to somebody who stops in the middle."""
    port = int(address.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionResetError:
        return b"HTTP/1.1 431 (reset before it could be read)" if len(sent) > HEAD_BYTES_MAX else b""
    finally:
        writer.close()
