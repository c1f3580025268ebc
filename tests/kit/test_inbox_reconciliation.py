"""Reconciliation on every engine: what the provider could not deliver is asked for again, nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta

import pytest

from holdfast.errors import DeclarationError, RetryLaterError
from holdfast.kit.inbox import Inbox, InboxItem, InboxQueue, MissedDelivery, Source, Verified
from holdfast.kit.inbox.reconciliation import ATTEMPTS_MAX, LOOK_BACK_S
from holdfast.model import Document
from holdfast.store import Store
from holdfast.testing import ManualClock

DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue]


class Named:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"])


class Log:
    """A provider's log; what is asked for again arrives, unless it is broken."""

    def __init__(self, *missed: str) -> None:
        self.attempts = [MissedDelivery(name, f"attempt-{n}") for n, name in enumerate(missed)]
        self.since: datetime | None = None
        self.asked: list[str] = []
        self.asked_max = 1_000

    async def missed(self, since: datetime) -> AsyncIterator[MissedDelivery]:
        self.since = since
        for one in self.attempts:
            yield one

    async def redeliver(self, missed: MissedDelivery) -> None:
        if len(self.asked) >= self.asked_max:
            raise RetryLaterError("quota", after_s=60)
        self.asked.append(missed.reference)


def _source(log: Log | None) -> Source:
    return Source(name="github", verifier=Named(), delivery_log=log)


async def test_a_missed_message_is_asked_for_once_and_not_when_it_has_arrived(
    kit_store: Store, clock: ManualClock
) -> None:
    inbox, log = Inbox(kit_store), Log("m1", "m2", "m1")
    source = _source(log)
    await inbox.receive(source, {"x-name": "m2"}, b"{}")
    done = await inbox.reconcile(source)
    assert (done.arrived, done.redelivered, done.given_up) == (1, 1, 0)
    assert log.asked == ["attempt-0"], "the newest attempt of the one that is missing"
    assert log.since == clock.now() - timedelta(seconds=LOOK_BACK_S)
    await inbox.receive(source, {"x-name": "m1"}, b"{}")
    assert (await inbox.reconcile(source)).redelivered == 0


async def test_a_message_that_fails_every_time_is_given_up(kit_store: Store) -> None:
    log = Log(*["poison"] * ATTEMPTS_MAX, *["unlucky"] * (ATTEMPTS_MAX - 1))
    done = await Inbox(kit_store).reconcile(_source(log))
    assert (done.redelivered, done.given_up) == (1, 1)
    assert log.asked == [f"attempt-{ATTEMPTS_MAX}"]


async def test_a_provider_that_takes_no_more_requests_is_asked_the_rest_next_time(kit_store: Store) -> None:
    log = Log("m1", "m2")
    log.asked_max = 1
    inbox, source = Inbox(kit_store), _source(log)
    with pytest.raises(RetryLaterError):
        await inbox.reconcile(source)
    await inbox.receive(source, {"x-name": "m1"}, b"{}")
    log.asked_max = 2
    assert (await inbox.reconcile(source)).redelivered == 1
    assert log.asked == ["attempt-0", "attempt-1"]


async def test_a_source_without_a_log_can_t_be_reconciled(kit_store: Store) -> None:
    with pytest.raises(DeclarationError, match="delivery_log"):
        await Inbox(kit_store).reconcile(_source(None))
