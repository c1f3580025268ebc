"""A process killed at random moments: each change of an operation has its audit event, each event its change.

`HOLDFAST_OPERATION_CRASHES` says how often (60 on SQLite, 24 on PostgreSQL).
"""

from __future__ import annotations

import os
import random
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from holdfast.kit.audit import Audit
from tests.faults.fork_server import ForkServer
from tests.faults.operation_worker import TENANT, open_runtime

CRASHES = {"sqlite": 60, "postgres": 24}


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_killed_process_leaves_an_act_with_its_audit_event_or_neither(
    fork_server: ForkServer, url: str
) -> None:
    runtime = await open_runtime(url, migrate=True)
    engine = runtime.store.capabilities.name
    await runtime.close()
    said: list[str] = []
    crashes = int(os.environ.get("HOLDFAST_OPERATION_CRASHES", CRASHES[engine]))
    for round in range(crashes):
        words, after_s = min(2, round % 8), random.uniform(0, 0.05)
        said += fork_server.killed("operate", url=url, round=round, after_s=after_s, words=words)
        await _compare(url, said)
    assert len(said) > crashes, "the processes were killed before they could act"
    runtime = await open_runtime(url)
    verified = await Audit(runtime.store, TENANT).verify()
    await runtime.close()
    assert verified.intact


async def _compare(url: str, said: list[str]) -> None:
    """Compare documents with events by plain SQL, and both with what was acknowledged."""
    tokens, events = await _bodies(url, "holdfast_api_tokens"), await _bodies(url, "holdfast_audit")
    recorded = {(event["action"], event["subject"]) for event in events}
    assert len(recorded) == len(events)
    created = {("token.created", token["name"]) for token in tokens}
    revoked = {("token.revoked", token["id"]) for token in tokens if token.get("revokedAt")}
    assert recorded == created | revoked
    acknowledged = {tuple(line.split()) for line in said if " " in line}
    assert {(f"token.{verb}", subject) for verb, subject in acknowledged} <= recorded


async def _bodies(url: str, table: str) -> list[dict[str, Any]]:
    """Each document of a table: its body, with what was patched laid over it."""
    query = f'SELECT "_body", "_patch" FROM "{table}"'
    if url.startswith("sqlite:"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
        rows: list[Any] = connection.execute(query).fetchall()
        connection.close()
    else:
        server = await asyncpg.connect(url)
        rows = await server.fetch(query)
        await server.close()
    return [msgspec.json.decode(row[0]) | (msgspec.json.decode(row[1]) if row[1] else {}) for row in rows]
