"""Hacker News, simulated: a thousand stories that are voted on and age, read without what one hid."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.errors import RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.models import Story
from holdfast.services.hackernews.operations import HackerNews
from holdfast.simulators.hackernews import (
    AddAccount,
    AddStories,
    Age,
    ChangeItem,
    HackerNewsSimulator,
    Outage,
    PostItem,
)
from holdfast.store import Query, delete, patch

STORIES: Final = 1_000
BATCH: Final = 400
READER, PASSWORD = "reader", "simulated"
YOURS: Final = "Show HN: A story you posted yourself"


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """A thousand stories, most of them of the last weeks, and somebody who can sign in."""
    hackernews = world.get(HackerNewsSimulator)
    for count, days in ((STORIES // 5, 600.0), (STORIES * 2 // 5, 28.0), (STORIES * 2 // 5, 2.0)):
        hackernews.run(AddStories(count=count, days=days))
    hackernews.run(AddAccount(acct=READER, pw=PASSWORD))
    return {
        "enabled": True, "api_url": hackernews.api_url, "site_url": hackernews.url,
        "worker_cron": "* * * * *",
    }  # fmt: skip


def _operations(stage: Stage) -> HackerNews:
    operations: HackerNews = stage.operations("hackernews")
    return operations


async def open_scene(stage: Stage) -> None:
    """Fetch everything again: the simulated site starts over with every demo, under the same ids."""
    operations, state = _operations(stage), stage.world.get(HackerNewsSimulator).state
    while found := (await stage.store.query(Query(Story).order_by("-id").limit(BATCH))).docs:
        await stage.store.commit(*(delete(Story, story.key) for story in found))
    await operations.clear_cache(stage.operator(NO_TENANT))
    await operations.backfill(stage.operator(NO_TENANT), first_id=min(state.items), last_id=state.max_id)


async def act(stage: Stage) -> None:
    """Somebody posts, many vote; the first round does not wait for its minute."""
    if not await _operations(stage).rounds(limit=1):
        await run_round(stage)
    hackernews = stage.world.get(HackerNewsSimulator)
    hackernews.run(Age(hours=0.1))
    if random.random() < 0.5:
        hackernews.run(PostItem(score=random.randrange(1, 40)))


async def post(stage: Stage) -> str:
    stage.world.get(HackerNewsSimulator).run(PostItem(title=YOURS, score=4_000, by=READER))
    said = await run_round(stage)
    return f"“{YOURS}” is posted; it goes near the top of every list, also of the longer ones. {said}"


async def pass_hour(stage: Stage) -> str:
    """As if no story of the day had been updated for an hour, in which people voted."""
    stage.world.get(HackerNewsSimulator).run(Age(hours=2.0))
    now = stage.clock.now()
    recent = (
        Query(Story).where("time", ">", now - timedelta(days=1)).order_by("-time", "-updated").limit(BATCH)
    )
    stale = [patch(Story, one.key, changes={"updated": max(one.time, now - timedelta(minutes=61))})
             for one in (await stage.store.query(recent.limit(BATCH))).docs]  # fmt: skip
    await stage.store.commit(*stale)
    return f"People voted for an hour. {await run_round(stage)}"


async def kill(stage: Stage) -> str:
    page = await _operations(stage).stories(StoriesQuery(timespan="Day", limit=1))
    if not page.stories:
        return "There is no story of the last day."
    stage.world.get(HackerNewsSimulator).run(ChangeItem(id=page.stories[0].id, dead=True))
    return f"“{page.stories[0].title}” is dead at Hacker News. Let an hour pass, and it is gone here too."


async def run_round(stage: Stage) -> str:
    try:
        found = await _operations(stage).run_worker(stage.operator(NO_TENANT))
    except RetryLaterError as fault:
        return f"No round now: {fault.message}."
    return f"{found.new} new, {sum(found.refreshed.values())} refreshed, {found.failed} failed."


async def fail(stage: Stage) -> str:
    stage.world.get(HackerNewsSimulator).run(Outage())
    return "Hacker News answers 503. Stories are still shown; rounds fail, and catch up afterwards."


async def restore(stage: Stage) -> str:
    stage.world.get(HackerNewsSimulator).run(Outage(on=False))
    return "Hacker News answers again; the next round fetches what was missed."


async def clear(stage: Stage) -> str:
    await _operations(stage).clear_cache(stage.operator(NO_TENANT))
    return "The lists are gone from memory and store; the next reader has them computed, once."


async def facts(stage: Stage) -> list[Fact]:
    operations = _operations(stage)
    (day, *_), rounds = await operations.spans(), await operations.rounds(limit=1)
    found: list[Fact] = [
        ("Sign in as", f"{READER}, password {PASSWORD}"), ("Stories of the last day", str(day.stories))
    ]  # fmt: skip
    for last in rounds:
        refreshed = sum(last.refreshed.values())
        found.append(("Last round", f"{last.status}: {last.new} new, {refreshed} refreshed"))
    return found


scene = Scene(
    title="Hacker News",
    about="A thousand simulated stories are posted, voted on and grow old. Readers see the best of a day, "
    "a week, a month, a year or of all time, without those they hid.",
    settings=settings,
    open=open_scene,
    act=act,
    every_s=10.0,
    controls=[
        Control(name="post", label="Post a story", kind="primary", run=post),
        Control(name="hour", label="Let an hour pass", run=pass_hour),
        Control(name="round", label="Run the worker", run=run_round),
        Control(name="kill", label="Kill the top story", kind="danger", run=kill),
        Control(name="clear", label="Clear the cache", kind="danger", run=clear),
        Control(name="fail", label="Take Hacker News down", kind="danger", run=fail),
        Control(name="restore", label="Bring it back", run=restore),
    ],
    facts=facts,
    live=["hackernews"],
)
