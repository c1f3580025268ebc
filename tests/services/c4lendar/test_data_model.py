"""The storage design, read from its text: fields, keys, indexes, operations, expiry and migration steps."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.ids import join_segments
from holdfast.kit.connections import Connection
from holdfast.model import CompositeId, Document, schema_of
from holdfast.model.access import SERVICE
from holdfast.services.c4lendar.domain.kv_layout import KvConnection, KvMapping, key_of, read_pairs
from holdfast.services.c4lendar.models import (
    MAPPING_S,
    RECENT_MAX,
    REVOKED_S,
    EventMapping,
    GoogleConnection,
)
from holdfast.store import Query
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness, reference

TEXT: Final = (Path(__file__).parent / "data_model.md").read_text(encoding="utf-8")
CLASSES: Final[dict[str, type[Document]]] = {
    "google_connections": GoogleConnection,
    "event_map": EventMapping,
}
SECTIONS: Final = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, flags=re.MULTILINE | re.DOTALL))
INDEXES: Final = re.findall(r"CREATE INDEX \w+ ON (\w+)\(([^)]*)\)", TEXT)
KEYS: Final = re.findall(r"Key: (\S+)\nValue: [^\n]*\n(.*?)```", TEXT, flags=re.DOTALL)
Check = Callable[[Harness], Awaitable[Any]]


def _listed(section: str) -> list[str]:
    return re.findall(r"^- \d+\. (.*)$", SECTIONS[section], flags=re.MULTILINE)


@pytest.mark.parametrize("table", CLASSES)
def test_a_collection_has_every_column_and_its_unique_key(table: str) -> None:
    statement = SECTIONS[table].partition("CREATE TABLE")[2].partition(");")[0]
    columns = re.findall(r"^  (\w+) +(?:TEXT|INTEGER)", statement, flags=re.MULTILINE)
    schema = schema_of(CLASSES[table])
    assert len(columns) > 8
    assert set(columns) <= {field.encode_name for field in schema.fields.values()}
    unique = re.findall(r"UNIQUE\(([^)]*)\)", statement)[0].split(", ")
    assert isinstance(schema.declared.id, CompositeId)
    assert list(schema.declared.id.fields) == unique


def test_the_design_has_six_indexes() -> None:
    assert len(INDEXES) == 6


@pytest.mark.parametrize(("table", "columns"), INDEXES)
async def test_what_an_index_is_for_is_an_indexed_query(quick: Harness, table: str, columns: str) -> None:
    """The store refuses a query without an index; that of a chat is its tenant's."""
    query: Query[Any] = Query(CLASSES[table])
    in_chat = columns.startswith("chat_id, ")
    for column in columns.removeprefix("chat_id, ").split(", "):
        name, _, descending = column.partition(" ")
        query = query.order_by(f"-{name}") if descending else query.where(name, "==", _value(name))
    store = quick.runtime.store.tenant("-100") if in_chat else quick.runtime.store.privileged()
    assert (await store.query(query)).items == []


def _value(name: str) -> object:
    return 0 if name == "revoked" else "x"


async def test_keys_and_values_are_those_of_the_dump_formats(quick: Harness) -> None:
    patterns = [key for key, _ in KEYS]
    assert len(patterns) == 4
    for pattern, example in KEYS:
        value = json.loads(example)
        if not isinstance(value, dict):
            continue
        kind: Any = KvConnection if pattern.startswith("gc:conn") else KvMapping
        assert list(value) == [field.encode_name for field in msgspec.structs.fields(kind)]
        assert key_of(msgspec.convert(value, kind)) == pattern.format_map(value)
        [row] = read_pairs(json.dumps([{"key": pattern.format_map(value), "value": example}]).encode())
        assert row.value == msgspec.convert(value, kind)
    await quick.connect(ALICE)
    await quick.say("#cal lunch tomorrow noon")
    pairs = {one.key: json.loads(one.value) async for one in quick.operations.kv.dump()}
    recent = pairs[f"gc:event:recent:{ANA}"]
    assert [list(one) for one in recent] == [list(json.loads(KEYS[3][1])[0])]
    assert pairs[f"gc:idx:email:{ALICE}"] == [str(ANA)]


def test_expiry_is_as_designed() -> None:
    expiry, summary = SECTIONS["Expiry"], SECTIONS["Summary"]
    days, day_s = re.findall(r"expirationTtl: (\d+) \* (\d+)", expiry)[0]
    assert int(days) * int(day_s) == MAPPING_S
    retention = schema_of(EventMapping).retention
    assert retention is not None
    assert (retention.field, retention.after_s) == ("updated_at", MAPPING_S)
    revoked_days = int(re.findall(r"Delete after (\d+) days", expiry)[0])
    assert timedelta(seconds=REVOKED_S) == timedelta(days=revoked_days)
    assert int(re.findall(r"capped at (\d+)", summary)[0]) == RECENT_MAX


# -- operations -------------------------------------------------------------------------------------


async def _active(harness: Harness) -> Any:
    [account] = [one for one in await harness.operations.accounts(str(ANA)) if one.google_email == ALICE]
    return account


async def _by_sub(harness: Harness) -> None:
    account = await _active(harness)
    id = join_segments(str(ANA), account.google_sub)
    assert await harness.runtime.store.tenant(str(ANA)).get(GoogleConnection, id) is not None


async def _by_email(harness: Harness) -> None:
    query = Query(GoogleConnection).where("google_email", "==", ALICE)
    [found] = (await harness.runtime.store.tenant(str(ANA)).query(query)).docs
    assert found == await _active(harness)


async def _disconnect(harness: Harness) -> None:
    await harness.say(f"#dis {ALICE}")
    [row] = await harness.operations.accounts(str(ANA), revoked=True)
    assert row.revoked == 1


async def _purge(harness: Harness) -> None:
    harness.clock.tick(REVOKED_S + 1)
    await harness.runtime.store.privileged().expire(GoogleConnection)
    assert await harness.operations.accounts(str(ANA), revoked=True) == []


async def _mappings(harness: Harness) -> None:
    [newest, *_] = await harness.operations.recent(str(ANA))
    assert len(await harness.operations.mappings(str(ANA), newest.uid)) == 2


async def _made(harness: Harness) -> None:
    assert "2/2 accounts" in await harness.say("#cal lunch tomorrow noon")


async def _newest(harness: Harness) -> None:
    await harness.say("#cal tea tomorrow 5pm")
    assert [one.title for one in await harness.operations.recent(str(ANA))] == ["tea", "lunch"]


async def _short(harness: Harness) -> None:
    answer = await harness.say("#cal walk tomorrow 7pm")
    assert "walk → hike" in await harness.say(f"#alt {reference(answer)} rename to hike")


async def _fuzzy(harness: Harness) -> None:
    assert "hike" in await harness.say("#del hkie")


async def _updated(harness: Harness) -> None:
    await harness.say("#alt rename to supper")
    [newest, *_] = await harness.operations.recent(str(ANA))
    rows = await harness.operations.mappings(str(ANA), newest.uid)
    assert {row.event_title for row in rows} == {"supper"}
    harness.clock.tick(MAPPING_S - 60)
    await harness.runtime.store.privileged().expire(EventMapping)
    assert len(await harness.operations.mappings(str(ANA), newest.uid)) == 2, "an update renews its life"


async def _deleted(harness: Harness) -> None:
    [newest, *_] = await harness.operations.recent(str(ANA))
    await harness.say("#del")
    assert await harness.operations.mappings(str(ANA), newest.uid) == []


async def _account_gone(harness: Harness) -> None:
    [event, *_] = await harness.operations.recent(str(ANA))
    await harness.say(f"#dis {BOB}")
    [row] = await harness.operations.mappings(str(ANA), event.uid)
    assert row.google_sub == (await _active(harness)).google_sub


CONNECTIONS: Final[dict[str, Check]] = {
    "Store Connection": lambda harness: harness.connect(ALICE),
    "Get All Active Connections for Chat": _active,
    "Get Connection by Email (in specific chat)": _by_email,
    "Get Connection by Google Sub": _by_sub,
    "Update Connection (mark revoked, update tokens, etc.)": _disconnect,
    "Delete Connection": _purge,
}
EVENTS: Final[dict[str, Check]] = {
    "Store Event Mapping": _made,
    "Get All Mappings for Bot Event": _mappings,
    "Get Most Recent Bot Event UID": _newest,
    "Resolve Bot Event UID by Short Reference": _short,
    "Fuzzy Resolve Event (by title/time)": _fuzzy,
    "Update Event Mapping (after #alt)": _updated,
    "Delete Event Mappings": _deleted,
    "Delete Event Mappings for Account (when #dis)": _account_gone,
}


@pytest.mark.parametrize(("section", "checks"), [("google_connections", CONNECTIONS), ("event_map", EVENTS)])
async def test_every_operation_of_the_design_has_its_effect(
    quick: Harness, section: str, checks: dict[str, Check]
) -> None:
    assert _listed(section) == list(checks)
    if section == "event_map":
        await quick.connect(ALICE)
        await quick.connect(BOB)
    for check in checks.values():
        await check(quick)


async def test_the_migration_steps_are_those_of_an_import(quick: Harness) -> None:
    steps = ["Fetch existing token", "Run migration for all chats"]
    assert _listed("Migration steps") == [*steps, "Backfill event_map (optional, for recent events)"]
    former, selection = re.findall(r"^(\S+) → [^\n]*\n(\{.*?^\})", TEXT, flags=re.MULTILINE | re.DOTALL)
    value = re.sub(r"  // .*", "", former[1]).replace('"refresh_token": "..."', '"refresh_token": "1//0g"')
    pairs = [{"key": former[0].format(chat_id=chat), "value": value} for chat in ("-1", "-2")]
    pairs.append({"key": selection[0].format(chat_id="-1", user_id=7), "value": "{}"})
    rows = read_pairs(json.dumps(pairs).encode())
    report = await quick.operations.import_kv(quick.runtime.operator(SERVICE, "-"), rows)
    assert (report.faults, len(report.chats), sum(report.skipped.values())) == ([], 2, 1)
    for chat in ("-1", "-2"):
        [account] = await quick.operations.accounts(chat)
        assert (account.google_email, account.connected_by_telegram_user_id) == ("user@gmail.com", 555555)
        stored = await quick.runtime.store.privileged().get(Connection, account.connection_id)
        assert stored is not None
        sealed = stored.doc.refresh_token
        assert "1//0g" not in sealed
        field = quick.runtime.vault.field(Connection, "refresh_token")
        assert field.open(sealed, stored.doc.id).reveal() == "1//0g"
