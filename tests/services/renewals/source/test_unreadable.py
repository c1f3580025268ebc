"""Sources that can't be read: told in one sentence, without passwords."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.errors import ConfigError, HoldfastError, InvalidError, RetryLaterError
from holdfast.services.renewals.ingest.sources import open_source, parse_address
from holdfast.store import Store
from tests.services.renewals.platform_schema import PASSWORD, Platform, everything
from tests.services.renewals.source.mirror import sqlite, take


async def missing_table(source: Platform) -> None:
    await source.owner.execute("DROP TABLE rop.renewal_offers; ALTER TABLE rop.leases RENAME TO lets")


async def missing_column(source: Platform) -> None:
    await source.owner.execute(
        "ALTER TABLE rop.leases DROP monthly_rent; ALTER TABLE rop.residents DROP email"
    )


async def denied_table(source: Platform) -> None:
    await source.owner.execute(f"REVOKE SELECT ON rop.leases FROM {_reader(source)}")


async def denied_schema(source: Platform) -> None:
    await source.owner.execute(f"REVOKE USAGE ON SCHEMA rop FROM {_reader(source)}")


async def no_schema(source: Platform) -> None:
    source.url = source.url.replace("schema=rop", "schema=rob")


async def no_database(source: Platform) -> None:
    source.url = source.url.replace("?schema", "_gone?schema")


async def no_user(source: Platform) -> None:
    source.url = source.url.replace(_reader(source), "nobody_known")


async def no_host(source: Platform) -> None:
    source.url = source.url.replace(source.address.partition("/")[0], "127.0.0.1:1")


async def unknown_option(source: Platform) -> None:
    source.url += "&schemes=rop"


async def bad_option(source: Platform) -> None:
    source.url += "&sslmode=perhaps"


def _reader(source: Platform) -> str:
    return source.url.removeprefix("postgresql://").partition(":")[0]


@sqlite
@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (missing_table, ConfigError, "lacks the table leases, the table renewal_offers; add"),
        (missing_column, ConfigError, "lacks the column leases.monthly_rent; add"),
        (denied_table, ConfigError, "permission denied for table leases; the user needs"),
        (denied_schema, ConfigError, "permission denied for schema rop; the user needs"),
        (no_schema, ConfigError, "there is no schema 'rob'"),
        (no_database, ConfigError, "does not exist; correct the source's URL"),
        (no_user, ConfigError, 'role "nobody_known" does not exist; correct'),
        (no_host, RetryLaterError, "can't be read: "),
        (unknown_option, HoldfastError, "schemes"),
        (bad_option, ConfigError, "the driver can't use this URL"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
async def test_a_source_that_cannot_be_read_is_told_in_one_sentence_without_its_password(
    store: Store, source: Platform, spoil: Any, kind: type[HoldfastError], said: str
) -> None:
    await spoil(source)
    with pytest.raises(kind) as raised:
        await take(store, source)
    message = raised.value.message
    assert said in message
    assert "\n" not in message
    assert PASSWORD not in unquote(message)
    assert await everything(store) == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:zq/zq@host/db", "postgresql://u:zq?zq@host/db", "postgresql://u:zq#zq@host/db",
        "postgresql://u:zq@host:port/db", "postgresql://[u:zq@host/db", "postgresql:/u:zq@host/db",
        "postgresql://u:zq@host/db?schema=", "mysql://u:zq@host/db",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_understood_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidError) as raised:
        open_source(url)
    assert "zq" not in raised.value.message


def test_an_address_shows_neither_user_nor_password_nor_options() -> None:
    found = parse_address("postgres://u:p%40ss@db.example:6432/platform?schema=r%20op&sslmode=require")
    assert (found.schema, found.name) == ("r op", "postgresql://db.example:6432/platform?schema=r op")
    assert found.dsn == "postgres://u:p%40ss@db.example:6432/platform?sslmode=require"
    assert "p%40ss" not in repr(found)
    assert parse_address("postgresql://u@db/x").schema == "public"
