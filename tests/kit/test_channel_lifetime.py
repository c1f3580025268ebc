"""Channels over months, with processes that crash between any two steps and a provider that fails.

`HOLDFAST_CHANNEL_DAYS` says how many days the long run takes (90).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import NotFoundError
from holdfast.kit.channels import Channel, ChannelPolicy, Channels, Watch
from holdfast.model import Document
from holdfast.store import Query, Store
from holdfast.testing import ManualClock
from tests.kit.fake_channel_provider import KEY, CrashError, FakeChannelProvider, Fuse, FusedProvider, fused

DOCUMENTS: list[type[Document]] = [Channel, Watch]
DAYS = int(os.environ.get("HOLDFAST_CHANNEL_DAYS", "90"))
HOUR = 3_600.0
DAY = 24 * HOUR
LIFE = ChannelPolicy()
PEOPLE = [f"p{n}@hoge.jp" for n in range(5)]
ALICE = "alice@hoge.jp"


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def kit_url(request: pytest.FixtureRequest) -> str:
    """Crashes are told to the process here, not to the machine: the file may be written at its own pace."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return f"{url}?synchronous=normal" if request.param == "sqlite" else url


Scene = Callable[[Channels, ManualClock], Awaitable[None]]


def _process(store: Store, board: FakeChannelProvider, fuse: Fuse | None = None) -> Channels:
    fuse = fuse or Fuse()
    keys = {"first": KEY}
    return Channels(
        fused(store, fuse), FusedProvider(board, fuse), name="calendar-sync", keys=keys, life=LIFE
    )


async def _open(channels: Channels, clock: ManualClock) -> None:
    await channels.set_wanted([ALICE])
    await channels.turn()


async def _renew(channels: Channels, clock: ManualClock) -> None:
    await clock.advance(6 * DAY)
    await channels.turn()


async def _let_expire(channels: Channels, clock: ManualClock) -> None:
    await clock.advance(8 * DAY)
    await channels.turn()


async def _replace(channels: Channels, clock: ManualClock) -> None:
    await channels.force("test")


async def _drop(channels: Channels, clock: ManualClock) -> None:
    await channels.set_wanted([])
    await channels.turn()


async def _stop(channels: Channels, clock: ManualClock) -> None:
    (row,) = (await channels.status("active")).rows
    await channels.stop(row.channel_id)


async def _active(store: Store) -> list[str]:
    page = await store.tenant("-").query(Query(Channel).where("status", "==", "active"))
    return sorted(doc.channel_id for doc in page.docs)


SCENES = {
    "open": (_open, True, 1), "renew": (_renew, False, 1), "let expire": (_let_expire, True, 1),
    "replace": (_replace, False, 1), "stop": (_stop, False, 1), "drop": (_drop, True, 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kit_url", "name"),
    [*(("sqlite", name) for name in SCENES), ("postgres", "renew"), ("firestore", "renew")],
    indirect=["kit_url"],
)
async def test_a_crash_between_any_two_steps_leaves_a_live_channel_and_in_the_end_exactly_one(
    kit_store: Store, clock: ManualClock, name: str
) -> None:
    scene, gap, left = SCENES[name]
    board = FakeChannelProvider(clock)
    crashes = 0
    while True:
        await _from_anew(kit_store, board, clock, opened=scene is not _open)
        process = _process(kit_store, board, Fuse(crashes))
        try:
            await scene(process, clock)
        except CrashError:
            assert gap or board.live(ALICE), f"went quiet at crash point {crashes}"
        else:
            break
        await _recover(kit_store, board, clock, left=left)
        crashes += 1
    assert len(board.live(ALICE)) == left
    assert crashes >= 8, "the scene has fewer crash points than it has steps"


async def _from_anew(store: Store, board: FakeChannelProvider, clock: ManualClock, *, opened: bool) -> None:
    """A time at which nothing is watched, or one thing is."""
    process = _process(store, board)
    await process.set_wanted([])
    await process.turn()
    assert board.all_live() == {}
    if opened:
        await process.set_wanted([ALICE])
        await process.turn()
        assert len(board.live(ALICE)) == 1


async def _recover(store: Store, board: FakeChannelProvider, clock: ManualClock, *, left: int) -> None:
    """Whoever comes next, once the lease is over, finishes what the dead process began."""
    heir = _process(store, board)
    await heir.set_wanted([ALICE] if left else [])
    await heir.turn()
    for id, watched_id in board.all_live().items():
        assert await _process(store, board).find(id) == watched_id, "a channel is open that nobody knows"
    # A channel can be stopped once its resource is known: by its first notification, if not otherwise.
    for id, resource_id in board.syncs:
        await heir.record_resource(id, resource_id)
    await clock.advance(LIFE.lease_s + 1)
    await heir.turn()
    assert len(board.live(ALICE)) == left
    assert await _active(store) == sorted(board.all_live())


class History:
    """Months of life at random: what is wanted changes, credentials go, processes die, providers fail."""

    def __init__(self, store: Store, clock: ManualClock, seed: int) -> None:
        self.store, self.clock = store, clock
        self.chance = random.Random(seed)
        self.board = FakeChannelProvider(clock, seed=seed)
        self.wanted: set[str] = set()
        self.crashes = 0
        self.due_good: set[str] = set()  # has had a channel since it was wanted with good credentials
        self.process = _process(store, self.board)

    async def step(self) -> None:
        acts = [self.pass_time] * 12 + [
            self.edit, self.edit, self.change_credentials, self.change_mood, self.force, self.renew,
            self.stop_one, self.hear_syncs, self.hear_syncs, self.both_turn,
        ]  # fmt: skip
        fuse = Fuse(self.chance.randrange(12)) if self.chance.random() < 0.4 else Fuse()
        self.process = _process(self.store, self.board, fuse)
        try:
            await self.chance.choice(acts)()
            await self.process.set_wanted(self.wanted)
            await self.process.turn()
        except CrashError:
            self.crashes += 1
        self.note_live()
        await self.check()

    async def pass_time(self) -> None:
        await self.clock.advance(self.chance.uniform(60, 6 * HOUR))
        for person in self.due_good:
            assert self.excused(person) or self.board.live(person), f"{person} went quiet"

    async def edit(self) -> None:
        self.wanted ^= {self.chance.choice(PEOPLE)}
        self.due_good &= self.wanted

    async def change_credentials(self) -> None:
        person = self.chance.choice(PEOPLE)
        if person in self.board.revoked:
            self.board.revoked.discard(person)
            await self.process.retry([person])
        else:
            self.board.revoked.add(person)
            self.due_good.discard(person)

    async def change_mood(self) -> None:
        self.board.failing = self.chance.choice([0.0, 0.0, 0.1, 0.5, 0.9])
        self.board.retry_after_s = self.chance.choice([0.0, 30.0, 2 * HOUR])

    async def force(self) -> None:
        await self.process.set_wanted(self.wanted)
        await self.process.force()

    async def renew(self) -> None:
        await self.process.renew_expiring(2 * DAY)

    async def stop_one(self) -> None:
        live = sorted(self.board.all_live())
        with contextlib.suppress(NotFoundError):
            await self.process.stop(self.chance.choice([*live, "never-was-1"]))

    async def hear_syncs(self) -> None:
        while self.board.syncs:
            id, resource_id = self.board.syncs[0]
            await self.process.record_resource(id, resource_id)
            self.board.syncs.pop(0)

    async def both_turn(self) -> None:
        await self.process.set_wanted(self.wanted)
        await self.clock.advance(self.chance.uniform(0, DAY / 4))
        other = _process(self.store, self.board)
        await asyncio.gather(self.process.turn(), other.turn())

    def excused(self, person: str) -> bool:
        """Without credentials, or refused by the provider since its last channel: being opened again."""
        return person in self.board.revoked or person in self.board.refused

    def note_live(self) -> None:
        live = {person for person in self.wanted if self.board.live(person)}
        self.due_good |= live - self.board.revoked

    async def check(self) -> None:
        for person in self.due_good:
            assert self.excused(person) or self.board.live(person), f"{person} went quiet"
        reader = _process(self.store, self.board)
        for id, person in self.board.all_live().items():
            assert await reader.find(id) == person, "a channel is open that nobody knows"

    async def come_to_rest(self) -> None:
        """No more faults: within a few hours all is as it should be."""
        self.board.failing, self.board.retry_after_s = 0.0, 0.0
        self.board.revoked.clear()
        self.process = _process(self.store, self.board)
        await self.process.set_wanted(self.wanted)
        await self.process.retry(PEOPLE)
        await self.hear_syncs()
        for _ in range(4):
            await self.clock.advance(HOUR)
            await self.process.turn()
        assert sorted(self.board.all_live().values()) == sorted(self.wanted)
        assert await _active(self.store) == sorted(self.board.all_live())
        assert (await self.process.health()).verdict == "ok"


async def _live_through(store: Store, clock: ManualClock, *, days: float, seed: int) -> History:
    history = History(store, clock, seed)
    end_s = clock.monotonic() + days * DAY
    rest_s = clock.monotonic() + 10 * DAY
    while clock.monotonic() < end_s:
        await history.step()
        if clock.monotonic() > rest_s:
            await history.come_to_rest()
            rest_s = clock.monotonic() + 10 * DAY
    await history.come_to_rest()
    return history


@pytest.mark.parametrize("kit_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seed", range(3))
async def test_no_calendar_goes_quiet_for_ninety_days_of_crashes_and_failures(
    kit_store: Store, clock: ManualClock, seed: int
) -> None:
    history = await _live_through(kit_store, clock, days=DAYS, seed=seed)
    assert history.crashes > DAYS / 3


@pytest.mark.parametrize("kit_url", ["postgres", "firestore"], indirect=True)
async def test_no_calendar_goes_quiet_for_weeks_on_the_other_engines(
    kit_store: Store, clock: ManualClock
) -> None:
    history = await _live_through(kit_store, clock, days=10, seed=7)
    assert history.crashes > 5
