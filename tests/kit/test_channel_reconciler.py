"""What channels do when a provider is slow, refuses or forgets its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from holdfast.backoff import BackOff
from holdfast.errors import BadQueryError, NotFoundError
from holdfast.kit.audit import Audit, AuditEntry, AuditEvent, AuditHead
from holdfast.kit.channels import (
    Channel,
    ChannelPolicy,
    Channels,
    ChannelTransition,
    Watch,
)
from holdfast.model import Document
from holdfast.providers.google_calendar import GoogleChannelVerifier, channel_token
from holdfast.store import Store, Transaction
from holdfast.testing import ManualClock
from tests.kit.fake_channel_provider import KEY, FakeChannelProvider, alices_watch, documents_of

DAY = 86_400.0


DOCUMENTS: list[type[Document]] = [Channel, Watch, AuditEvent, AuditHead]
ALICE, BOB = "alice@hoge.jp", "bob@hoge.jp"


@pytest.fixture
def kit_url(sqlite_url: str) -> str:
    return sqlite_url


async def test_the_token_lets_a_notification_be_verified_without_a_look_up(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE])
    await one.turn()
    (id,) = board.live(ALICE)
    headers = {
        "x-goog-channel-id": id,
        "x-goog-resource-id": board.lines[id].resource_id,
        "x-goog-resource-state": "sync",
        "x-goog-message-number": "1",
        "x-goog-channel-token": channel_token(KEY, id),
    }
    assert GoogleChannelVerifier(KEY).verify(headers, b"", clock.now()).order_key == id


async def test_stopped_documents_are_kept_when_the_setting_says_so(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels(life=ChannelPolicy(keep_stopped=True))
    await one.set_wanted([ALICE])
    await one.turn()
    await clock.advance(6 * DAY)
    await one.turn()
    assert sorted(doc.status for doc in await documents_of(kit_store)) == ["active", "stopped"]


async def test_health_is_critical_when_something_is_wanted_and_nothing_lives(
    channels: Callable[..., Channels], board: FakeChannelProvider
) -> None:
    one = channels()
    assert (await one.health()).verdict == "ok"
    board.failing = 2.0
    await one.set_wanted([ALICE])
    await one.turn()
    health = await one.health()
    assert (health.verdict, health.live, health.failing) == ("critical", 0, 1)
    assert "quota" in health.last_error


async def test_a_provider_that_asks_to_wait_is_not_asked_sooner(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock, kit_store: Store
) -> None:
    one = channels()
    board.failing, board.retry_after_s = 2.0, 777.0
    await one.set_wanted([ALICE])
    await one.turn()
    board.failing = 0.0
    await clock.advance(776)
    assert await one.turn() == 0
    await clock.advance(1)
    assert await one.turn() == 1
    assert len(board.live(ALICE)) == 1
    assert (await alices_watch(kit_store)).failures == 0


async def test_waits_grow_with_failures_up_to_a_limit(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels(life=ChannelPolicy(back_off=BackOff(first_s=10, wait_s_max=100, jitter=0.5)))
    board.failing = 2.0
    await one.set_wanted([ALICE])
    waits = []
    for _ in range(6):
        await one.turn()
        retry_at = (await alices_watch(kit_store)).retry_at
        assert retry_at is not None
        waits.append((retry_at - clock.now()).total_seconds())
        await clock.advance(waits[-1])
    tops = [10, 20, 40, 80, 100, 100]
    assert all(top / 2 <= wait <= top for wait, top in zip(waits, tops, strict=True))


async def test_a_process_that_was_held_up_for_longer_than_its_lease_takes_back_what_it_opened(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock, kit_store: Store
) -> None:
    slow, quick = channels(), channels()
    await slow.set_wanted([ALICE])
    late = board.delay = asyncio.Event()
    waiting = asyncio.create_task(slow.turn())
    await board.asked.wait()
    board.forget_asking()
    board.delay = None
    await clock.advance(91)
    assert await quick.turn() == 1
    (kept,) = board.live(ALICE)
    late.set()
    await waiting
    (id,) = board.live(ALICE)
    assert id == kept, "whoever took over has the say"
    watch = await alices_watch(kit_store)
    assert watch.current is not None
    assert watch.current.channel_id == id
    assert watch.leaving == []


async def test_a_channel_is_found_before_it_is_on_record(
    channels: Callable[..., Channels], board: FakeChannelProvider
) -> None:
    one = channels()
    await one.set_wanted([ALICE])
    board.pause = asyncio.Event()
    opening = asyncio.create_task(one.turn())
    await board.opened.wait()
    (id,) = board.live(ALICE)
    assert await channels().find(id) == ALICE
    assert await channels().find("calendar-sync-alice-hoge-jp-1") is None
    assert await channels().find("nonsense") is None
    board.pause.set()
    await opening
    assert await one.find(id) == await channels().find(id) == ALICE


async def test_renew_expiring_says_what_became_of_each_and_a_dry_run_changes_nothing(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels(life=ChannelPolicy(renew_before_s=3_600))
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    assert (await one.renew_expiring()).renewed == []
    await clock.advance(6.5 * DAY)
    before = (board.all_live(), await documents_of(kit_store), await alices_watch(kit_store))
    dry = await one.renew_expiring(dry_run=True)
    assert (sorted(r.watched_id for r in dry.renewed), dry.dry_run) == ([ALICE, BOB], True)
    assert (board.all_live(), await documents_of(kit_store), await alices_watch(kit_store)) == before
    board.revoked.add(BOB)
    report = await one.renew_expiring()
    (done,) = report.renewed
    assert (done.watched_id, done.new_channel_id) == (ALICE, board.live(ALICE)[0])
    assert done.new_expiration - done.old_expiration == 6.5 * 86_400_000
    assert [(f.watched_id, f.error) for f in report.failed] == [(BOB, "invalid_grant")]


async def test_stopping_a_wanted_channel_puts_another_in_its_place(
    channels: Callable[..., Channels], board: FakeChannelProvider
) -> None:
    one = channels()
    await one.set_wanted([ALICE])
    await one.turn()
    (old,) = board.live(ALICE)
    await one.stop(old)
    (new,) = board.live(ALICE)
    assert new != old
    with pytest.raises(NotFoundError):
        await one.stop(old)
    with pytest.raises(NotFoundError):
        await one.stop("never-heard-of-1")


async def test_a_half_opened_channel_is_stopped_once_its_resource_is_learnt(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE])
    board.lose_next_answer = True
    await one.turn()
    (id,) = board.live(ALICE)
    await channels().set_wanted([])
    await one.turn()
    assert board.live(ALICE) == [id], "nobody knows its resource, so nobody can stop it"
    await one.record_resource(id, board.lines[id].resource_id)
    await one.turn()
    assert board.live(ALICE) == []
    assert (await alices_watch(kit_store)).status == "ended"


async def test_a_half_opened_channel_that_nobody_can_name_is_left_to_its_end(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE])
    board.lose_next_answer = True
    await one.turn()
    assert len(board.live(ALICE)) == 1
    await one.set_wanted([])
    while (await alices_watch(kit_store)).status != "ended":
        await clock.advance(DAY / 2)
        await one.turn()
    assert board.live(ALICE) == []


async def test_what_happens_to_channels_is_audited_in_the_same_commit(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    audit = Audit(kit_store, tenant_id="-")

    async def hook(tx: Transaction, news: Sequence[ChannelTransition]) -> None:
        await audit.add(
            tx,
            *(
                AuditEntry(action=f"channel.{one.act}", actor="channels", subject=one.channel_id)
                for one in news
            ),
        )

    one = channels(hook=hook)
    await one.set_wanted([ALICE])
    await one.turn()
    await clock.advance(6 * DAY)
    await one.turn()
    lines = [msgspec.json.decode(line) async for line in audit.export()]
    assert [line["action"] for line in lines] == ["channel.opened", "channel.opened", "channel.stopped"]
    assert (await audit.verify()).intact


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": {"k": b"short"}},
        {"name": "no spaces"},
        {"name": "x" * 31},
        {"life": ChannelPolicy(lease_s=20)},
    ],
)
async def test_settings_that_cannot_work_are_refused(
    channels: Callable[..., Channels], wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadQueryError):
        channels(**wrong)


async def test_what_is_asked_of_a_watch_while_it_is_held_opens_no_second_channel(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    slow, other = channels(), channels()
    await slow.set_wanted([ALICE])
    await slow.turn()
    await clock.advance(6 * DAY)
    late = board.delay = asyncio.Event()
    board.asked.clear()
    waiting = asyncio.create_task(slow.turn())
    await board.asked.wait()
    forced = await other.force()
    assert (forced.opened, forced.failed) == (0, 1)
    await other.retry([ALICE])
    assert await other.turn() == 0
    late.set()
    await waiting
    assert board.opens[ALICE] == 2
    assert len(board.live(ALICE)) == 1
