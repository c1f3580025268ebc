"""The data model, row by row as `data_model.md` has it: names, types, ids, indexes, times, limits, tiers."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from holdfast.app import open_store
from holdfast.config import load_config
from holdfast.kit.cache import CacheGeneration
from holdfast.kit.leases import LeaseDocument
from holdfast.model import Document, schema_of
from holdfast.model.export.firestore_indexes import firestore_indexes
from holdfast.model.limits import DOCUMENT_BYTES_MAX
from holdfast.services.hackernews import service
from holdfast.services.hackernews.domain.spans import (
    KEPT_MAX,
    PAGE_MAX,
    SPANS,
    TIERS,
    WORKER_BATCH_MAX,
    span_of,
)
from holdfast.services.hackernews.hidden_stories import HiddenStories
from holdfast.services.hackernews.models import DOCUMENTS, CachedSpan, HiddenStory, Reader, Story
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.services.hackernews.story_store import key_of, latest_story_id, stale_stories
from holdfast.store import Query, Store
from holdfast.testing import ManualClock
from tests.services.hackernews.harness import Harness, a_story, store_stories

UNITS_S: Final = {"min": 60, "h": 3_600, "d": 86_400}
CLASSES: Final[tuple[type[Document], ...]] = (*DOCUMENTS, CacheGeneration, LeaseDocument)


def _table(section: str) -> list[list[str]]:
    """The rows of a section's table."""
    text = (Path(__file__).parent / "data_model.md").read_text()
    part = text.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def _seconds(text: str) -> int | None:
    if not text:
        return None
    number, unit = text.split()
    return int(number) * UNITS_S[unit]


@pytest.mark.parametrize(("environment", "prefix", "names"), _table("Prefixes"))
def test_collections_are_prefixed_by_the_environment(environment: str, prefix: str, names: str) -> None:
    for name in [environment] if environment != "anything else" else ["development", "test", "Production"]:
        env = load_config({}, environ={"HOLDFAST_ENV": name}).prefix
        assert f"{env}-" == prefix
        groups = [schema_of(cls).path.group(env) for cls in (Story, Reader, CachedSpan)]
        assert groups == names.split(", ")
        assert schema_of(HiddenStory).path.document(("dang", "42345678"), env) == (
            f"{prefix}users/dang/hidden/42345678"
        )


async def _filled(store: Store, clock: ManualClock) -> None:
    story = a_story(42_345_678, score=7, at=clock.now(), kids=[1, 2], url="https://example.com/")
    await store_stories(store, [story])
    await HiddenStories(store).add("dang", [42_345_678])
    await StoryCache(store).stories(SPANS["Week"])


# The types of the tables, as JSON has them; times are text there.
TYPES: Final[dict[str, type]] = {"string": str, "number": int, "timestamp": str, "array of number": list,
                                 "array of object": list}  # fmt: skip


async def _stored_json(store: Store, cls: type[Document], *ids: str) -> dict[str, Any]:
    found = await store.get(cls, *ids)
    assert found is not None
    stored: dict[str, Any] = json.loads(schema_of(cls).prepare(found.doc).body)
    return stored


async def test_documents_have_the_fields_of_the_tables_under_their_ids(
    sqlite_url: str, clock: ManualClock
) -> None:
    store = await open_store(sqlite_url, CLASSES, clock=clock)
    await store.migrate()
    await _filled(store, clock)
    stories = await _stored_json(store, Story, "0042345678")
    assert {name: type(value) for name, value in stories.items()} == {
        name: TYPES[kind] for name, kind in _table("Stories")
    }
    assert await _stored_json(store, Reader, "dang") == {}
    hidden = await _stored_json(store, HiddenStory, "dang", "42345678")
    assert hidden == {"addedAt": clock.now_us() // 1_000}
    assert [[name, "number"] for name in hidden] == _table("Hidden")
    cached = await _stored_json(store, CachedSpan, "Week")
    rows = dict(_table("Cache"))
    # `revision` is ours: by it a computation that was overtaken is found out.
    own = {name: TYPES[kind] for name, kind in rows.items() if "[]" not in name}
    assert {name: type(value) for name, value in cached.items()} == own | {"revision": int}
    items = {name.removeprefix("stories[]."): TYPES[kind] for name, kind in rows.items() if "[]" in name}
    (story,) = cached["stories"]
    assert {name: type(value) for name, value in story.items()} == items
    assert story["time"] == cached["cachedAt"] == clock.now_us() // 1_000
    await store.close()


def _firestore_json(url: str, path: str) -> dict[str, Any]:
    """A document as Firestore itself has it."""
    parts = urlsplit(url)
    place = f"projects/{parts.netloc}/databases/(default)/documents/{path}"
    asked = urllib.request.Request(f"http://{parse_qs(parts.query)['emulator'][0]}/v1/{place}")
    asked.add_header("authorization", "Bearer owner")
    with urllib.request.urlopen(asked) as answer:
        fields: dict[str, Any] = json.load(answer).get("fields", {})
    return {name: value for name, value in fields.items() if not name.startswith("_")}


async def test_firestore_has_the_paths_and_types_of_the_tables(
    firestore_url: str, clock: ManualClock
) -> None:
    store = await open_store(firestore_url, CLASSES, env="ci", clock=clock)
    await store.migrate()
    await _filled(store, clock)
    await store.close()
    kinds = {"string": "stringValue", "number": "integerValue", "timestamp": "timestampValue"}

    def types(fields: dict[str, Any]) -> dict[str, str]:
        return {name: next(iter(value)) for name, value in fields.items()}

    def expected(section: str) -> dict[str, str]:
        return {name: kinds.get(kind, "arrayValue") for name, kind in _table(section) if "[]" not in name}

    assert types(_firestore_json(firestore_url, "ci-stories/0042345678")) == expected("Stories")
    assert _firestore_json(firestore_url, "ci-users/dang") == {}
    assert types(_firestore_json(firestore_url, "ci-users/dang/hidden/42345678")) == expected("Hidden")
    cached = _firestore_json(firestore_url, "ci-cache/Week")
    assert types(cached) == expected("Cache") | {"revision": "integerValue"}
    (story,) = cached["stories"]["arrayValue"]["values"]
    assert types(story["mapValue"]["fields"])["time"] == "integerValue"


def test_ids_of_stories_sort_as_numbers() -> None:
    assert [key_of(one) for one in (8_863, 42_345_678)] == ["0000008863", "0042345678"]
    story = a_story(8_863, score=1, at=datetime(2026, 1, 1, tzinfo=UTC))
    schema_of(Story).assign_id(story)
    assert story.key == "0000008863"


def test_timespans_lengths_and_times_to_live_are_those_of_the_table() -> None:
    assert {span.name: (span.length_s, span.ttl_s) for span in SPANS.values()} == {
        name: (_seconds(length), _seconds(ttl)) for name, length, ttl in _table("Timespans")
    }
    assert [span_of(text).name for text in ("Day", "day", "", "Year", "Fortnight")] == [
        "Day", "All", "All", "Year", "All"
    ]  # fmt: skip


def test_limits_and_tiers_are_those_of_the_tables() -> None:
    limits = (KEPT_MAX, PAGE_MAX, WORKER_BATCH_MAX, DOCUMENT_BYTES_MAX)
    assert [int(value) for _, value in _table("Limits")] == list(limits)
    tiers = [[_seconds(young), _seconds(stale)] for young, stale in _table("Refresh tiers")]
    assert [[tier.span.length_s, tier.stale_s] for tier in TIERS] == tiers


@pytest.mark.parametrize("env", ["prod", "dev"])
def test_the_composite_index_is_exported_for_each_environment(env: str) -> None:
    exported = json.loads(firestore_indexes([schema_of(cls) for cls in DOCUMENTS], env))["indexes"]
    found = [
        [one["collectionGroup"], ", ".join(f"{f['fieldPath']} {f['order'][:-6]}" for f in one["fields"])]
        for one in exported
    ]
    for collection, fields in _table("Indexes"):
        assert [f"{env}-{collection}", fields] in found


async def test_each_query_of_the_table_is_served_by_an_index(harness: Harness, clock: ManualClock) -> None:
    store, now = harness.runtime.store, clock.now()
    ages_s = {1: 100, 2: 90_000, 3: 700_000, 4: 50}
    await store_stories(store, [
        a_story(n, score=n, at=now - timedelta(seconds=age), updated=now - timedelta(seconds=age))
        for n, age in ages_s.items()
    ])  # fmt: skip
    assert [row[0] for row in _table("Queries")] == [
        "list of All", "list of a timespan", "stale stories", "newest story"
    ]  # fmt: skip
    assert await harness.ids("All") == [4, 3, 2, 1]
    assert await harness.ids("Day") == [4, 1]
    assert await stale_stories(store, TIERS[0], now=now) == []
    assert await stale_stories(store, TIERS[1], now=now) == [2]
    assert await stale_stories(store, TIERS[2], now=now) == [3]
    assert await latest_story_id(store) == 4


def test_importing_and_building_the_service_connects_to_nothing() -> None:
    script = (
        "import socket, sys\n"
        "def refuse(*given): raise AssertionError('connected')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import holdfast.services.hackernews, holdfast.services.hackernews.commands\n"
        "print([name for name in sys.modules if name.startswith(('google', 'asyncpg', 'apsw', 'grpc'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


async def test_a_store_can_be_injected(sqlite_url: str, clock: ManualClock) -> None:
    store = await open_store(sqlite_url, CLASSES, clock=clock)
    await store.migrate()
    await store_stories(store, [a_story(1, score=5, at=clock.now())])
    assert [one.id for one in (await StoryCache(store).stories(SPANS["All"])).stories] == [1]
    assert (await store.query(Query(Story).order_by("-id"))).docs[0].title == "Story 1"
    await store.close()
    assert {cls.__name__ for cls in service.documents} == {cls.__name__ for cls in DOCUMENTS}
