"""The outbox's pure decisions: schedules, verdicts, buckets, breakers, queues."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kit.outbox import LONG_WAITS_S, BreakerPolicy, Delivery, Endpoint, Rate, RetryPolicy
from holdfast.kit.outbox.circuit_breaker import CircuitBreaker
from holdfast.kit.outbox.endpoint_queue import ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.models import ATTEMPTS_IN_DELIVERY_MAX, chunk_id
from holdfast.kit.outbox.outcome import judge, record_attempt, settle_writes
from holdfast.net import ReceiverResponse, SendFailure, retry_after_s
from holdfast.token_bucket import TokenBucket

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(status: int, **headers: str) -> ReceiverResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ReceiverResponse(status, named, b"", 0.01)


def a_delivery() -> Delivery:
    return Delivery(
        id="e~ep", event_id="e", endpoint_id="ep", event_type="t", body=b"", occurred_at=NOW, created_at=NOW
    )


def test_the_plain_schedule_doubles_and_ends_after_five_attempts() -> None:
    retry = RetryPolicy()
    assert [retry.wait_s(attempt) for attempt in range(1, 6)] == [1, 2, 4, 8, None]
    assert retry.attempts_max == 5


def test_the_long_schedule_tries_ten_times_over_three_days() -> None:
    assert len(LONG_WAITS_S) + 1 == 10
    assert 3 * 86_400 < sum(LONG_WAITS_S) < 4 * 86_400


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 4))
def test_jitter_stays_within_its_share(jitter: float, roll: float, attempt: int) -> None:
    plain = RetryPolicy().wait_s(attempt)
    spread = RetryPolicy(jitter=jitter).wait_s(attempt, roll)
    assert plain is not None
    assert spread is not None
    assert abs(spread - plain) <= plain * jitter + 1e-9


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 7 ", 7.0),
        ("Sun, 01 Mar 2026 12:00:30 GMT", 30.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("soon", 0.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("Sun, 01 Mar 2026 12:00:30 +99999999999999999999", 0.0),
        ("Sun, 99999999999999999999 Mar 2026 12:00:30 GMT", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_retry_after_is_read_in_both_its_forms(value: str | None, seconds: float) -> None:
    assert retry_after_s(value, NOW) == seconds


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (200, "delivered"), (204, "delivered"), (299, "delivered"),
        (301, "failed"), (307, "failed"), (304, "failed"),
        (400, "dead"), (401, "dead"), (404, "dead"), (410, "dead"), (422, "dead"),
        (408, "failed"), (425, "failed"), (429, "failed"),
        (500, "failed"), (503, "failed"), (599, "failed"),
    ],
)  # fmt: skip
def test_what_an_answer_means(status: int, verdict: str) -> None:
    found = judge(said(status), RetryPolicy(), attempt=1, now=NOW)
    assert found.status == verdict
    assert found.endpoint_gone == (status == 410)


@pytest.mark.parametrize("reason", ["timeout", "connect", "reset", "tls", "too_large", "bad_response"])
def test_a_failure_to_send_is_tried_again_until_the_last_attempt(reason: str) -> None:
    failure = SendFailure(reason, "x")  # type: ignore[arg-type]
    verdicts = [judge(failure, RetryPolicy(), attempt=n, now=NOW) for n in range(1, 6)]
    assert [v.status for v in verdicts] == ["failed"] * 4 + ["dead"]
    assert not any(v.healthy for v in verdicts)


def test_an_address_that_may_not_be_reached_is_not_tried_again() -> None:
    assert (
        judge(SendFailure("refused_address", "10.0.0.1"), RetryPolicy(), attempt=1, now=NOW).status == "dead"
    )


def test_a_lenient_endpoint_retries_four_hundreds() -> None:
    assert judge(said(404), RetryPolicy(fourxx_dead=False), attempt=1, now=NOW).status == "failed"


def test_retry_after_lengthens_a_wait_within_its_bound_and_only_where_it_counts() -> None:
    assert judge(said(429, retry_after="60"), RetryPolicy(), attempt=1, now=NOW).wait_s == 60
    assert (
        judge(said(503, retry_after="60"), RetryPolicy(retry_after_s_max=20), attempt=1, now=NOW).wait_s == 20
    )
    assert judge(said(503, retry_after="1"), RetryPolicy(), attempt=4, now=NOW).wait_s == 8
    assert judge(said(500, retry_after="60"), RetryPolicy(), attempt=1, now=NOW).wait_s == 1


def test_attempts_that_no_longer_fit_into_a_delivery_are_moved_with_the_next_outcome() -> None:
    delivery, failed = a_delivery(), judge(said(500), RetryPolicy(), attempt=1, now=NOW)
    moved = list[Any]()
    for number in range(2 * ATTEMPTS_IN_DELIVERY_MAX + 5):
        record_attempt(delivery, said(500 + number), at=NOW, latency_s=0)
        _, *chunks = settle_writes(delivery, failed, now=NOW)
        moved += [json.loads(chunk.prepared.body) for chunk in chunks if chunk.prepared]
        assert len(delivery.attempts) <= ATTEMPTS_IN_DELIVERY_MAX
    kept = [one["status"] for chunk in moved for one in chunk["attempts"]]
    assert kept + [one.status for one in delivery.attempts] == list(range(500, 545))
    assert [chunk["id"] for chunk in moved] == [chunk_id(delivery, 1), chunk_id(delivery, 2)]
    assert (delivery.attempt_chunks, delivery.attempt_count) == (2, 45)


def test_a_death_writes_the_delivery_and_its_letter_together() -> None:
    delivery = a_delivery()
    dead = settle_writes(delivery, judge(said(400), RetryPolicy(), attempt=1, now=NOW), now=NOW)
    assert [write.kind for write in dead] == ["patch", "upsert"]
    assert (delivery.status, delivery.next_attempt_at, delivery.finished_at) == ("dead", None, NOW)
    failed = settle_writes(delivery, judge(said(500), RetryPolicy(), attempt=2, now=NOW), now=NOW)
    assert [write.kind for write in failed] == ["patch"]
    assert delivery.next_attempt_at == NOW + timedelta(seconds=2)


def test_a_bucket_lets_its_burst_through_and_then_its_rate() -> None:
    bucket = TokenBucket(per_s=2, burst=3, now=0.0)
    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.ready_at(0.0) == pytest.approx(0.5)
    assert not bucket.take(0.4)
    assert bucket.take(bucket.ready_at(0.4))
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]


@given(st.lists(st.floats(0, 0.5), max_size=200), st.floats(0.5, 50), st.integers(1, 10))
def test_a_bucket_never_gives_more_than_burst_and_rate(steps: list[float], per_s: float, burst: int) -> None:
    bucket, now, taken = TokenBucket(per_s=per_s, burst=burst, now=0.0), 0.0, 0
    for step in steps:
        now += step
        taken += bucket.take(now)
    assert taken <= burst + now * per_s + 1e-3


def test_a_breaker_counts_failures_in_a_row_only() -> None:
    breaker = CircuitBreaker(BreakerPolicy(failures=2, open_s=10, probes=1))
    for healthy in (False, True, False):
        breaker.end(breaker.begin(), healthy=healthy, now=0.0)
    assert breaker.allows(0.0)
    breaker.end(breaker.begin(), healthy=False, now=0.0)
    assert not breaker.allows(0.0)


def test_a_breaker_that_stood_open_lets_a_probe_decide() -> None:
    breaker = CircuitBreaker(BreakerPolicy(failures=1, open_s=10, probes=1))
    straggler = breaker.begin()
    breaker.end(breaker.begin(), healthy=False, now=0.0)
    assert not breaker.allows(9.9)
    assert breaker.allows(10.0)
    probe = breaker.begin()
    assert not breaker.allows(10.0)
    breaker.end(straggler, healthy=True, now=10.1)
    assert breaker.state == "half-open"
    breaker.end(probe, healthy=False, now=10.2)
    assert not breaker.allows(20.1)
    assert breaker.allows(20.2)
    breaker.end(breaker.begin(), healthy=True, now=20.3)
    assert (breaker.state, breaker.allows(20.3)) == ("closed", True)


def a_queue(**settings: object) -> EndpointQueue:
    queue = EndpointQueue("ep")
    endpoint = Endpoint(id="ep", url="http://x/", created_at=NOW, **settings)  # type: ignore[arg-type]
    queue.configure(endpoint, 1, sign=lambda message_id, at_s, body: [])
    return queue


def test_a_queue_drops_what_could_not_be_settled_before_its_lease_ends() -> None:
    queue = a_queue(timeout_s=5.0)
    queue.waiting.extend([ClaimedDelivery(a_delivery(), 5.9), ClaimedDelivery(a_delivery(), 6.1)])
    held = queue.take(0.0)
    assert held is not None
    assert held.until_s == 6.1
    assert (queue.has_more, len(queue.waiting)) == (True, 0)


def test_a_queue_fetches_no_more_than_it_can_send_soon() -> None:
    assert a_queue(concurrency=10).room(0.0) == 20
    assert a_queue(concurrency=10, rate=Rate(per_s=1, burst=2)).room(0.0) == 3
    assert a_queue(status="paused").room(0.0) == 0


def all_taken(queue: EndpointQueue) -> list[ClaimedDelivery]:
    return list(iter(lambda: queue.take(0.0), None))


def test_a_queue_lets_more_go_at_once_as_answers_come_and_fewer_when_they_stay_away() -> None:
    queue = a_queue(concurrency=4)
    queue.waiting.extend(ClaimedDelivery(a_delivery(), 100.0) for _ in range(20))
    under_way, seen = all_taken(queue), []
    for hung in (False, False, False, True, True):
        seen.append((len(under_way), queue.in_doubt))
        following = []
        for held in under_way:
            queue.finish(held, healthy=not hung, hung=hung, now=0.0)
            following += all_taken(queue)
        under_way = following
    assert seen == [(1, True), (2, False), (4, False), (4, False), (1, True)]


def test_a_queue_lets_no_more_go_at_once_while_connections_are_few() -> None:
    queue = a_queue(concurrency=8)
    queue.waiting.extend(ClaimedDelivery(a_delivery(), 100.0) for _ in range(50))
    under_way, seen = all_taken(queue), []
    for waited_s in (0.0, 0.0, 0.6, 6.0, 0.0):
        seen.append(len(under_way))
        following = []
        for held in under_way:
            queue.finish(held, healthy=True, hung=False, now=0.0, took_s=2.0, waited_s=waited_s)
            following += all_taken(queue)
        under_way = following
    assert seen == [1, 2, 4, 4, 1]
    assert queue.slow


def test_a_queue_is_slow_by_its_receivers_last_answer() -> None:
    queue, seen = a_queue(), []
    for took_s, hung in ((2.0, False), (5.0, True), (0.01, False)):
        queue.waiting.append(ClaimedDelivery(a_delivery(), 100.0))
        (held,) = all_taken(queue)
        queue.finish(held, healthy=not hung, hung=hung, now=0.0, took_s=took_s)
        seen.append((queue.slow, queue.in_doubt))
    assert seen == [(True, False), (True, True), (False, False)]


def test_a_queue_that_never_needed_more_at_once_starts_few_when_many_come() -> None:
    queue = a_queue(concurrency=10)
    for _ in range(50):
        queue.waiting.append(ClaimedDelivery(a_delivery(), 100.0))
        (held,) = all_taken(queue)
        queue.finish(held, healthy=True, hung=False, now=0.0)
    queue.waiting.extend(ClaimedDelivery(a_delivery(), 100.0) for _ in range(20))
    assert len(all_taken(queue)) == 1


def test_a_queue_whose_receiver_hangs_holds_little_of_what_is_due() -> None:
    queue = a_queue(concurrency=10)
    queue.waiting.append(ClaimedDelivery(a_delivery(), 100.0))
    (held,) = all_taken(queue)
    queue.finish(held, healthy=False, hung=True, now=0.0)
    assert queue.room(0.0) == 2


def test_a_queue_whose_receiver_is_slow_holds_what_it_sends_at_once_and_as_many_more() -> None:
    queue = a_queue(concurrency=10)
    queue.waiting.extend(ClaimedDelivery(a_delivery(), 100.0) for _ in range(3))
    rooms = []
    for _ in range(3):
        held = queue.take(0.0)
        assert held is not None
        queue.finish(held, healthy=True, hung=False, now=0.0, took_s=2.0)
        rooms.append(queue.room(0.0) + len(queue.waiting))
    assert rooms == [4, 4, 4], "two at once: the first answer let one more go"


def test_a_queue_shut_for_a_while_opens_by_itself() -> None:
    queue = a_queue()
    queue.close_until(5.0)
    queue.waiting.append(ClaimedDelivery(a_delivery(), 100.0))
    assert (queue.room(4.9), queue.take(4.9), queue.wake_at(4.9)) == (0, None, 5.0)
    assert queue.take(5.0) is not None


def test_an_endpoint_takes_the_types_it_names() -> None:
    endpoint = Endpoint(id="e", url="u", created_at=NOW, event_types=["invoice.*", "user.made"])
    wanted = [endpoint.takes(t) for t in ("invoice.paid", "user.made", "user.gone", "invoices")]
    assert wanted == [True, True, False, False]
