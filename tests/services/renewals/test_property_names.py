"""Properties that take one another's names in one import: a name is given once, in whatever order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.services.renewals.domain.names import name_key
from holdfast.services.renewals.ingest import table_import
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import Property, PropertyName
from holdfast.store import Query, Store
from tests.services.renewals.platform_schema import kept_in
from tests.services.renewals.test_import import write

Names = dict[str, str]


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with kept_in(request.getfixturevalue(f"{request.param}_url")) as whole:
        yield whole.tenant("-")


async def take(store: Store, folder: Path, names: Names) -> TableReport:
    write(folder, "properties", "id name", [[id, name] for id, name in names.items()])
    (report,) = [one for one in await Import(store, Folder(folder)).run() if one.table == "properties"]
    return report


async def kept(store: Store) -> Names:
    """Each property's name, by its own row and by what holds the name for it, which must agree."""
    rows = {item.doc.id: item.doc.name async for item in store.scan(Query(Property).order_by("name"))}
    keys = [name_key(name, "-") for name in rows.values()]
    held = await store.get_many(PropertyName, keys)
    assert [one.doc.property_id for one in held if one is not None] == list(rows)
    return rows


START: Names = {"a": "Mill", "b": "Park", "c": "Lake", "d": "Hill"}
# What the names become, and who is refused.
MOVES: dict[str, tuple[Names, set[str]]] = {
    "two swap": ({"a": "Park", "b": "Mill"}, set()),
    "three go round, one is new": ({"a": "Park", "b": "Lake", "c": "Mill", "e": "Tower"}, set()),
    "each takes the next one's name": ({"a": "Park", "b": "Lake", "c": "Hill", "d": "Yard"}, set()),
    "somebody new takes a name that is given up below": ({"Z": "Mill", "a": "Yard"}, set()),
    "two want one name, and others swap": ({"a": "Yard", "b": "Yard", "c": "Hill", "d": "Lake"}, {"b"}),
    "one wants a name that stays": ({"a": "Park", "c": "Mill"}, {"a", "c"}),
    "only its letters change while others swap": ({"a": "MILL", "b": "Lake", "c": "Park"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("batch", [400, 1])
@pytest.mark.parametrize("move", MOVES)
async def test_names_move_as_they_can_whatever_the_order(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: str, batch: int
) -> None:
    monkeypatch.setattr(table_import, "BATCH", batch)
    assert (await take(store, tmp_path, START)).created == 4
    changes, refused = MOVES[move]
    after = {**{id: name for id, name in changes.items() if id == "Z"}, **START, **changes}
    report = await take(store, tmp_path, after)
    wanted = START | {id: name for id, name in changes.items() if id not in refused}
    assert await kept(store) == wanted
    assert {one.values["id"] for one in report.bad} == refused
    assert all("another property is called" in one.reason for one in report.bad)
    assert report.created + report.updated == len(changes) - len(refused)
    again = await take(store, tmp_path, after)
    assert (again.created, again.updated) == (0, 0)
