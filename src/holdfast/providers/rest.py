"""One call to somebody's HTTP API: a time limit, a token, repeats where repeating is safe, a named failure.

A provider is a folder with its types, a `fault_of` that reads its API's failures, and a client whose methods
each build one `Call`. What a failure means for the caller is said by the error's class alone:

- RetryLaterError(after_s)   it had no effect: the same call may be made again
- OutcomeUnknownError        it may have had its effect: read before you repeat
- ReauthRequiredError        a fresh token was refused too: the owner must connect again
- ForbiddenError, NotFoundError, GoneError, InvalidError, AlreadyExistsError, VersionConflictError
                             the API has decided; the same call will be refused again

A DELETE or PUT whose link breaks may be sent a second time by the connection itself, as HTTP allows for them.

Messages name the act and the API's own reason. They never hold a URL, a header or a body, because
tokens travel in all three.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
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
from holdfast.net import retry_after_s

T = TypeVar("T")

_READING: Final = frozenset({"GET", "HEAD"})
_REASON_CHARS_MAX: Final = 300
# Who asks for more has made a slip, and what waits for it would never be looked at again.
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


class TokenSource(Protocol):
    """Where a client gets the token for its next call."""

    async def __call__(self, *, rejected: str = "") -> str:
        """A token to call with, other than `rejected`, which the API has just refused."""
        ...


class CallLimits(msgspec.Struct, frozen=True):
    """How long a call may take, how often and how patiently it is repeated, how much it may answer."""

    call_s: float = 30.0
    attempts_max: int = 4
    wait_s: float = 0.5
    wait_s_max: float = 8.0
    answer_bytes_max: int = 16 * 1024 * 1024


class Call(msgspec.Struct, frozen=True):
    """One request. `act` names it in errors; `query` and `path` come from `query_of` and `path_of`.

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

    @property
    def harmless(self) -> bool:
        """Whether making it twice is the same as making it once."""
        return self.repeatable or self.method in _READING


class RestResponse(msgspec.Struct, frozen=True):
    """What came back; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


FaultOf = Callable[[str, RestResponse], HoldfastError]


def path_of(*segments: str) -> str:
    """The segments as one path; each stays one segment whatever is in it.

    Example: `path_of("values", "User Mappings!A2:C")` gives `values/User%20Mappings%21A2:C`
    """
    if not all(segments) or {".", ".."} & set(segments):
        raise InvalidError("an id is empty or a dot, which would name another resource")
    return "/".join(quote(segment, safe=":@") for segment in segments)


def query_of(options: msgspec.Struct) -> tuple[tuple[str, str], ...]:
    """The options that are set, as query parameters; a tuple repeats its parameter."""
    pairs: list[tuple[str, str]] = []
    for name, value in msgspec.to_builtins(options).items():
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs.extend((name, _text(one)) for one in values)
    return tuple(pairs)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def fault_by_status(act: str, answer: RestResponse, reason: str = "") -> HoldfastError:
    """What an answer's status alone tells the caller to do."""
    status = answer.status
    message = f"{act} was answered {status}" + (f": {reason[:_REASON_CHARS_MAX]}" if reason else "")
    if status == 429 or status >= 500:
        return RetryLaterError(message, after_s=0.0)
    if status < 400:
        return ConfigError(f"{message}; this is not the API, check the base URL")
    return _BY_STATUS.get(status, InvalidError)(message)


class RestClient:
    """Makes calls to one API, as one caller.

    Example:
        rest = Rest(session, "https://api.example.com/v1/", fault_of=fault_by_status, clock=clock)
        thing = await rest.fetch(Call("things.get", "GET", path_of("things", "7")), Thing)
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base_url: str,
        *,
        fault_of: FaultOf,
        clock: Clock,
        tokens: TokenSource | None = None,
        limits: CallLimits = CallLimits(),
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._session = session
        self._url = base_url.rstrip("/")
        self._fault_of = fault_of
        self._clock = clock
        self._tokens = tokens
        self._limits = limits
        self._roll = roll

    async def fetch(self, call: Call, kind: type[T]) -> T:
        """The answer's body as a `kind`."""
        answer = await self.call(call)
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _unclear(call, f"gave an answer that is no {kind.__name__} ({error})") from None

    async def call(self, call: Call) -> RestResponse:
        """The answer with a status of 2xx; anything else is raised as what to do next."""
        # Tokens are asked for outside the repeats: their source has a patience of its own.
        token = await self._tokens() if self._tokens else ""
        answer = await self._patiently(call, token)
        if answer.status == 401 and self._tokens:
            answer = await self._patiently(call, await self._tokens(rejected=token))
        if not answer.ok:
            raise self._fault(call, answer)
        return answer

    async def _patiently(self, call: Call, token: str) -> RestResponse:
        """The answer, good or a refusal of the token, after as many tries as the limits allow."""
        for attempt in itertools.count(1):
            try:
                return await self._tried(call, token)
            except OutcomeUnknownError:
                raise
            except RetryLaterError as later:
                later.after_s = max(later.after_s, self._wait_s(attempt))
                if attempt >= self._limits.attempts_max or later.after_s > self._limits.wait_s_max:
                    raise
                await self._clock.sleep(later.after_s)
        raise AssertionError("the loop above only ends by returning or raising")

    def _wait_s(self, attempt: int) -> float:
        # Spread over half to all of the wait, so that callers refused together don't come back together.
        back_off = BackOff(first_s=self._limits.wait_s, wait_s_max=self._limits.wait_s_max, jitter=0.5)
        return back_off.wait_s(attempt, self._roll())

    async def _tried(self, call: Call, token: str) -> RestResponse:
        answer = await self._once(call, token)
        if answer.ok or answer.status == 401:
            return answer
        raise self._fault(call, answer)

    def _fault(self, call: Call, answer: RestResponse) -> HoldfastError:
        fault = self._fault_of(call.act, answer)
        if isinstance(fault, RetryLaterError):
            asked_s = retry_after_s(answer.headers.get("retry-after"), self._clock.now())
            asked_s = min(asked_s, RETRY_AFTER_S_MAX)
            if answer.status >= 500 and not call.harmless:
                return OutcomeUnknownError(fault.message, after_s=max(1.0, asked_s))
            fault.after_s = max(fault.after_s, asked_s)
        return fault

    async def _once(self, call: Call, token: str) -> RestResponse:
        async with _named_failures(call), self._request(call, token) as response:
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > self._limits.answer_bytes_max:
                    raise TooLargeError(
                        f"{call.act} answered more than {self._limits.answer_bytes_max} bytes"
                    )
            headers = {name.lower(): value for name, value in response.headers.items()}
            return RestResponse(response.status, headers, bytes(body))

    def _request(self, call: Call, token: str) -> Any:
        headers = dict(call.headers)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        query = f"?{urlencode(call.query, quote_via=quote)}" if call.query else ""
        path = f"/{call.path}" if call.path else ""
        return self._session.request(
            call.method,
            URL(f"{self._url}{path}{query}", encoded=True),
            data=call.body,
            headers=headers,
            # A redirect would carry the token to whoever the answer names.
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=self._limits.call_s),
        )


@asynccontextmanager
async def _named_failures(call: Call) -> AsyncIterator[None]:
    # The client's own errors are left out of the chain: they show the URL.
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise RetryLaterError(f"{call.act} found nobody there ({error.strerror})", after_s=0.0) from None
    except (aiohttp.ClientError, OSError) as error:
        raise _unclear(call, f"got no answer ({type(error).__name__})") from None


def _unclear(call: Call, what: str) -> RetryLaterError:
    message = f"{call.act} {what}"
    return RetryLaterError(message, after_s=0.0) if call.harmless else OutcomeUnknownError(message)
