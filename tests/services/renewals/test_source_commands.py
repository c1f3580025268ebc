"""`holdfast renewals import URL`, `source` and `doctor`: exit codes, JSON, and never a password."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from tests.services.renewals.platform_schema import PASSWORD, Platform, id_of, platform

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
async def source(postgres_url: str) -> AsyncIterator[Platform]:
    async with platform(postgres_url) as made:
        await made.fill(20)
        yield made


async def run(*words: str, code: int = 0) -> str:
    """What a command prints, on both streams; never a password, never a traceback."""
    told = await asyncio.to_thread(CliRunner().invoke, app, list(words))
    said = f"{told.output}{told.stderr}{told.exception if told.exit_code else ''}"
    assert told.exit_code == code, said
    assert not any(secret in said for secret in (PASSWORD, quote(PASSWORD, safe="")))
    assert PASSWORD not in unquote(said)
    assert "Traceback" not in said
    return said


async def told(*words: str) -> Any:
    return json.loads((await run(*words, "--json")).splitlines()[-1])


async def test_a_database_is_taken_in_looked_at_and_followed(source: Platform) -> None:
    assert "nothing was imported yet" in await run("renewals", "source")
    tables = {one["table"]: one for one in (await told("renewals", "import", source.url))["tables"]}
    assert (tables["leases"]["created"], tables["resident_ledger"]["created"]) == (20, 120)
    await source.owner.execute(
        "DELETE FROM rop.renewal_offers;"
        "UPDATE rop.leases SET monthly_rent = 0.001 WHERE id = rop.id_of('lease', 3)"
    )
    said = await run("renewals", "import", source.url, "--bad", "aside", code=1)
    assert f"leases {id_of('lease', 3)}: monthly_rent: '0.0010' is no amount" in said
    assert Path("aside/leases.csv").read_text().splitlines()[1].startswith(id_of("lease", 3))
    state = await told("renewals", "source")
    assert state["source"] == f"postgresql://{source.address}?schema=rop"
    assert state["tables"]["leases"] == {"rows": 20, "bad": 1, "digest": ""}
    shown = await run("renewals", "source")
    assert "0 minutes ago" in shown
    assert "leases: 20 rows, 1 bad" in shown


async def test_the_source_of_the_settings_is_taken_when_none_is_named(
    source: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "name a folder or a database" in " ".join((await run("renewals", "import", code=2)).split())
    monkeypatch.setenv("HOLDFAST_RENEWALS_SOURCE", source.url)
    tables = (await told("renewals", "import"))["tables"]
    assert sum(one["created"] for one in tables) == 2 + 2 + 20 * 4 + 120 + 8
    await run("schema", "migrate")
    assert f"postgresql://{source.address}?schema=rop can be read" in await run("doctor", code=1)
    await source.owner.execute("ALTER TABLE rop.leases RENAME TO lets")
    assert "lacks the table leases" in await run("renewals", "import", code=1)
    findings = json.loads((await run("doctor", "--json", code=1)).splitlines()[0])["findings"]
    (finding,) = [one for one in findings if one["name"] == "source of renewals"]
    assert (finding["fine"], "lacks the table leases" in finding["message"]) == (False, True)
    assert "[service.renewals]" in finding["remedy"]


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [
        ("postgresql://reader:{}@127.0.0.1:1/db?schema=rop", 1, "can't be read"),
        ("postgresql://reader:{}@127.0.0.1:no/db", 2, "can't be understood"),
        ("postgresql:/reader:{}@db", 2, "can't be understood"),
        ("mysql://reader:{}@db/x", 2, "is no source"),
        ("not-there", 2, "does not exist"),
        ("file.csv", 2, "does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_a_place_that_cannot_be_read_is_told_in_one_line(place: str, code: int, said: str) -> None:
    Path("file.csv").write_text("id\n")
    told = await run("renewals", "import", place.format(quote(PASSWORD, safe="")), code=code)
    assert said in " ".join(told.replace("│", " ").split())
