"""Back-fill: the missing stories of a range, resumed after a kill, with what failed tried again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import InvalidError, RetryLaterError
from holdfast.services.hackernews.backfill import BATCH, BackfillProgress
from holdfast.services.hackernews.models import Story
from holdfast.simulators.hackernews import (
    AddStories,
    ChangeItem,
    HackerNewsSimulator,
    InjectedFault,
    Outage,
    PostItem,
)
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.cli.terminal import typed
from tests.kit.eventually import until, until_found
from tests.services.hackernews.harness import Harness, news_harness, opened, while_time_passes


async def _ids(harness: Harness) -> set[int]:
    query = Query(Story).order_by("-id").limit(1_000)
    return {one.doc.id async for one in harness.runtime.store.scan(query)}


def _range(hackernews: HackerNewsSimulator) -> tuple[int, int]:
    return min(hackernews.state.items), hackernews.state.max_id


async def test_the_missing_stories_of_a_range_are_stored_and_in_the_lists(harness: Harness) -> None:
    harness.hackernews.run(AddStories(count=130, days=500))
    first, last = _range(harness.hackernews)
    every = set(harness.hackernews.state.items)
    await harness.operations.backfills.run(first, first + 90)
    before = await _ids(harness)
    assert 0 < len(before) < 91
    assert set(await harness.ids("All")) == before
    reports: list[BackfillProgress] = []
    done = await harness.operations.backfill(harness.by, first_id=first, last_id=last, report=reports.append)
    assert await _ids(harness) == set(await harness.ids("All")) == every
    assert (done.stored, done.present) == (len(every - before), len(before))
    assert done.stored + done.present + done.other == done.total == last - first + 1
    assert [one.done for one in reports] == [0, BATCH, done.total]
    again = await harness.operations.backfills.run(first, last)
    assert (again.stored, again.present, again.resumed) == (0, len(every), False)


async def test_items_that_failed_are_tried_again_by_the_next_run_and_others_are_not(
    quick_harness: Harness, clock: ManualClock
) -> None:
    news = quick_harness
    news.hackernews.run(AddStories(count=300, days=300))
    first, last = _range(news.hackernews)
    bad = sorted(news.hackernews.state.items)[5]
    news.hackernews.inject(InjectedFault(path=f"/item/{bad}.json", status=500, count=2))
    done = await while_time_passes(clock, news.operations.backfills.run(first, last))
    assert (done.stored, done.failed, done.finished) == (299, (bad,), False)
    news.hackernews.calls.clear()
    done = await news.operations.backfills.run(first, last)
    assert (done.stored, done.failed, done.resumed) == (300, (), True)
    assert [call.path for call in news.hackernews.calls] == [f"/v0/item/{bad}.json"]


async def test_an_outage_stops_it_where_it_is(quick_harness: Harness, clock: ManualClock) -> None:
    news = quick_harness
    news.hackernews.run(AddStories(count=300, days=300))
    first, last = _range(news.hackernews)

    def report(progress: BackfillProgress) -> None:
        if progress.done >= 2 * BATCH:
            news.hackernews.run(Outage())

    with pytest.raises(RetryLaterError, match="run the same command again"):
        await while_time_passes(clock, news.operations.backfills.run(first, last, report=report))
    news.hackernews.run(Outage(on=False))
    reports: list[BackfillProgress] = []
    done = await news.operations.backfills.run(first, last, report=reports.append)
    assert (reports[0].done, done.stored, done.present) == (2 * BATCH, 300, 0)


async def test_one_back_fill_at_a_time_and_only_of_a_sensible_range(
    quick_harness: Harness, sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    news = quick_harness
    for first, last in ((0, 5), (6, 5), (1, 10**10)):
        with pytest.raises(InvalidError):
            await news.operations.backfills.run(first, last)
    item: Any = news.hackernews.run(PostItem())
    news.hackernews.run(ChangeItem(id=item["id"], delay_s=60.0))
    running = asyncio.create_task(news.operations.backfills.run(item["id"], item["id"]))
    await until(lambda: clock.sleepers > 1, within_s=30)
    async with opened(sqlite_url, clock, tmp_path, hackernews=news.hackernews) as other:
        with pytest.raises(RetryLaterError, match="held by another"):
            await while_time_passes(clock, other.operations.backfills.run(1, 5))
    assert (await while_time_passes(clock, asyncio.wait_for(running, 30), step_s=1.0)).stored == 1


# -- at a terminal ---------------------------------------------------------------------------------


def write_settings(news: Harness, home: Path) -> None:
    """Write the harness's settings where commands read them."""
    table = {"api_url": news.hackernews.api_url, "site_url": news.hackernews.url}
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    head = [f"store = {json.dumps(news.runtime.config.store)}", f"home = {json.dumps(str(home))}"]
    (home / "holdfast.toml").write_text(
        "\n".join([*head, "[service.hackernews]", "enabled = true", *lines, ""])
    )


@pytest.fixture
async def live(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Harness]:
    async with news_harness(sqlite_url, SystemClock(), tmp_path) as news:
        write_settings(news, tmp_path)
        yield news


async def test_a_killed_back_fill_goes_on_where_it_was_with_a_bar_on_the_terminal(
    live: Harness, tmp_path: Path
) -> None:
    live.hackernews.run(AddStories(count=600, days=300))
    first, last = _range(live.hackernews)
    words = [sys.executable, "-m", "holdfast", "hackernews", "backfill", "--from", str(first)]
    middle = sorted(live.hackernews.state.items)[300]
    live.hackernews.run(ChangeItem(id=middle, delay_s=3_600.0))
    process = await asyncio.create_subprocess_exec(*words, "--to", str(last), cwd=tmp_path)

    async def some_stored() -> bool:
        return len(await _ids(live)) > 50

    await until_found(some_stored)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    stored = await _ids(live)
    assert 50 < len(stored) < 600
    live.hackernews.run(ChangeItem(id=middle, delay_s=0.0))
    live.hackernews.calls.clear()
    # The killed process's lease runs out while this one waits.
    code, shown = await asyncio.to_thread(_typed_at_terminal, [*words, "--to", str(last)], tmp_path)
    assert code == 0, shown
    assert await _ids(live) == set(live.hackernews.state.items)
    asked = [call.path for call in live.hackernews.calls if "/item/" in call.path]
    assert len(asked) <= last - first + 1 - min(len(stored), BATCH)
    assert ("going on" in shown, "━" in shown, " 0 failed" in shown) == (True, True, True)


def _typed_at_terminal(words: list[str], home: Path) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        words, cwd=home, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "COLUMNS": "120"}
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65_536):
                shown += part
        os.close(ours)
    return process.returncode, shown.decode(errors="replace")


async def test_every_command_at_a_terminal(live: Harness, tmp_path: Path) -> None:
    async def run(*words: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(typed, tmp_path, "hackernews", *words)

    live.hackernews.run(AddStories(count=40, days=3))
    best: Any = live.hackernews.run(PostItem(title="Show HN: \x1b[31ma holdfast", score=9_999, by="ada_l"))
    code, out, err = await run("worker", "run")
    assert (code, out.startswith("41 new, 0 refreshed")) == (0, True), err
    code, out, _ = await run("stories", "--timespan", "Week", "--limit", "3", "--json")
    rows = json.loads(out)["items"]
    assert (code, len(rows), rows[0]["id"]) == (0, 3, best["id"])
    code, out, _ = await run("stories", "--search", "holdfast", "--by", "ada_l", "--min-score", "10")
    assert (code, "\x1b" in out, "holdfast" in out) == (0, False, True)
    code, out, _ = await run("hidden", "add", "pg", str(best["id"]))
    assert (code, out) == (0, "1 hidden that were not\n")
    code, out, _ = await run("stories", "--reader", "pg", "--timespan", "Week", "--json")
    assert best["id"] not in [row["id"] for row in json.loads(out)["items"]]
    code, out, _ = await run("hidden", "list", "pg", "--json")
    assert [row["id"] for row in json.loads(out)["items"]] == [best["id"]]
    code, out, _ = await run("hidden", "remove", "pg", str(best["id"]))
    assert (code, out) == (0, "shown again\n")
    code, out, err = await run("hidden", "add", "p/g", "1")
    assert (code, "a name has" in err) == (1, True)
    code, out, _ = await run("cache", "show", "--json")
    assert {row["timespan"]: row["stories"] for row in json.loads(out)["items"]}["Week"] == 41
    code, out, _ = await run("cache", "clear")
    assert (code, out) == (0, "cleared\n")
    code, out, _ = await run("cache", "show", "--json")
    assert [row["stories"] for row in json.loads(out)["items"]] == [0] * 5
    code, out, _ = await run("worker", "rounds", "--json")
    assert [row["new"] for row in json.loads(out)["items"]] == [41]
    first, last = _range(live.hackernews)
    code, out, _ = await run("backfill", "--from", str(first), "--json")
    assert (code, json.loads(out)["present"], json.loads(out)["lastId"]) == (0, 41, last)
