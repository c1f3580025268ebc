"""Views: every collection readable with plain SQL, on both SQL engines, under the same rules of access."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import apsw
import asyncpg
import msgspec
import pytest

from holdfast.app import open_store
from holdfast.errors import DeclarationError, InvalidError
from holdfast.model import HIDDEN, Claim, Document, Index, document, schema_of
from holdfast.runtime import documents_of, find_services
from holdfast.store import Catalog, Fence, Increment, MigrationRequest, Store, create, patch, upsert
from holdfast.store.sql import migration
from tests.copying.samples import fill, sample

NOW = datetime.now(UTC)


class Place(msgspec.Struct, frozen=True):
    x: int


@document(
    "letters/{box}/pages/{id}",
    tenant="team",
    path_only=["box"],
    claim=Claim(due="due", fence="fence", owner="owner"),
)
class Letter(Document, rename="camel"):
    box: str
    id: str
    team: str = "acme"
    due: datetime | None = None
    fence: int = 0
    owner: str | None = None
    price: Decimal = Decimal("0.10")
    day: date = date(2026, 1, 2)
    body: bytes = b"\x00\xff"
    place: Place | None = None
    labels: list[str] = []
    text: str = ""
    kind: Literal["a", "b"] = "a"
    hash: Annotated[str, HIDDEN] = "f00d"


@document("notes/{id}")
class Short(Document):
    id: str
    text: str = ""


@document("notes/{id}")
class Long(Document):
    id: str
    text: str = ""
    stars: int = 5
    marks: list[int] = []


@document("totals/{id}", indexes=[Index("runs")])
class Total(Document):
    id: str
    runs: int


@document("tasks/{id}", claim=Claim(due="due", fence="fence", state=("state", "taken")))
class Claimed(Document):
    id: str
    due: datetime | None = None
    fence: int = 0
    state: Literal["open", "taken"] = "open"


@document("tasks/{id}", indexes=[Index("state")])
class Unclaimed(Document):
    id: str
    state: int = 0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def _rows(url: str, sql: str) -> list[dict[str, Any]]:
    """What plain SQL gives, by another driver's connection than the store's."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        cursor = connection.execute(sql)
        found = [dict(zip([one[0] for one in cursor.get_description()], row, strict=True)) for row in cursor]
        connection.close()
        return found
    server = await asyncpg.connect(url)
    rows = await server.fetch(sql)
    await server.close()
    return [dict(row) for row in rows]


async def _columns(url: str, view: str) -> list[str]:
    if url.startswith("sqlite"):
        return [row["name"] for row in await _rows(url, f"SELECT name FROM pragma_table_info('{view}')")]
    rows = await _rows(
        url, f"SELECT attname FROM pg_attribute WHERE attrelid = '\"{view}\"'::regclass ORDER BY attnum"
    )
    return [row["attname"] for row in rows]


@asynccontextmanager
async def _opened(url: str, *classes: type[Document]) -> AsyncIterator[Store]:
    store = await open_store(url, classes)
    try:
        yield store
    finally:
        await store.close()


async def _migrate(url: str, *classes: type[Document]) -> list[str]:
    async with _opened(url, *classes) as store:
        return await store.migrate()


def _plain(value: Any) -> Any:
    """A value of either engine as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return json.loads(value)
    return str(value) if isinstance(value, date) else value


def _expected(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 19 and value[10:11] == "T":
        return datetime.fromisoformat(value).isoformat()
    return value


def _can_be_sampled(cls: type[Document]) -> bool:
    """Whether made-up values fit: patterns of addresses and the like they don't."""
    try:
        return all(sample(cls, number) for number in range(2))
    except (InvalidError, NotImplementedError, ValueError):
        return False


async def test_every_collection_has_a_view_with_the_fields_and_values_of_its_documents(url: str) -> None:
    classes = documents_of(find_services())
    async with _opened(url, *classes) as store:
        await store.migrate()
        assert await store.migrate() == []
        sampled = [cls for cls in classes if _can_be_sampled(cls)]
        assert len(sampled) > len(classes) // 2
        await fill(store, sampled, 2)
        for cls in classes:
            await _compare(store, cls, url)


async def _compare(store: Store, cls: type[Document], url: str) -> None:
    schema = schema_of(cls)
    view = f"view_{store.catalog.table(schema)}"
    fields = [f.encode_name for name, f in schema.fields.items() if name not in schema.hidden]
    assert await _columns(url, view) == fields
    for row in await _rows(url, f'SELECT * FROM "{view}"'):
        ids = [row[schema.fields[name].encode_name] for name in schema.path.parameters]
        stored = await store.privileged().get(cls, *ids)
        assert stored is not None
        whole = msgspec.json.decode(msgspec.json.encode(stored.doc))
        for name in fields:
            assert _expected(_plain(row[name])) == _expected(whole.get(name)), (view, name)


async def test_a_view_shows_natural_types_and_what_claims_and_patches_changed(url: str) -> None:
    letter = Letter(
        box="b", id="1", due=NOW, place=Place(3), labels=["x"], text="nul\0 and \\u0000", kind="b"
    )
    async with _opened(url, Letter) as store:
        await store.migrate()
        await store.tenant("acme").commit(create(letter), create(Letter(box="b", id="2", place=Place(1))))
        (claim,) = await store.privileged().claim_due(Letter, limit=1, lease_s=60, owner="me")
        await store.tenant("acme").commit(
            patch(Letter, "b", "1", changes={"kind": "a", "place": None}, expect=Fence(claim.doc.fence))
        )
        stored = await store.tenant("acme").get(Letter, "b", "1")
        assert stored is not None
        view = f"view_{store.catalog.table(schema_of(Letter))}"
    row, _ = await _rows(url, f'SELECT * FROM "{view}" ORDER BY id')
    assert "hash" not in row
    assert (row["box"], row["team"], row["fence"], row["owner"]) == ("b", "acme", claim.doc.fence, "me")
    assert (row["kind"], row["place"]) == ("a", None)
    assert Decimal(str(row["price"])) == Decimal("0.1")
    assert (str(row["day"]), json.loads(row["labels"])) == ("2026-01-02", ["x"])
    due = row["due"] if isinstance(row["due"], datetime) else datetime.fromisoformat(row["due"])
    assert due == stored.doc.due
    if url.startswith("postgres"):
        assert (row["body"], row["day"], type(row["price"])) == (letter.body, letter.day, Decimal)
        assert row["text"] == "nul\ufffd and \\u0000"
    (total,) = await _rows(url, f'SELECT sum(price) AS price FROM "{view}" WHERE price < 1')
    assert round(float(total["price"]), 6) == 0.2


async def test_a_view_shows_what_was_counted_since_the_document_was_written(url: str) -> None:
    async with _opened(url, Total) as store:
        await store.migrate()
        for _ in range(2):
            await store.commit(upsert(Total(id="a", runs=1), changes={"runs": Increment(1)}))
    assert await _rows(url, "SELECT * FROM view_totals") == [{"id": "a", "runs": 2}]


async def test_a_view_follows_an_added_field_and_shows_its_default_for_older_documents(url: str) -> None:
    async with _opened(url, Short) as store:
        await store.migrate()
        await store.commit(create(Short(id="a", text="x")))
    rolling = MigrationRequest(other_releases=True)
    async with _opened(url, Long) as store:
        assert await store.diff(rolling) == ["replace view view_notes"]
        assert await store.migrate(rolling) == ["replace view view_notes"]
        assert (await store.diff(), await store.diff(MigrationRequest(drop=True))) == ([], [])
    (row,) = await _rows(url, "SELECT * FROM view_notes")
    assert (row["text"], row["stars"], json.loads(row["marks"])) == ("x", 5, [])
    async with _opened(url, Short) as older:
        assert await older.migrate(rolling) == [], "an older process beside a newer one takes nothing away"
        assert await _columns(url, "view_notes") == ["id", "text", "stars", "marks"]
        assert await older.migrate() == ["replace view view_notes"]
        assert await _columns(url, "view_notes") == ["id", "text"]


async def test_columns_that_a_view_uses_can_be_replaced_and_dropped(url: str) -> None:
    await _migrate(url, Claimed)
    async with _opened(url, Unclaimed) as store:
        steps = await store.migrate()
        assert "replace column tasks.state" in steps
        assert "replace view view_tasks" in steps
        await store.commit(create(Unclaimed(id="a", state=3)))
        assert "drop column tasks.fence" in await store.migrate(MigrationRequest(drop=True))
        assert (await store.diff(), await store.diff(MigrationRequest(drop=True))) == ([], [])
    assert await _rows(url, "SELECT * FROM view_tasks") == [{"id": "a", "state": 3}]


async def test_views_of_others_outlive_a_migration(url: str) -> None:
    await _migrate(url, Claimed)
    await _rows(url, "CREATE VIEW theirs AS SELECT id, state FROM view_tasks")
    async with _opened(url, Unclaimed) as store:
        await store.migrate()
        await store.commit(create(Unclaimed(id="a", state=3)))
        await store.migrate(MigrationRequest(drop=True))
        assert (await store.diff(), await store.diff(MigrationRequest(drop=True))) == ([], [])
        # PostgreSQL can't change the type of a column under another view, so it is empty until that is gone.
        state = 3 if url.startswith("sqlite") else None
        assert await _rows(url, "SELECT * FROM theirs") == [{"id": "a", "state": state}]
        await _rows(url, "DROP VIEW theirs")
        await store.migrate()
        assert await store.diff() == []
    assert await _rows(url, "SELECT * FROM view_tasks") == [{"id": "a", "state": 3}]


async def test_a_broken_view_in_the_file_hinders_no_migration(sqlite_url: str) -> None:
    await _migrate(sqlite_url, Claimed)
    await _rows(sqlite_url, "CREATE VIEW theirs AS SELECT gone FROM nowhere")
    assert "replace column tasks.state" in await _migrate(sqlite_url, Unclaimed)


async def test_grants_outlive_a_migration_that_replaces_the_view(postgres_url: str) -> None:
    await _migrate(postgres_url, Claimed)
    await _rows(postgres_url, "GRANT SELECT ON view_tasks TO PUBLIC")
    granted = "SELECT grantee FROM information_schema.role_table_grants WHERE table_name = 'view_tasks'"
    before = {row["grantee"] for row in await _rows(postgres_url, granted)}
    assert {"PUBLIC", "holdfast_app", "holdfast_service"} < before
    assert "replace view view_tasks" in await _migrate(postgres_url, Unclaimed)
    assert {row["grantee"] for row in await _rows(postgres_url, granted)} == before


async def test_a_long_query_of_a_view_does_not_hold_up_a_start(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "VIEW_WAITS_S_MAX", 0.1)
    await _migrate(postgres_url, Short)
    reader = await asyncpg.connect(postgres_url)
    async with reader.transaction():
        await reader.fetch("SELECT * FROM view_notes")
        assert await _migrate(postgres_url, Long) == []
    await reader.close()
    assert await _migrate(postgres_url, Long) == ["replace view view_notes"]


def test_a_collection_can_not_have_the_name_of_another_ones_view() -> None:
    @document("view_notes/{id}")
    class Clash(Document):
        id: str

    with pytest.raises(DeclarationError, match="the view of Short"):
        Catalog([Short, Clash])
