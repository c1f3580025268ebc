"""Documents survive the process, a reopened store and a changed declaration."""

from __future__ import annotations

from typing import Any

from holdfast.model import Document, Index, document
from holdfast.store.commit import create, patch
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import ALL, Note
from holdfast.store.query import Query
from holdfast.store.store import Store


@document("{env}-settings/{id}")
class Setting(Document):
    """Separate in each environment."""

    id: str
    value: str = ""


@document("profiles/{id}", indexes=[Index("name")])
class FirstProfile(Document):
    id: str
    name: str


def _split_name(fields: dict[str, Any]) -> dict[str, Any]:
    first, _, last = fields.pop("name").partition(" ")
    return {**fields, "first": first, "last": last}


@document("profiles/{id}", upgrades={1: _split_name}, indexes=[Index("level"), Index("last")])
class SecondProfile(Document, rename="camel"):
    id: str
    first: str
    last: str
    level: int = 3
    schema_version: int = 2


class MigrationContract:
    async def test_what_was_committed_is_there_after_closing_and_opening_again(
        self, harness: EngineHarness
    ) -> None:
        async with harness.open() as store:
            await store.commit(create(Note(id="n", text="kept")))
        async with harness.open(migrate=False) as store:
            found = await store.get(Note, "n")
        assert found is not None
        assert found.doc.text == "kept"

    async def test_migrating_again_has_nothing_to_do(self, harness: EngineHarness) -> None:
        async with harness.open(migrate=False) as store:
            foreseen = await store.diff()
            assert await store.migrate() == foreseen
            assert (await store.diff(), await store.migrate()) == ([], [])
        async with harness.open(migrate=False) as store:
            assert await store.diff() == []

    async def test_a_document_of_an_older_version_is_upgraded_when_read(self, harness: EngineHarness) -> None:
        await _keep_first_version(harness)
        async with harness.open(classes=[SecondProfile]) as store:
            found = await store.get(SecondProfile, "ada")
        assert found is not None
        assert found.doc == SecondProfile(id="ada", first="Ada", last="Lovelace", level=3)

    async def test_the_next_write_keeps_the_new_version(self, harness: EngineHarness) -> None:
        await _keep_first_version(harness)
        async with harness.open(classes=[SecondProfile]) as store:
            await store.commit(patch(SecondProfile, "ada", changes={"level": 4}))
            page = await store.query(Query(SecondProfile).where("last", "==", "Lovelace"))
        assert page.docs == [SecondProfile(id="ada", first="Ada", last="Lovelace", level=4)]

    async def test_a_new_index_finds_documents_that_were_there_before_it(
        self, harness: EngineHarness
    ) -> None:
        async with harness.open(classes=[Unindexed]) as store:
            await store.settle([[create(Unindexed(id=id, rank=rank))] for id, rank in [("a", 2), ("b", 1)]])
        async with harness.open(classes=[Indexed]) as store:
            page = await store.query(Query(Indexed).order_by("rank"))
        assert [doc.id for doc in page.docs] == ["b", "a"]

    async def test_collections_may_be_added_to_a_place_in_use(self, harness: EngineHarness) -> None:
        async with harness.open(classes=[Setting]) as store:
            await store.commit(create(Setting(id="theme", value="dark")))
        async with harness.open(classes=[*ALL, Setting]) as store:
            await store.commit(create(Note(id="n")))
            assert await _value_of(store, "theme") == "dark"

    async def test_two_environments_in_one_place_share_nothing_that_has_the_prefix(
        self, harness: EngineHarness
    ) -> None:
        async with (
            harness.open(classes=[Setting]) as dev,
            harness.open(classes=[Setting], env="prod") as prod,
        ):
            await dev.commit(create(Setting(id="theme", value="dark")))
            assert await prod.get(Setting, "theme") is None
            await prod.commit(create(Setting(id="theme", value="light")))
            assert await _value_of(dev, "theme") == "dark"


@document("ranks/{id}")
class Unindexed(Document):
    id: str
    rank: int


@document("ranks/{id}", indexes=[Index("rank")])
class Indexed(Document):
    id: str
    rank: int


async def _keep_first_version(harness: EngineHarness) -> None:
    async with harness.open(classes=[FirstProfile]) as store:
        await store.commit(create(FirstProfile(id="ada", name="Ada Lovelace")))


async def _value_of(store: Store, id: str) -> str | None:
    found = await store.get(Setting, id)
    return found.doc.value if found else None
