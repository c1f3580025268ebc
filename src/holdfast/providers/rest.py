"""Calls of HTTP APIs: time limits, credentials, retries where they are safe, errors named by what to do next.

A provider is a folder with its types, a `fault_of` that reads its API's failures, and a client whose methods
each build one `Call`. The error's class alone says what a failure means for the caller:

- RetryLaterError(after_s)   it had no effect: the same call may be made again
- OutcomeUnknownError        it may have had its effect: read before you repeat
- ReauthRequiredError        a fresh token was refused too: the owner must connect again
- ForbiddenError, NotFoundError, GoneError, InvalidError, AlreadyExistsError, VersionConflictError
                             the API has decided; the same call will be refused again

A DELETE or PUT whose connection breaks may be sent twice by the HTTP client, as HTTP allows for them.

Messages name the call and the API's own reason. They never hold a URL, a header or a body, because
all three carry tokens.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from yarl import URL

from holdfast.backoff import BackOff
from holdfast.clock import Clock
from holdfast.errors import (
    AlreadyExistsError,
    ConfigError,
    ForbiddenError,
    GoneError,
    HoldfastError,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
    TooLargeError,
    VersionConflictError,
)
from holdfast.net import HttpSession, retry_after_s
from holdfast.providers.credentials import BEARER, TokenPlacement, TokenSource

T = TypeVar("T")

_READING: Final = frozenset({"GET", "HEAD"})
_REASON_CHARS_MAX: Final = 300
# A longer wait is the API's mistake, and what waits for it would never be tried again.
RETRY_AFTER_S_MAX: Final = 86_400.0
_BY_STATUS: Final[Mapping[int, type[HoldfastError]]] = {
    401: ReauthRequiredError,
    403: ForbiddenError,
    404: NotFoundError,
    409: AlreadyExistsError,
    410: GoneError,
    412: VersionConflictError,
    413: TooLargeError,
}


class CallLimits(msgspec.Struct, frozen=True):
    """Limits of a call's time, its attempts and the waits between them, and the response's size."""

    call_s: float = 30.0
    attempts_max: int = 4
    wait_s: float = 0.5
    wait_s_max: float = 8.0
    response_bytes_max: int = 16 * 1024 * 1024


class Call(msgspec.Struct, frozen=True):
    """One request. `act` names it in errors; `query` and `path` come from `query_of` and `path_of`.

    `expected` are statuses beside 2xx that the caller reads itself, such as 302 with its `location`.

    Example: `Call("events.get", "GET", path_of("calendars", "a@b.jp", "events", "e1"))`
    """

    act: str
    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    content_type: str = "application/json"
    repeatable: bool = False
    expected: tuple[int, ...] = ()

    @property
    def idempotent(self) -> bool:
        return self.repeatable or self.method in _READING


class RestResponse(msgspec.Struct, frozen=True):
    """An API's response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def answers(self, call: Call) -> bool:
        """Whether its status is one that the call's caller reads."""
        return 200 <= self.status < 300 or self.status in call.expected


FaultOf = Callable[[str, RestResponse], HoldfastError]


def path_of(*segments: str) -> str:
    """Join the segments to a path; each stays one segment whatever is in it.

    Example: `path_of("values", "User Mappings!A2:C")` gives `values/User%20Mappings%21A2:C`
    """
    if not all(segments) or {".", ".."} & set(segments):
        raise InvalidError("an id is empty or a dot, which would name another resource")
    return "/".join(quote(segment, safe=":@") for segment in segments)


def query_of(options: msgspec.Struct) -> tuple[tuple[str, str], ...]:
    """Return the options that are set as query parameters; a tuple repeats its parameter."""
    pairs: list[tuple[str, str]] = []
    for name, value in msgspec.to_builtins(options).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs.extend((name, _text(one)) for one in values)
    return tuple(pairs)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def form_call(act: str, form: Mapping[str, str], *, path: str = "", **options: Any) -> Call:
    """Return a call that posts a form; `options` are those of `Call`."""
    return Call(
        act, "POST", path, body=urlencode(form).encode(), content_type="application/x-www-form-urlencoded",
        **options,
    )  # fmt: skip


def fault_by_status(act: str, response: RestResponse, reason: str = "") -> HoldfastError:
    """Return the error that a response's status alone stands for."""
    status = response.status
    message = f"{act} was answered {status}" + (f": {reason[:_REASON_CHARS_MAX]}" if reason else "")
    if status == 429 or status >= 500:
        return RetryLaterError(message, after_s=0.0)
    if status < 400:
        return ConfigError(f"{message}; this is not the API, check the base URL")
    return _BY_STATUS.get(status, InvalidError)(message)


def decode_body(call: Call, body: bytes, kind: type[T]) -> T:
    """Return the body of a response to this call as a `kind`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        name = getattr(kind, "__name__", kind)
        raise _unclear(call, f"gave a response that is no {name} ({error})") from None


class RestClient:
    """Calls one API as one caller.

    Example:
        rest = RestClient(session, "https://api.example.com/v1/", fault_of=fault_by_status, clock=clock)
        thing = await rest.fetch(Call("things.get", "GET", path_of("things", "7")), Thing)
    """

    def __init__(
        self,
        session: HttpSession,
        base_url: str,
        *,
        fault_of: FaultOf,
        clock: Clock,
        tokens: TokenSource | None = None,
        placement: TokenPlacement = BEARER,
        limits: CallLimits = CallLimits(),
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._session, self._url, self._fault_of = session, base_url.rstrip("/"), fault_of
        self._clock, self._limits, self._roll = clock, limits, roll
        self._tokens, self._placement = tokens, placement

    async def fetch(self, call: Call, kind: type[T]) -> T:
        """Return the response's body as a `kind`."""
        return decode_body(call, (await self.call(call)).body, kind)

    async def call(self, call: Call) -> RestResponse:
        """Return a response with a status of 2xx, or one that the call expects; raise anything else."""
        # Tokens are requested outside the retries: their source has its own.
        token = await self._tokens() if self._tokens else ""
        response = await self._with_retries(call, token)
        if response.status == 401 and self._tokens:
            renewed = await self._tokens(rejected=token)
            if renewed != token:
                response = await self._with_retries(call, renewed)
        if not response.answers(call):
            raise self._fault(call, response)
        return response

    async def _with_retries(self, call: Call, token: str) -> RestResponse:
        """Return the response, a success or a refused token, after as many attempts as the limits allow."""
        for attempt in itertools.count(1):
            try:
                return await self._attempt(call, token)
            except OutcomeUnknownError:
                raise
            except RetryLaterError as later:
                later.after_s = max(later.after_s, self._wait_s(attempt))
                if attempt >= self._limits.attempts_max or later.after_s > self._limits.wait_s_max:
                    raise
                await self._clock.sleep(later.after_s)
        raise AssertionError("the loop above only ends by returning or raising")

    def _wait_s(self, attempt: int) -> float:
        back_off = BackOff(first_s=self._limits.wait_s, wait_s_max=self._limits.wait_s_max, jitter=0.5)
        return back_off.wait_s(attempt, self._roll())

    async def _attempt(self, call: Call, token: str) -> RestResponse:
        response = await self._exchange(call, token)
        if response.answers(call) or response.status == 401:
            return response
        raise self._fault(call, response)

    def _fault(self, call: Call, response: RestResponse) -> HoldfastError:
        fault = self._fault_of(call.act, response)
        if isinstance(fault, RetryLaterError):
            asked_s = retry_after_s(response.headers.get("retry-after"), self._clock.now())
            asked_s = min(asked_s, RETRY_AFTER_S_MAX)
            if response.status >= 500 and not call.idempotent:
                return OutcomeUnknownError(fault.message, after_s=max(1.0, asked_s))
            fault.after_s = max(fault.after_s, asked_s)
        return fault

    async def _exchange(self, call: Call, token: str) -> RestResponse:
        async with _translated_failures(call), self._request(call, token) as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > self._limits.response_bytes_max:
                    raise TooLargeError(
                        f"{call.act} answered more than {self._limits.response_bytes_max} bytes"
                    )
            headers = {name.lower(): value for name, value in response.headers.items()}
            return RestResponse(response.status, headers, bytes(body))

    def _request(self, call: Call, token: str) -> Any:
        from aiohttp import ClientTimeout

        headers, path = dict(call.headers), call.path
        if token:
            headers |= self._placement.headers(token)
            path = self._placement.path(token, path)
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        return self._session.request(
            call.method,
            URL(f"{self._url}{'/' if path else ''}{path}{query}", encoded=True),
            data=call.body,
            headers=headers,
            # A redirect would carry the token to whatever host the response names.
            allow_redirects=False,
            timeout=ClientTimeout(total=self._limits.call_s),
        )


@asynccontextmanager
async def _translated_failures(call: Call) -> AsyncIterator[None]:
    from aiohttp import ClientConnectorError, ClientError

    # The HTTP client's errors are left out of the chain: they show the URL.
    try:
        yield
    except ClientConnectorError as error:
        raise RetryLaterError(f"{call.act} could not connect ({error.strerror})", after_s=0.0) from None
    except (ClientError, OSError) as error:
        raise _unclear(call, f"got no response ({type(error).__name__})") from None


def _unclear(call: Call, what: str) -> RetryLaterError:
    message = f"{call.act} {what}"
    return RetryLaterError(message, after_s=0.0) if call.idempotent else OutcomeUnknownError(message)
