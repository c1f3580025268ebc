"""Channels on every engine, against a provider as strict as the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.kit.audit import AuditEvent, AuditHead
from holdfast.kit.channels import (
    CHANNEL_ID,
    CHANNEL_INDEXES,
    CHANNEL_LIFE,
    EXPIRED_KEPT,
    Channel,
    ChannelFields,
    ChannelPolicy,
    Channels,
    ChannelTransition,
    Watch,
)
from holdfast.model import Document, document, schema_of
from holdfast.providers.google_calendar import channel_token
from holdfast.store import Store, Transaction, create
from holdfast.testing import ManualClock
from tests.kit.fake_channel_provider import KEY, FakeChannelProvider, alices_watch, documents_of

DAY = 86_400.0


@document(
    "watchChannels/{channel_id}",
    id=CHANNEL_ID,
    indexes=CHANNEL_INDEXES,
    lifecycle=CHANNEL_LIFE,
    immutable=["registered_at"],
    retention=EXPIRED_KEPT,
)
class WatchChannel(ChannelFields, rename="camel"):
    """A service's own channels, with its own word for what is watched."""

    watched_id: str = msgspec.field(name="calendarId")
    sync_token: str = ""


DOCUMENTS: list[type[Document]] = [Channel, WatchChannel, Watch, AuditEvent, AuditHead]
ALICE, BOB = "alice@hoge.jp", "bob@hoge.jp"


async def test_what_is_wanted_gets_one_channel_each(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE, BOB])
    assert board.all_live() == {}, "wanting asks nobody"
    assert await one.turn() == 2
    assert sorted(board.all_live().values()) == [ALICE, BOB]
    assert {doc.channel_id for doc in await documents_of(kit_store)} == board.all_live().keys()
    (id,) = board.live(ALICE)
    assert id == f"calendar-sync-alice-hoge-jp-{clock.now_us() // 1000}"
    assert await one.turn() == 0


async def test_a_services_own_collection_holds_exactly_the_named_fields(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels(kind=WatchChannel)
    await one.set_wanted([ALICE])
    await one.turn()
    (doc,) = await documents_of(kit_store, WatchChannel)
    now_ms = clock.now_us() // 1000
    assert schema_of(WatchChannel).to_fields(doc) == {  # type: ignore[arg-type]
        "channelId": board.live(ALICE)[0],
        "resourceId": f"resource of {ALICE}",
        "calendarId": ALICE,
        "expiration": now_ms + 7 * 86_400_000,
        "registeredAt": now_ms,
        "lastUpdatedAt": now_ms,
        "status": "active",
        "syncToken": "",
    }


async def test_renewal_opens_the_new_channel_before_it_stops_the_old(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    seen: list[tuple[str, int]] = []

    async def hook(tx: Transaction, news: Sequence[ChannelTransition]) -> None:
        seen.extend((one.act, len(board.live(ALICE))) for one in news)

    one = channels(hook=hook)
    await one.set_wanted([ALICE])
    await one.turn()
    (old,) = board.live(ALICE)
    await clock.advance(5.5 * DAY)
    assert await one.turn() == 0, "not due yet"
    await clock.advance(0.5 * DAY)
    assert await one.turn() == 1
    (new,) = board.live(ALICE)
    assert new != old
    assert seen == [("opened", 1), ("opened", 2), ("stopped", 1)]
    assert [doc.channel_id for doc in await documents_of(kit_store)] == [new], "stopped ones are deleted"


async def test_a_channel_that_ended_while_nobody_ran_is_expired_and_replaced_at_once(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    first = channels()
    await first.set_wanted([ALICE])
    await first.turn()
    (old,) = board.live(ALICE)
    await clock.advance(8 * DAY)
    second = channels()
    await second.set_wanted([ALICE])
    await second.turn()
    (new,) = board.live(ALICE)
    statuses = {doc.channel_id: doc.status for doc in await documents_of(kit_store)}
    assert statuses == {old: "expired", new: "active"}
    assert await kit_store.privileged().expire(Channel) == 0
    await clock.advance(31 * DAY)
    assert await kit_store.privileged().expire(Channel) == 1


async def test_what_is_no_longer_wanted_is_stopped_and_forgotten_in_the_end(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    await one.set_wanted([BOB])
    await one.turn()
    assert list(board.all_live().values()) == [BOB]
    watch = await alices_watch(kit_store)
    assert (watch.status, watch.due_at) == ("ended", None)
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    assert len(board.live(ALICE)) == 1
    await one.set_wanted([])
    await one.turn()
    assert board.all_live() == {}
    await clock.advance(31 * DAY)
    assert await kit_store.privileged().expire(Watch) == 2


async def test_revoked_credentials_stop_the_renewals_and_show_in_health(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    assert (await one.health()).verdict == "ok"
    board.revoked.add(ALICE)
    await clock.advance(6 * DAY)
    await one.turn()
    health = await one.health()
    assert health.verdict == "degraded"
    assert [(one.watched_id, one.error) for one in health.attention] == [(ALICE, "invalid_grant")]
    assert health.live == 2, "the old one lives on to its end"
    opens = board.opens[ALICE]
    for _ in range(10):
        await clock.advance(0.3 * DAY)
        await one.turn()
    assert board.opens[ALICE] == opens
    assert {doc.status for doc in await documents_of(kit_store) if doc.watched_id == ALICE} == {"expired"}
    assert (await alices_watch(kit_store)).due_at is None
    board.revoked.clear()
    await one.retry([ALICE])
    await one.turn()
    assert len(board.live(ALICE)) == 1
    assert (await one.health()).verdict == "ok"


async def test_two_processes_never_open_two_channels_for_one_thing(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    people = [f"p{n}@hoge.jp" for n in range(12)]
    both = [channels(), channels()]
    await asyncio.gather(*(one.set_wanted(people) for one in both))
    for _ in range(4):
        await asyncio.gather(*(one.turn() for one in both))
        assert sorted(board.all_live().values()) == sorted(people)
        await clock.advance(6 * DAY)
    assert set(board.opens.values()) == {4}


async def test_addresses_that_look_alike_or_are_long_get_ids_of_their_own(
    channels: Callable[..., Channels], board: FakeChannelProvider
) -> None:
    alike = ["a.b@c.jp", "a@b.c.jp", "a-b@c.jp"]
    long = [f"{'x' * 80}{n}@hoge.jp" for n in range(3)]
    both = [channels(), channels()]
    await asyncio.gather(*(one.set_wanted([*alike, *long]) for one in both))
    await asyncio.gather(*(one.turn() for one in both))
    assert sorted(board.all_live().values()) == sorted([*alike, *long])
    assert all(len(id) <= 64 for id in board.all_live())
    await channels().set_wanted([*alike, *long])
    assert await channels().turn() == 0


async def test_two_schedulers_renewing_at_once_do_the_work_once(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    people = [f"p{n}@hoge.jp" for n in range(8)]
    both = [
        channels(life=ChannelPolicy(renew_before_s=3_600)),
        channels(life=ChannelPolicy(renew_before_s=3_600)),
    ]
    await both[0].set_wanted(people)
    await both[0].turn()
    await clock.advance(6.5 * DAY)
    reports = await asyncio.gather(*(one.renew_expiring() for one in both))
    assert set(board.opens.values()) == {2}
    renewed = {r.watched_id for report in reports for r in report.renewed}
    assert renewed == set(people)


async def test_force_replaces_every_channel_and_counts_also_what_failed(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    one = channels()
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    old = set(board.all_live())
    board.revoked.add(BOB)
    forced = await one.force("moved to another project")
    assert (forced.opened, forced.stopped, forced.failed) == (1, 1, 1)
    assert forced.errors == {BOB: "invalid_grant"}
    board.revoked.clear()
    again = await one.force()
    assert (again.opened, again.stopped, again.failed) == (2, 2, 0)
    assert sorted(board.all_live().values()) == [ALICE, BOB]
    assert not old & board.all_live().keys()


async def test_channels_on_record_that_no_watch_knows_are_taken_in(
    channels: Callable[..., Channels], board: FakeChannelProvider, kit_store: Store, clock: ManualClock
) -> None:
    now_ms = clock.now_us() // 1000
    for watched_id, number in ((ALICE, 1), (ALICE, 2), (BOB, 3)):
        await board.open(
            watched_id, channel_id=f"old-{number}", token=channel_token(KEY, f"old-{number}"), ttl_s=3 * DAY
        )
        await kit_store.tenant("-").commit(create(Channel(
            channel_id=f"old-{number}", resource_id=f"resource of {watched_id}", watched_id=watched_id,
            expiration=now_ms + 3 * 86_400_000, registered_at=now_ms, last_updated_at=now_ms,
        )))  # fmt: skip
    one = channels()
    await one.set_wanted([ALICE])
    await one.turn()
    assert len(board.live(ALICE)) == 1, "one of the two goes on"
    assert board.opens[ALICE] == 2, "none was opened besides"
    assert board.live(BOB) == [], "nobody wants it"
    await clock.advance(2.5 * DAY)
    await one.turn()
    assert board.live(ALICE)[0].startswith("calendar-sync-alice")


async def test_the_status_tells_the_time_left_and_warns_near_the_end(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    one = channels(life=ChannelPolicy(renew_before_s=60))
    await one.set_wanted([ALICE, BOB])
    await one.turn()
    await clock.advance(0.5 * DAY - 34 * 60)
    listing = await one.status()
    assert [row.expires_in for row in listing.rows] == ["6d 12h 34m"] * 2
    assert not any(row.warning for row in listing.rows)
    await clock.advance(6 * DAY)
    page = await one.status("active", limit=1)
    assert [row.warning for row in page.rows] == [True]
    rest = await one.status("active", limit=1, cursor=page.cursor)
    assert {page.rows[0].watched_id, rest.rows[0].watched_id} == {ALICE, BOB}
    assert (await one.status("expired")).rows == []


async def test_the_loop_opens_what_is_wanted_and_renews_by_the_clock(
    channels: Callable[..., Channels], board: FakeChannelProvider, clock: ManualClock
) -> None:
    one, stop = channels(), asyncio.Event()
    running = asyncio.create_task(one.run(stop))
    await one.set_wanted([ALICE])
    async with asyncio.timeout(60):
        await board.opened.wait()
        (old,) = board.live(ALICE)
        while board.live(ALICE) == [old] or len(board.live(ALICE)) != 1:
            if not one.under_way:  # or its lease would end while a slow engine commits
                await clock.advance(0.2 * DAY)
            await asyncio.sleep(0.005)
    stop.set()
    await running
