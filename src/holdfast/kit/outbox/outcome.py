"""The outcome of an attempt: delivered, failed and retried later, or dead. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from holdfast.kit.outbox.attempt_record import DERIVED, Header, recorded_headers, recorded_response
from holdfast.kit.outbox.models import (
    ATTEMPTS_IN_DELIVERY_MAX,
    OUTBOX_MODELS,
    Attempt,
    DeadLetter,
    Delivery,
    OutboxModels,
    chunk_id,
)
from holdfast.kit.outbox.retry_policy import RetryPolicy
from holdfast.net import ReceiverResponse, SendFailure, retry_after_s
from holdfast.outside_text import clean_text
from holdfast.plural import plural
from holdfast.store import Increment, Write, create, upsert
from holdfast.store.commit_batch import claimed_patches

GONE: Final = 410
FAILURE_CHARACTERS_MAX: Final = 300
_WORTH_RETRYING: Final = (408, 425, 429)
_ASK_TO_WAIT: Final = (429, 503)
_HOPELESS: Final = ("refused_address", "bad_request")
# The fields of a delivery that a release changes, and those that an attempt's outcome changes.
_RELEASED: Final = ("status", "owner", "next_attempt_at")
_SETTLED: Final = (*_RELEASED, "reason", "attempts", "attempt_count", "last_attempt_at", "last_status",
                   "finished_at")  # fmt: skip


class AttemptOutcome(msgspec.Struct, frozen=True):
    """`wait_s` until the retry; `hold_s` is how long the receiver asked for no requests at all."""

    status: Literal["delivered", "failed", "dead"]
    reason: str = ""
    wait_s: float = 0.0
    hold_s: float = 0.0
    endpoint_gone: bool = False
    healthy: bool = True


DELIVERED: Final = AttemptOutcome("delivered")


def judge(
    result: ReceiverResponse | SendFailure,
    retry: RetryPolicy,
    *,
    attempt: int,
    now: datetime,
    roll: float = 0.5,
) -> AttemptOutcome:
    """Return the outcome of attempt number `attempt` (the first is 1)."""
    if isinstance(result, ReceiverResponse) and 200 <= result.status < 300:
        return DELIVERED
    reason = describe(result)
    if isinstance(result, SendFailure):
        if result.reason in _HOPELESS:
            return AttemptOutcome("dead", reason)
        return _retry(reason, retry, attempt=attempt, asked_s=0.0, roll=roll, healthy=False)
    if result.status == GONE:
        return AttemptOutcome("dead", reason, endpoint_gone=True)
    refused = 400 <= result.status < 500
    if refused and result.status not in _WORTH_RETRYING and retry.fourxx_dead:
        return AttemptOutcome("dead", reason)
    asked = result.headers.get("retry-after") if result.status in _ASK_TO_WAIT else None
    asked_s = min(retry_after_s(asked, now), retry.retry_after_s_max)
    return _retry(reason, retry, attempt=attempt, asked_s=asked_s, roll=roll, healthy=refused)


def _retry(
    reason: str, retry: RetryPolicy, *, attempt: int, asked_s: float, roll: float, healthy: bool
) -> AttemptOutcome:
    wait_s = retry.wait_s(attempt, roll)
    if wait_s is None:
        return AttemptOutcome(
            "dead",
            f"{plural(attempt, 'attempt')} failed; the last: {reason}",
            hold_s=asked_s,
            healthy=healthy,
        )
    return AttemptOutcome("failed", reason, max(wait_s, asked_s), asked_s, healthy=healthy)


def describe(result: ReceiverResponse | SendFailure) -> str:
    if isinstance(result, SendFailure):
        return f"{result.reason}: {clean_text(result.message, characters_max=FAILURE_CHARACTERS_MAX)}"
    return f"HTTP {result.status}"


def record_attempt(
    delivery: Delivery,
    result: ReceiverResponse | SendFailure,
    *,
    at: datetime,
    latency_s: float,
    url: str = "",
    headers: Sequence[Header] = (),
) -> None:
    """Add the attempt to the delivery's history; `url` and `headers` are those of the request."""
    attempt = Attempt(
        at, round(latency_s * 1_000), delivery.fence, url=url,
        request_headers=recorded_headers(headers, without=DERIVED),
    )  # fmt: skip
    if isinstance(result, ReceiverResponse):
        attempt.status = result.status
        recorded = recorded_response(tuple(result.headers.items()), result.excerpt)
        attempt.response_headers, attempt.excerpt = recorded
    else:
        attempt.failure = result.reason
        attempt.excerpt = clean_text(result.message, characters_max=FAILURE_CHARACTERS_MAX)
    delivery.last_status = attempt.status
    delivery.attempts.append(attempt)
    delivery.attempt_count += 1
    delivery.last_attempt_at = at
    delivery.on_attempt(attempt)


def settle_fields(delivery: Delivery, outcome: AttemptOutcome, *, now: datetime) -> tuple[str, ...]:
    """Set an outcome, and return the fields that settle the delivery: most take no other write.

    None, with nothing set, where it takes more than these: see `settle_writes`.
    """
    if outcome.status == "dead" or len(delivery.attempts) > ATTEMPTS_IN_DELIVERY_MAX:
        return ()
    _set_outcome(delivery, outcome, now)
    return _SETTLED + delivery.attempt_fields


def _set_outcome(delivery: Delivery, outcome: AttemptOutcome, now: datetime) -> None:
    delivery.status = delivery.stored_state(outcome.status)
    delivery.reason = outcome.reason
    delivery.owner = None
    if outcome.status == "failed":
        delivery.next_attempt_at = now + timedelta(seconds=outcome.wait_s)
    else:
        delivery.next_attempt_at, delivery.finished_at = None, now


def settle_writes(
    delivery: Delivery, outcome: AttemptOutcome, *, now: datetime, models: OutboxModels = OUTBOX_MODELS
) -> list[Write]:
    """Return the writes of an outcome, under the fencing number, with the dead letter where it died."""
    _set_outcome(delivery, outcome, now)
    writes = _attempt_writes(delivery, models)
    if outcome.status == "dead":
        writes.append(_dead_letter(models.dead_letter, delivery, now=now))
    return writes


def _attempt_writes(delivery: Delivery, models: OutboxModels) -> list[Write]:
    """Patch the delivery; more attempts than it holds are moved to a chunk, so that it does not grow."""
    if len(delivery.attempts) <= ATTEMPTS_IN_DELIVERY_MAX:
        return [fenced_patch(delivery, _SETTLED + delivery.attempt_fields)]
    moved = delivery.attempts[:ATTEMPTS_IN_DELIVERY_MAX]
    del delivery.attempts[:ATTEMPTS_IN_DELIVERY_MAX]
    delivery.attempt_chunks += 1
    chunk = models.attempts(
        id=chunk_id(delivery, delivery.attempt_chunks), tenant_id=delivery.tenant_id,
        delivery_id=delivery.id, attempts=moved, last_at=moved[-1].at,
    )  # fmt: skip
    names = (*_SETTLED, "attempt_chunks", *delivery.attempt_fields)
    return [fenced_patch(delivery, names), create(chunk)]


def fenced_patch(delivery: Delivery, names: tuple[str, ...]) -> Write:
    """Patch these fields under the fencing number; the others are as they were claimed."""
    (commit,) = claimed_patches([delivery], names, tenant=None)
    return commit.writes[0]


def _dead_letter(letters: type[DeadLetter], delivery: Delivery, *, now: datetime) -> Write:
    letter = letters(
        id=delivery.id, tenant_id=delivery.tenant_id, event_id=delivery.event_id,
        endpoint_id=delivery.endpoint_id, event_type=delivery.event_type, reason=delivery.reason, died_at=now,
    )  # fmt: skip
    changes = {
        "reason": delivery.reason, "died_at": now, "deaths": Increment(1),
        "resolved": False, "resolved_at": None, "resolution": "",
    }  # fmt: skip
    return upsert(letter, changes)


def release_fields(delivery: Delivery, *, now: datetime) -> tuple[str, ...]:
    """Release a claimed delivery unsent, so that it is due at once; return the fields that this changes."""
    delivery.status = delivery.stored_state("failed" if delivery.attempt_count else "pending")
    delivery.owner = None
    delivery.next_attempt_at = now
    return _RELEASED
