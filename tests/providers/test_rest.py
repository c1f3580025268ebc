"""One call: what is repeated and what never is, how long it waits, and what its errors give away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
    TooLargeError,
)
from holdfast.net import LazySession
from holdfast.providers.credentials import BEARER, TOKEN, FixedToken, TokenPlacement, in_header, in_path
from holdfast.providers.rest import (
    Call,
    CallLimits,
    RestClient,
    fault_by_status,
    form_call,
    path_of,
    query_of,
)
from tests.kit.receiver import Serving, Talk, answering, answering_once, never_answering, serving
from tests.providers.provider_fixture import HastyClock

READ = Call("things.get", "GET", "things/7")
WRITE = Call("things.patch", "PATCH", "things/7", body=b"{}")
BROKEN_OFF = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"


class Thing(msgspec.Struct):
    name: str


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


def _rest(session: aiohttp.ClientSession, api: Serving, clock: HastyClock, **more: Any) -> RestClient:
    url = f"http://127.0.0.1:{api.port}/v1"
    return RestClient(session, url, fault_of=fault_by_status, clock=clock, roll=lambda: 1.0, **more)


def _answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


GOOD = _answer(200, b'{"name": "seven"}')


def _in_turn(*talks: Talk) -> Talk:
    """One connection each, the last one for all that follow."""
    left = list(talks)

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(state, reader, writer)

    return talk


async def test_reading_is_repeated_with_growing_waits_until_it_works(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(503), _answer(429), _answer(500), GOOD)) as api:
        thing = await _rest(session, api, hasty).fetch(READ, Thing)
    assert (thing, hasty.slept) == (Thing("seven"), [0.5, 1.0, 2.0])


async def test_waits_are_spread_between_half_and_all(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(503), GOOD)) as api:
        url = f"http://127.0.0.1:{api.port}"
        rest = RestClient(session, url, fault_of=fault_by_status, clock=hasty, roll=lambda: 0.0)
        await rest.call(READ)
    assert hasty.slept == [0.25]


async def test_a_short_retry_after_is_waited_out(session: aiohttp.ClientSession, hasty: HastyClock) -> None:
    async with serving(answering(_answer(429, retry_after="6"), GOOD)) as api:
        await _rest(session, api, hasty).call(READ)
    assert hasty.slept == [6.0]


async def test_a_retry_after_may_be_a_date(session: aiohttp.ClientSession, hasty: HastyClock) -> None:
    later = "Thu, 01 Jan 2026 00:00:04 GMT"
    async with serving(answering(_answer(503, retry_after=later), GOOD)) as api:
        await _rest(session, api, hasty).call(READ)
    assert hasty.slept == [4.0]


@pytest.mark.parametrize(
    "asked", ["soon", "-3", "Thu, 01 Jan 2015 00:00:00 GMT", "Fri, 31 Dec 9999999999 23:59:59 GMT"]
)
async def test_a_retry_after_that_makes_no_sense_is_no_wait(
    session: aiohttp.ClientSession, hasty: HastyClock, asked: str
) -> None:
    async with serving(answering(_answer(503, retry_after=asked), GOOD)) as api:
        await _rest(session, api, hasty).call(READ)
    assert hasty.slept == [0.5]


async def test_a_long_retry_after_is_the_callers_to_wait_for(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(429, retry_after="120"))) as api:
        with pytest.raises(RetryLaterError) as raised:
            await _rest(session, api, hasty).call(READ)
    assert (raised.value.after_s, hasty.slept, len(api.requests)) == (120.0, [], 1)


async def test_a_write_that_was_refused_for_its_rate_is_repeated(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(429), GOOD)) as api:
        await _rest(session, api, hasty).call(WRITE)
    assert len(api.requests) == 2


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(answering(_answer(503, retry_after="9"), GOOD), id="the server failed"),
        pytest.param(_in_turn(answering_once(b"", reset=True), answering(GOOD)), id="the link was cut"),
        pytest.param(_in_turn(answering_once(BROKEN_OFF), answering(GOOD)), id="the answer broke off"),
        pytest.param(_in_turn(never_answering, answering(GOOD)), id="no answer in time"),
    ],
)
async def test_a_write_that_may_have_happened_is_never_repeated(
    session: aiohttp.ClientSession, hasty: HastyClock, talk: Talk
) -> None:
    limits = CallLimits(call_s=0.2, wait_s_max=10.0)
    async with serving(talk) as api:
        with pytest.raises(OutcomeUnknownError):
            await _rest(session, api, hasty, limits=limits).call(WRITE)
        assert (len(api.requests), hasty.slept) == (1, [])


@pytest.mark.parametrize(
    "talk",
    [
        pytest.param(_in_turn(answering_once(b"", reset=True), answering(GOOD)), id="the link was cut"),
        pytest.param(_in_turn(never_answering, answering(GOOD)), id="no answer in time"),
    ],
)
async def test_reading_goes_on_after_a_lost_answer(
    session: aiohttp.ClientSession, hasty: HastyClock, talk: Talk
) -> None:
    async with serving(talk) as api:
        await _rest(session, api, hasty, limits=CallLimits(call_s=0.2)).call(READ)
    assert len(api.requests) == 2


async def test_a_write_that_reached_nobody_is_repeated(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(GOOD)) as api:
        pass
    with pytest.raises(RetryLaterError, match="could not connect") as raised:
        await _rest(session, api, hasty, limits=CallLimits(attempts_max=3)).call(WRITE)
    assert not isinstance(raised.value, OutcomeUnknownError)
    assert len(hasty.slept) == 2


async def test_an_answer_that_cannot_be_read_is_told_from_a_refusal(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(200, b"<html>Sign in to the hotel's network</html>"))) as api:
        with pytest.raises(RetryLaterError, match=r"things\.get gave a response that is no Thing"):
            await _rest(session, api, hasty).fetch(READ, Thing)
        with pytest.raises(OutcomeUnknownError):
            await _rest(session, api, hasty).fetch(WRITE, Thing)


async def test_an_endless_answer_is_cut_off(session: aiohttp.ClientSession, hasty: HastyClock) -> None:
    async with serving(answering(_answer(200, b"x" * 5_000))) as api:
        with pytest.raises(TooLargeError):
            await _rest(session, api, hasty, limits=CallLimits(response_bytes_max=4_000)).call(READ)


async def test_a_redirect_is_not_followed_for_the_token_would_go_along(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with (
        serving(answering(GOOD)) as elsewhere,
        serving(answering(_answer(302, location=elsewhere.url()))) as api,
    ):
        with pytest.raises(ConfigError, match="check the base URL"):
            await _rest(session, api, hasty).call(READ)
    assert elsewhere.requests == []


async def test_a_redirect_that_is_expected_is_the_callers_to_read(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    sign_in = form_call("login", {"acct": "ann", "pw": "a b&c"}, path="login", expected=(302,))
    async with serving(answering(_answer(302, location="news", set_cookie="user=ann"))) as api:
        response = await _rest(session, api, hasty).call(sign_in)
    assert (response.status, response.headers["location"]) == (302, "news")
    (request,) = api.requests
    assert request.body == b"acct=ann&pw=a+b%26c"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("placement", "path", "header"),
    [
        pytest.param(BEARER, "/v1/things/7", ("Authorization", "Bearer 12:ab"), id="bearer"),
        pytest.param(TOKEN, "/v1/things/7", ("Authorization", "token 12:ab"), id="token"),
        pytest.param(in_header("X-API-Key"), "/v1/things/7", ("X-API-Key", "12:ab"), id="API key"),
        pytest.param(in_path("bot"), "/v1/bot12:ab/things/7", ("Authorization", None), id="path"),
    ],
)
async def test_a_token_goes_where_the_api_wants_it(
    session: aiohttp.ClientSession,
    hasty: HastyClock,
    placement: TokenPlacement,
    path: str,
    header: tuple[str, str | None],
) -> None:
    async with serving(answering(GOOD)) as api:
        await _rest(session, api, hasty, tokens=FixedToken("12:ab"), placement=placement).call(READ)
    (request,) = api.requests
    assert (request.line, request.headers.get(header[0])) == (f"GET {path} HTTP/1.1", header[1])


async def test_a_fixed_token_that_is_refused_is_not_sent_again(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(401))) as api:
        with pytest.raises(ReauthRequiredError):
            await _rest(session, api, hasty, tokens=FixedToken("12:ab")).call(READ)
    assert len(api.requests) == 1


async def test_the_session_of_a_process_keeps_no_cookies_and_opens_on_first_use(hasty: HastyClock) -> None:
    session = LazySession()
    async with serving(answering(_answer(200, b"{}", set_cookie="user=ann"))) as api:
        url = f"http://127.0.0.1:{api.port}"
        rest = RestClient(session, url, fault_of=fault_by_status, clock=hasty)
        for _ in range(2):
            await rest.call(READ)
        await session.close()
        await rest.call(READ)
    await session.close()
    assert [request.headers.get("Cookie") for request in api.requests] == [None] * 3


class Purse:
    """A token source that keeps what it was told of rejected tokens."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self.rejected: list[str] = []

    async def __call__(self, *, rejected: str = "") -> str:
        if rejected:
            self.rejected.append(rejected)
        return self._tokens[min(len(self.rejected), len(self._tokens) - 1)]


async def test_a_refused_token_is_renewed_once_and_the_call_made_again(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    purse = Purse("old", "new")
    async with serving(answering(_answer(401), GOOD)) as api:
        await _rest(session, api, hasty, tokens=purse).call(WRITE)
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer old", "Bearer new"]
    assert purse.rejected == ["old"]


async def test_when_the_new_token_is_refused_too_the_owner_must_connect_again(
    session: aiohttp.ClientSession, hasty: HastyClock
) -> None:
    async with serving(answering(_answer(401))) as api:
        with pytest.raises(ReauthRequiredError):
            await _rest(session, api, hasty, tokens=Purse("old", "new")).call(READ)
    assert (len(api.requests), hasty.slept) == (2, [])


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 410, 412, 418, 429, 503])
async def test_no_error_shows_a_token_a_url_or_a_body(
    session: aiohttp.ClientSession, hasty: HastyClock, status: int
) -> None:
    call = Call("things.patch", "PATCH", "bot-s3cret/x", query=(("key", "s3cret"),), body=b"s3cret")
    async with serving(answering(_answer(status, b"s3cret"))) as api:
        with pytest.raises(HoldfastError) as raised:
            await _rest(session, api, hasty, tokens=Purse("s3cret")).call(call)
    assert "s3cret" not in _everything_told(raised.value)


async def test_a_lost_link_shows_no_secret_either(session: aiohttp.ClientSession, hasty: HastyClock) -> None:
    call = Call("things.patch", "PATCH", "bot-s3cret/x", query=(("key", "s3cret"),), body=b"s3cret")
    async with serving(answering_once(b"", reset=True)) as api:
        with pytest.raises(OutcomeUnknownError) as raised:
            await _rest(session, api, hasty, tokens=Purse("s3cret")).call(call)
    assert "s3cret" not in _everything_told(raised.value)


def _everything_told(error: BaseException) -> str:
    """What a traceback would print of it."""
    told = [f"{error!r} {error}"]
    if error.__cause__ is not None:
        told.append(_everything_told(error.__cause__))
    if error.__context__ is not None and not error.__suppress_context__:
        told.append(_everything_told(error.__context__))
    return " ".join(told)


def test_an_id_stays_one_segment_of_the_path() -> None:
    assert path_of("values", "User Mappings!A2:C") == "values/User%20Mappings%21A2:C"
    assert path_of("calendars", "a/../b?x#y@z.jp") == "calendars/a%2F..%2Fb%3Fx%23y@z.jp"


@pytest.mark.parametrize("segment", ["", ".", ".."])
def test_an_id_that_would_name_another_resource_is_refused(segment: str) -> None:
    with pytest.raises(InvalidError):
        path_of("calendars", segment, "events")


def test_a_query_has_what_is_set_and_repeats_what_is_many() -> None:
    class Options(msgspec.Struct, rename="camel", omit_defaults=True):
        show_all: bool = False
        ranges: tuple[str, ...] = ()
        page_token: str = ""

    assert query_of(Options(show_all=True, ranges=("A1", "B2"))) == (
        ("showAll", "true"),
        ("ranges", "A1"),
        ("ranges", "B2"),
    )
