"""What a caller with a key does next, as a rule without a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import to_us
from holdfast.errors import KeyReusedError
from holdfast.kit.idempotency import (
    IdempotencyDocument,
    Proceed,
    Replay,
    StoredResponse,
    Wait,
    body_hash_of,
    decide,
)
from holdfast.kit.idempotency.models import record_id

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def _record(
    *, result: StoredResponse | None = None, held_s: float | None = None, expires_s: float = 3600.0
) -> IdempotencyDocument:
    return IdempotencyDocument(
        id="x", key="x", body_hash="h", created_at=NOW, expires_at=NOW + timedelta(seconds=expires_s),
        held_until=None if held_s is None else NOW + timedelta(seconds=held_s), result=result, fence=7,
    )  # fmt: skip


def test_the_first_caller_works() -> None:
    assert decide(None, body_hash="h", now=NOW) == Proceed(to_us(NOW))


def test_while_somebody_works_others_wait() -> None:
    assert decide(_record(held_s=12.0), body_hash="h", now=NOW) == Wait(12.0)


def test_work_whose_time_is_over_is_taken_over_under_the_next_number() -> None:
    assert decide(_record(held_s=0.0), body_hash="h", now=NOW) == Proceed(8)


@pytest.mark.parametrize("answer", [StoredResponse(body=1), StoredResponse(status=502, failed=True)])
def test_what_was_answered_is_answered_again(answer: StoredResponse) -> None:
    assert decide(_record(result=answer), body_hash="h", now=NOW) == Replay(answer)


@pytest.mark.parametrize(
    "record", [_record(held_s=12.0), _record(held_s=0.0), _record(result=StoredResponse())]
)
def test_another_body_is_refused_in_every_state(record: IdempotencyDocument) -> None:
    with pytest.raises(KeyReusedError):
        decide(record, body_hash="other", now=NOW)


def test_an_expired_record_is_as_good_as_none_whatever_the_body() -> None:
    assert decide(_record(result=StoredResponse(), expires_s=0.0), body_hash="other", now=NOW) == Proceed(8)


@given(st.dictionaries(st.text(), st.integers()))
def test_the_order_of_names_does_not_make_another_request(body: dict[str, int]) -> None:
    assert body_hash_of(body) == body_hash_of(dict(reversed(body.items())))


@given(st.binary(), st.binary())
def test_other_bytes_are_another_request(one: bytes, other: bytes) -> None:
    assert (body_hash_of(one) == body_hash_of(other)) == (one == other)


def test_no_two_pairs_of_tenant_and_key_share_a_record() -> None:
    pairs = [("a", "b:c"), ("a:b", "c"), ("a", ":b:c"), ("1:a", "b"), ("1", "a:b")]
    assert len({record_id(*pair) for pair in pairs}) == len(pairs)
