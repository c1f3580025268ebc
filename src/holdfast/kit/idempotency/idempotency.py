"""Runs the work of an idempotency key once and stores its response."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from holdfast.errors import (
    ConflictError,
    InProgressError,
    InvalidError,
    LeaseLostError,
    OutcomeUnknownError,
    RetryLaterError,
    TooLargeError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.idempotency.decision import Proceed, Replay, Wait, decide
from holdfast.kit.idempotency.models import (
    IDEMPOTENCY_CLAIM,
    IdempotencyDocument,
    IdempotencyFields,
    StoredResponse,
    body_hash_of,
    record_id,
)
from holdfast.kit.model_checks import check_model
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.store.commit import Fence, Snapshot, Write, check, create, patch, put
from holdfast.store.store import Store

KEY_CHARACTERS_MAX: Final = 255
ANSWER_BYTES_MAX: Final = 256 * 1024
POLL_S: Final = 1.0
ATTEMPTS: Final = 10


class Ticket(msgspec.Struct, frozen=True):
    """The right to do the work of one key, for `processing_s`."""

    id: str
    key: str
    fence: int


class Done(msgspec.Struct, frozen=True):
    """The response, and the writes to commit together with it."""

    answer: StoredResponse
    writes: Sequence[Write] = ()


class IdempotentResult(msgspec.Struct, frozen=True):
    """The response for a caller; `replayed` when another did the work."""

    answer: StoredResponse
    replayed: bool


class Idempotency:
    """Idempotency keys of one tenant, or of none.

    Example:
        idempotency = Idempotency(store.tenant("acme"))

        async def start(ticket: Ticket) -> Done:
            run = Run(tenant_id="acme")
            return Done(StoredResponse(status=202, body={"id": run.id}), [create(run)])

        result = await idempotency.run(request.key, request.body, start)
    """

    def __init__(
        self,
        store: Store,
        *,
        kind: type[IdempotencyFields] = IdempotencyDocument,
        owner: str = "",
        processing_s: float = 300.0,
        completed_s: float = 86_400.0,
        failed_s: float = 3_600.0,
    ) -> None:
        check_model(kind, IdempotencyFields, path=("id",), claim=IDEMPOTENCY_CLAIM)
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store = store.tenant(self._tenant_id)
        self._clock = store.clock
        self._kind = kind
        self._owner = owner
        self._processing_s = processing_s
        self._completed_s = completed_s
        self._failed_s = failed_s

    async def run(
        self, key: str, body: Any, act: Callable[[Ticket], Awaitable[Done]], *, wait_s: float = 0.0
    ) -> IdempotentResult:
        """Do the work once for the key and return its response to everybody.

        While another caller works, waits up to `wait_s` and then raises `InProgressError`. When `act` raises,
        nothing is stored and the next caller may try at once.
        """
        deadline_s = self._clock.monotonic() + wait_s
        while True:
            left_s = deadline_s - self._clock.monotonic()
            ticket = await self.begin(key, body, wait_s=max(0.0, left_s))
            if isinstance(ticket, StoredResponse):
                return IdempotentResult(ticket, True)
            answer = await self._work(ticket, act)
            if answer is not None:
                return IdempotentResult(answer, False)

    async def begin(self, key: str, body: Any, *, wait_s: float = 0.0) -> Ticket | StoredResponse:
        """A ticket to do the work with, or the stored response.

        Put `writes_complete(ticket, answer)` into the commit of the work, or `release(ticket)` it.
        """
        _check_key(key)
        body_hash = body_hash_of(body)
        deadline_s = self._clock.monotonic() + wait_s
        subscription = self._store.watch(self._kind) if wait_s > 0 else None
        try:
            while True:
                found = await self._try_claim(key, body_hash)
                left_s = deadline_s - self._clock.monotonic()
                if not isinstance(found, Wait):
                    return found
                if left_s <= 0:
                    raise InProgressError(
                        f"the request with the key {key!r} is in progress", after_s=found.after_s
                    )
                await wait_for_wake(self._clock, min(found.after_s, left_s, POLL_S), wake=subscription)
        finally:
            if subscription is not None:
                subscription.close()

    def writes_complete(self, ticket: Ticket, answer: StoredResponse) -> list[Write]:
        """The response as a write for the commit of the work; refused when another caller took over."""
        size = len(msgspec.json.encode(answer))
        if size > ANSWER_BYTES_MAX:
            raise TooLargeError(
                f"a response has at most {ANSWER_BYTES_MAX:,} bytes; this one has {size:,}", "result"
            )
        now = self._clock.now()
        ttl_s = self._failed_s if answer.failed else self._completed_s
        changes = {
            "status": "failed" if answer.failed else "completed", "result": answer, "completed_at": now,
            "expires_at": now + timedelta(seconds=ttl_s), "held_until": None,
        }  # fmt: skip
        return [patch(self._kind, ticket.id, changes=changes, expect=Fence(ticket.fence))]

    async def commit(self, *writes: Write) -> None:
        """Commit writes of a record by themselves, where those of the work have been committed."""
        await self._store.commit(*writes)

    def guard(self, ticket: Ticket) -> Write:
        """For commits made before the response: refused when another caller took over."""
        return check(self._kind, ticket.id, expect=Fence(ticket.fence))

    async def release(self, ticket: Ticket) -> None:
        """Release the key without a response; the next caller may work at once."""
        changes = {"held_until": self._clock.now(), "held_by": ""}
        # A takeover or the end of the lease frees the key as well.
        with contextlib.suppress(LeaseLostError, RetryLaterError):
            found = await self._store.get(self._kind, ticket.id)
            if found is None or found.doc.result is not None:
                return
            await self._store.commit(
                patch(self._kind, ticket.id, changes=changes, expect=Fence(ticket.fence))
            )

    async def _work(self, ticket: Ticket, act: Callable[[Ticket], Awaitable[Done]]) -> StoredResponse | None:
        """The response, or None when the record must be read again."""
        try:
            done = await act(ticket)
            writes = self.writes_complete(ticket, done.answer)
        except BaseException:
            await self.release(ticket)
            raise
        try:
            await self._store.commit(*writes, *done.writes)
        except LeaseLostError:
            return None
        except OutcomeUnknownError:
            # It may have landed. Released or not, our fencing number lets it land once at most.
            await self.release(ticket)
            return None
        except BaseException:
            await self.release(ticket)
            raise
        return done.answer

    async def _try_claim(self, key: str, body_hash: str) -> Ticket | StoredResponse | Wait:
        id = record_id(self._tenant_id, key)
        for _ in range(ATTEMPTS):
            found = await self._store.get(self._kind, id)
            verdict = decide(None if found is None else found.doc, body_hash=body_hash, now=self._clock.now())
            if isinstance(verdict, Replay):
                return verdict.answer
            if isinstance(verdict, Wait):
                return verdict
            with contextlib.suppress(ConflictError):
                await self._store.commit(
                    self._claim_write(verdict, id, key=key, body_hash=body_hash, found=found)
                )
                return Ticket(id, key, verdict.fence)
        return Wait(POLL_S)

    def _claim_write(
        self, work: Proceed, id: str, *, key: str, body_hash: str, found: Snapshot[IdempotencyFields] | None
    ) -> Write:
        now = self._clock.now()
        record = self._kind(
            id=id, key=key, tenant_id=self._tenant_id, body_hash=body_hash, created_at=now,
            expires_at=now + timedelta(seconds=max(self._completed_s, self._processing_s)),
            held_until=now + timedelta(seconds=self._processing_s), held_by=self._owner, fence=work.fence,
        )  # fmt: skip
        return create(record) if found is None else put(record, found.unchanged)


def _check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidError(f"an idempotency key has 1 to {KEY_CHARACTERS_MAX} characters", "key")
