"""Idempotency as a property of a route: the first request with a key acts, the others get its answer.

    @action_route("/outcomes", Renewals.record_outcome, status=201, idempotent=ATOMIC)

    Idempotency-Key ─┬─ answered before ──► that answer, with Idempotency-Replayed: true
                     ├─ in progress ──────► 409 with Retry-After
                     ├─ another request ──► 422
                     └─ new, or its process died ──► handler ──► act, audit event and answer in one commit

Keys belong to one caller in one tenant. Requests without a key are served as if nothing were declared. An
answer that is an error is not stored: nothing was done, and the next request with the key tries again.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, Response
from litestar.datastructures import ResponseHeader
from litestar.di import NamedDependency
from litestar.params import HeaderParameter

from holdfast.errors import (
    ConflictError,
    DeclarationError,
    HoldfastError,
    InProgressError,
    KeyReusedError,
    LeaseLostError,
    OutcomeUnknownError,
    RetryLaterError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.idempotency import (
    Idempotency,
    IdempotencyDocument,
    IdempotencyFields,
    StoredResponse,
    Ticket,
)
from holdfast.operation import DeferredCommit, Operator

Handler = Callable[..., Awaitable[Any]]
HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
KEY_CHARACTERS_MAX: Final = 200
ATTEMPTS: Final = 100
ROUNDS: Final = 5
BACK_OFF_S: Final = 0.01
# How much longer than its time limit a request may hold its key before another takes over.
LEASE_MARGIN_S: Final = 15.0
_KEY: Final = "idempotency_key"
_Runtime: TypeAlias = NamedDependency[Any]
_ADDED: Final[Mapping[str, Any]] = {
    "request": Request[Any, Any, Any],
    "runtime": _Runtime,
    _KEY: Annotated[
        str | None,
        HeaderParameter(
            name=HEADER, min_length=1, max_length=KEY_CHARACTERS_MAX,
            description="Makes the request take effect once: a repetition gets the first one's answer.",
        ),
    ],
}  # fmt: skip
RESPONSE_HEADER: Final = ResponseHeader(
    name=REPLAYED, value="true", required=False, documentation_only=True,
    description=f"The answer of an earlier request with this {HEADER}.",
)  # fmt: skip


class Idempotent(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of an idempotent route, and the class of its records.

    The answer is stored in the act's own commit, so the operation makes exactly one `by.commit`, and what the
    handler reads after it does not show its changes yet. A `repeatable` operation may make several commits;
    the answer is stored after them, and it is run again if the process dies before that.
    """

    repeatable: bool = False
    kind: type[IdempotencyFields] = IdempotencyDocument


class _OutcomeInRecord(Exception):
    """Another request has the key now, or the commit may have landed: the record says which."""

    def __init__(self, fault: HoldfastError) -> None:
        super().__init__(fault.message)
        self.fault = fault


ATOMIC: Final = Idempotent()
REPEATABLE: Final = Idempotent(repeatable=True)


def idempotent_handler(
    handler: Handler, idempotent: Idempotent, *, declared: Mapping[str, Any], status: int
) -> Handler:
    """The handler of a route, with the header as a further parameter; `declared` is the route's `opt`."""
    signature = inspect.signature(handler)
    if "by" not in signature.parameters:
        raise DeclarationError(f"{handler.__qualname__} takes no `by: By`, so it can't be idempotent")

    @functools.wraps(handler)
    async def answer(**given: Any) -> Any:
        key, request, runtime = given.pop(_KEY), given["request"], given["runtime"]
        given = {name: value for name, value in given.items() if name in signature.parameters}
        if key is None:
            return await handler(**given)
        by: Operator = given["by"]
        limit_s = declared.get("time_limit_s") or runtime.config.limits.request_s
        idempotency = Idempotency(
            runtime.store.tenant(NO_TENANT if declared["operation"].platform else by.tenant_id),
            kind=idempotent.kind, owner=by.actor, processing_s=limit_s + LEASE_MARGIN_S,
        )  # fmt: skip
        act = functools.partial(_act_again if idempotent.repeatable else _act_once, handler, given, status)
        return await _answer_once(idempotency, act, key=key, by=by, request=await _fingerprint(request))

    added = {name: kind for name, kind in _ADDED.items() if name not in signature.parameters}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(one.replace(kind=keyword) for one in signature.parameters.values()),
        *(
            inspect.Parameter(
                name, keyword, annotation=kind, default=None if name == _KEY else inspect.Parameter.empty
            )
            for name, kind in added.items()
        ),
    ]
    answer.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    answer.__annotations__ = {**handler.__annotations__, **added}
    return answer


async def _fingerprint(request: Request[Any, Any, Any]) -> bytes:
    """What must be equal for two requests to be the same."""
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.method} {request.url.path}?{query}\n".encode() + await request.body()


async def _answer_once(
    idempotency: Idempotency,
    act: Callable[[Idempotency, Ticket], Awaitable[Any]],
    *,
    key: str,
    by: Operator,
    request: bytes,
) -> Any:
    caller = hashlib.sha256((by.caller.user_id or by.actor).encode()).hexdigest()[:16]
    for left in reversed(range(ROUNDS)):
        try:
            begun = await idempotency.begin(f"{caller}:{key}", request)
        except KeyReusedError:
            raise KeyReusedError(f"the key {key!r} was used for another request", HEADER) from None
        except InProgressError as fault:
            raise InProgressError(
                f"the request with the key {key!r} is in progress", after_s=fault.after_s
            ) from None
        if isinstance(begun, StoredResponse):
            headers = {**begun.headers, REPLAYED: "true"}
            return Response(begun.body, status_code=begun.status, headers=headers)
        try:
            return await act(idempotency, begun)
        except _OutcomeInRecord as lost:
            await idempotency.release(begun)
            if not left:
                raise lost.fault from None
        except BaseException:
            await idempotency.release(begun)
            raise
    raise AssertionError("the last round raises or returns")


async def _act_once(
    handler: Handler, given: Mapping[str, Any], status: int, idempotency: Idempotency, ticket: Ticket
) -> Any:
    """Run the handler with its commit deferred until the answer is part of it; again after a conflict."""
    for attempt in range(1, ATTEMPTS + 1):
        async with DeferredCommit() as deferred:
            by = msgspec.structs.replace(given["by"], deferred=deferred)
            result = await handler(**{**given, "by": by})
            completion = idempotency.writes_complete(ticket, _stored(result, status))
            try:
                await (deferred.commit(*completion) if deferred.begun else idempotency.commit(*completion))
            except (LeaseLostError, OutcomeUnknownError) as fault:
                raise _OutcomeInRecord(fault) from fault
            except (ConflictError, RetryLaterError) as fault:
                if attempt == ATTEMPTS or not deferred.may_retry(fault):
                    raise
            else:
                return result
        await asyncio.sleep(random.uniform(0, BACK_OFF_S * min(3, attempt)))
    raise AssertionError("the last attempt raises or returns")


async def _act_again(
    handler: Handler, given: Mapping[str, Any], status: int, idempotency: Idempotency, ticket: Ticket
) -> Any:
    """Run the handler and store its answer after it."""
    result = await handler(**given)
    try:
        await idempotency.commit(*idempotency.writes_complete(ticket, _stored(result, status)))
    except (LeaseLostError, OutcomeUnknownError) as fault:
        raise _OutcomeInRecord(fault) from fault
    return result


def _stored(result: Any, status: int) -> StoredResponse:
    headers: dict[str, str] = {}
    if isinstance(result, Response):
        status, headers = result.status_code or status, dict(result.headers)
        result = result.content
    return StoredResponse(
        status=status, body=msgspec.json.decode(msgspec.json.encode(result)), headers=headers
    )
