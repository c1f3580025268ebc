"""A dump of a real local Workers KV with 1,000 chats: imported, exported, and loaded back into it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from holdfast.model.access import SERVICE
from holdfast.services.c4lendar.domain.kv_layout import read_pairs
from tests.services.c4lendar.harness import Harness
from tests.services.c4lendar.test_kv import AT, KEY, all_legacy, connection, mapping

MODULES: Final = Path(__file__).parents[3] / ".cache" / "node_modules"
SCRIPT: Final = Path(__file__).with_name("workers_kv.mjs")
CHATS: Final = 1_000
EVERY_OLD: Final = 10
# Workers KV refuses what has expired, by its own clock.
LATER: Final = "2036-01-05T10:30:00.000Z"
EXPIRATION: Final = int(datetime.fromisoformat(LATER).timestamp()) + 90 * 86_400
BROKEN: Final = [
    {"key": "gc:conn:-9:1", "value": "{broken"},
    {"key": "gc:conn:-9:2", "value": connection("-8", "2")["value"]},
    {"key": "gc:event:-9:01JBZQ8F7VKPNX3QZ9M8J5K2W7:1", "value": "[]"},
    {"key": "gc_tokens:chat:-9", "value": '{"refresh_token": "1//x"}'},
]


def through_kv(folder: Path, pairs: list[Any], request: pytest.FixtureRequest) -> list[Any]:
    """The pairs after they were put into a Workers KV and dumped, sorted by key."""
    if not (MODULES / "miniflare").exists():
        reason = "miniflare is missing: npm install --prefix .cache --no-save miniflare@4"
        request.node.user_properties.append(("engine-missing", f"miniflare: {reason}"))
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    source, target = folder / "in.json", folder / "out.json"
    source.write_text(json.dumps(pairs))
    node = shutil.which("node") or "node"
    # Without the event loop, whose clock jumps ahead whenever it is idle.
    subprocess.run([node, SCRIPT, MODULES, source, target], check=True)
    return sorted(json.loads(target.read_bytes()), key=lambda pair: str(pair["key"]))


def _uid(number: int) -> str:
    return f"01JBZQ8F7VKPNX3QZ9M8J{number:05}"


def former_store() -> list[dict[str, Any]]:
    """1,000 chats as the former bot and its predecessor stored them, with indexes and broken rows."""
    pairs: list[dict[str, Any]] = []
    tokens = all_legacy([f"1//token-{number}" for number in range(CHATS)])
    for number in range(CHATS):
        chat, sub = str(-100_000 - number), str(115_000 + number)
        if number % EVERY_OLD == 0:
            old = {"refresh_token": f"1//plain-{number}", "email": f"old{number}@gmail.com", "linkedAt": AT}
            pairs.append({"key": f"gc_tokens:chat:{chat}", "value": json.dumps(old)})
            pairs.append({"key": f"selected_event:{chat}:7", "value": "{}", "metadata": {"old": True}})
            continue
        row = mapping(chat, sub, _uid(number), created_at=LATER, updated_at=LATER) | {
            "expiration": EXPIRATION
        }
        summary = json.loads(row["value"])
        kept = {name: summary[name] for name in ("bot_event_uid", "event_title", "event_start", "created_at")}
        pairs += [
            connection(chat, sub, refresh_token_encrypted=tokens[number]), row,
            {"key": f"gc:idx:email:{sub}@gmail.com", "value": json.dumps([chat])},
            {"key": f"gc:event:recent:{chat}", "value": json.dumps([kept])},
        ]  # fmt: skip
    return pairs


def meaning(pairs: list[Any]) -> dict[str, Any]:
    """What pairs say, but for the tokens, which are encrypted anew."""
    values = {pair["key"]: (json.loads(pair["value"]), pair.get("expiration")) for pair in pairs}
    for value, _ in values.values():
        if isinstance(value, dict):
            value.pop("refresh_token_encrypted", None)
    return values


async def test_a_thousand_chats_go_from_workers_kv_and_back(
    quick: Harness, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    pairs = former_store()
    dump = through_kv(tmp_path, [*pairs, *BROKEN], request)
    assert len(dump) == len(pairs) + len(BROKEN)
    quick.config = msgspec.structs.replace(quick.config, legacy_key=KEY)
    await quick.restart()
    by, operations = quick.runtime.operator(SERVICE, "-"), quick.operations
    progress: list[int] = []
    rows = read_pairs(json.dumps(dump).encode())
    report = await operations.import_kv(by, rows, tell=lambda done, _: progress.append(done))
    assert progress == sorted(set(progress))
    assert (len(progress) > 10, progress[-1]) == (True, len(dump))
    old = CHATS // EVERY_OLD
    counts = [(one.accounts, one.events) for one in report.chats.values()]
    assert counts.count((1, 1)) == CHATS - old
    assert counts.count((1, 0)) == old
    assert {fault.split(": ")[1] for fault in report.faults} == {str(pair["key"]) for pair in BROKEN}
    again = await operations.import_kv(by, rows)
    assert sum(one.accounts + one.events for one in again.chats.values()) == 0

    exported = msgspec.to_builtins(await operations.export_kv(by, tokens=True))
    back = through_kv(tmp_path, exported, request)
    assert back == sorted(exported, key=lambda pair: str(pair["key"])), "Workers KV takes all of it"
    said = meaning(back)
    assert {key: said[key] for key in meaning(pairs) if key.startswith("gc:")} == {
        key: value for key, value in meaning(pairs).items() if key.startswith("gc:")
    }
    token = json.loads(next(one["value"] for one in back if one["key"].startswith("gc:conn:-100001:")))
    assert quick.runtime.vault.open(token["refresh_token_encrypted"]).reveal() == "1//token-1"
