"""Two releases that start at once on an empty SQLite file: each has the columns it declares."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.store import Query, create
from holdfast.store.sqlite.migrate import SqliteMigration
from tests.faults.release_models import RELEASES, NewCrate


async def test_a_table_created_after_the_plan_gets_the_columns_it_lacks(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = await open_store(sqlite_url, RELEASES["1"]), await open_store(sqlite_url, RELEASES["2"])
    plan = SqliteMigration._plan

    async def plan_then_lose_the_race(migration: SqliteMigration, request: Any) -> Any:
        steps = await plan(migration, request)
        monkeypatch.setattr(SqliteMigration, "_plan", plan)
        await older.migrate()
        return steps

    monkeypatch.setattr(SqliteMigration, "_plan", plan_then_lose_the_race)
    await newer.migrate()
    await newer.commit(create(NewCrate(id="a", year=1900, labels=["made"])))
    assert [one.id for one in (await newer.query(Query(NewCrate).where("rank", "==", 7))).docs] == ["a"]
    assert await newer.diff() == []
    await older.close()
    await newer.close()
