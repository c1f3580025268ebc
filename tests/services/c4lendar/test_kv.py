"""A Workers KV dump: imported once, with its tokens, whatever rows are broken; and written back."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.errors import ConfigError
from holdfast.kit.connections import Connection
from holdfast.kit.vault import Vault, new_key
from holdfast.model.access import SERVICE
from holdfast.runtime.settings import KEYS_FILE, keys_in
from holdfast.services.c4lendar.domain.kv_layout import read_pairs
from holdfast.services.c4lendar.kv_store import KvReport
from holdfast.store import Query
from tests.services.c4lendar.harness import ALICE, ANA, Harness

KEY = "the former bot's key"
AT = "2026-01-05T10:30:00.000Z"
UID = "01JBZQ8F7VKPNX3QZ9M8J5K2W7"
# The former bot's own way to encrypt, by WebCrypto.
SCRIPT = """
const [key, ...texts] = process.argv.slice(1);
const raw = new TextEncoder().encode(key.padEnd(32, '0').slice(0, 32));
const made = await crypto.subtle.importKey('raw', raw, {name: 'AES-GCM', length: 256}, false, ['encrypt']);
for (const text of texts) {
const iv = crypto.getRandomValues(new Uint8Array(12));
const way = {name: 'AES-GCM', iv, tagLength: 128};
const data = await crypto.subtle.encrypt(way, made, new TextEncoder().encode(text));
const all = new Uint8Array(12 + data.byteLength);
all.set(iv, 0); all.set(new Uint8Array(data), 12);
console.log(btoa(String.fromCharCode(...all)));
}
"""


def legacy(token: str) -> str:
    """A token as the former bot encrypted it."""
    return all_legacy([token])[0]


def all_legacy(tokens: list[str]) -> list[str]:
    command = [shutil.which("node") or "node", "--input-type=module", "-e", SCRIPT, KEY, *tokens]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def connection(chat: str, sub: str, **more: Any) -> dict[str, Any]:
    value = {
        "chat_id": chat, "google_sub": sub, "google_email": f"{sub}@gmail.com", "scopes": "s", "revoked": 0,
        "refresh_token_encrypted": "", "connected_by_telegram_user_id": 555555, "created_at": AT,
        "updated_at": AT, **more,
    }  # fmt: skip
    return {"key": f"gc:conn:{chat}:{sub}", "value": json.dumps(value)}


def mapping(chat: str, sub: str, uid: str = UID, **more: Any) -> dict[str, Any]:
    value = {
        "chat_id": chat, "bot_event_uid": uid, "google_sub": sub, "google_event_id": "abc123xyz789",
        "event_title": "Team standup", "event_start": "2026-01-06T09:00:00+08:00", "created_at": AT,
        "updated_at": AT, **more,
    }  # fmt: skip
    return {"key": f"gc:event:{chat}:{uid}:{sub}", "value": json.dumps(value), "expiration": 1_775_000_000}


def a_dump(token: str) -> list[Any]:
    old = {"refresh_token": "1//plain", "email": "Old@gmail.com", "linkedBy": 7, "linkedAt": AT, "scope": "s"}
    return [
        connection("-100", "115", refresh_token_encrypted=token),
        connection("-100", "116", revoked=1),
        mapping("-100", "115"),
        {"key": "gc:idx:email:115@gmail.com", "value": '["-100"]'},
        {"key": "gc:event:recent:-100", "value": "[]"},
        {"key": "gc_tokens:chat:-200", "value": json.dumps(old)},
        {"key": "selected_event:-100:7", "value": "{}"},
        {"key": "another:app", "value": "x"},
        {"key": "gc:conn:-100:117", "value": "{broken"},
        {"key": "gc:conn:-100:118", "value": connection("-100", "119")["value"]},
        "no pair at all",
    ]


@pytest.fixture
async def former(quick: Harness) -> Harness:
    """The harness with the former bot's key among its settings."""
    quick.config = msgspec.structs.replace(quick.config, legacy_key=KEY)
    await quick.restart()
    return quick


async def _load(harness: Harness, dump: list[Any]) -> KvReport:
    rows = read_pairs(json.dumps(dump).encode())
    return await harness.operations.import_kv(harness.runtime.operator(SERVICE, "-"), rows)


async def test_a_dump_is_imported_once_and_its_bad_rows_are_named(former: Harness) -> None:
    dump = a_dump(legacy("1//secret"))
    report = await _load(former, dump)
    assert {chat: (one.accounts, one.events) for chat, one in report.chats.items()} == {
        "-100": (2, 1),
        "-200": (1, 0),
    }
    assert sum(report.skipped.values()) == 4
    assert [fault.split(":")[0] for fault in report.faults] == ["9", "10", "11"]
    again = await _load(former, dump)
    assert {chat: (one.accounts, one.events, one.unchanged) for chat, one in again.chats.items()} == {
        "-100": (0, 0, 3), "-200": (0, 0, 1)
    }  # fmt: skip


async def test_imported_tokens_open_and_are_nowhere_in_the_open(former: Harness) -> None:
    await _load(former, a_dump(legacy("1//secret")))
    store, field = former.runtime.store.privileged(), former.runtime.vault.field(Connection, "refresh_token")
    tokens = {}
    for chat in ("-100", "-200"):
        [account] = await former.operations.accounts(chat)
        stored = await store.get(Connection, account.connection_id)
        assert stored is not None
        assert account.refresh_token_encrypted == ""
        assert "plain" not in stored.doc.refresh_token
        tokens[chat] = field.open(stored.doc.refresh_token, stored.doc.id).reveal()
    assert tokens == {"-100": "1//secret", "-200": "1//plain"}


async def test_a_token_of_another_key_is_a_bad_row(former: Harness) -> None:
    other = base64.b64encode(bytes(60)).decode()
    report = await _load(former, [connection("-100", "115", refresh_token_encrypted=other)])
    assert len(report.faults) == 1
    assert await former.operations.accounts("-100") == []


async def test_imported_events_are_the_chats_and_written_back_in_the_same_layout(former: Harness) -> None:
    await _load(former, a_dump(legacy("1//secret")))
    [event] = await former.operations.recent("-100")
    assert (event.uid, event.title) == (UID, "Team standup")
    pairs = {pair.key: pair async for pair in former.operations.kv.dump()}
    assert json.loads(pairs[f"gc:event:-100:{UID}:115"].value) == json.loads(mapping("-100", "115")["value"])
    assert json.loads(pairs["gc:idx:email:115@gmail.com"].value) == ["-100"]
    assert json.loads(pairs["gc:event:recent:-100"].value)[0]["bot_event_uid"] == UID
    assert json.loads(pairs["gc:conn:-100:115"].value)["refresh_token_encrypted"] == ""


async def test_a_row_whose_expiration_has_passed_is_left_out(former: Harness) -> None:
    past = mapping("-100", "115") | {"expiration": int(former.clock.now().timestamp())}
    report = await _load(former, [past])
    assert report.skipped == {"expired": 1}
    assert await former.operations.recent("-100") == []


async def test_tokens_are_exported_only_as_the_former_bot_encrypts_them(former: Harness) -> None:
    await _load(former, a_dump(legacy("1//secret")))
    by = former.runtime.operator(SERVICE, "-")
    pairs = {one.key: one.value for one in await former.operations.export_kv(by, tokens=True)}
    sealed = json.loads(pairs["gc:conn:-100:115"])["refresh_token_encrypted"]
    assert former.runtime.vault.open(sealed).reveal() == "1//secret"
    assert "1//secret" not in str(pairs)


async def test_without_the_legacy_key_no_token_is_exported(quick: Harness) -> None:
    await quick.connect(ALICE)
    with pytest.raises(ConfigError, match="HOLDFAST_LEGACY_KEY"):
        await quick.operations.export_kv(quick.runtime.operator(SERVICE, "-"), tokens=True)


async def test_an_account_known_by_its_address_keeps_its_events_when_connected_again(quick: Harness) -> None:
    old = {"refresh_token": "1//old", "email": ALICE, "scope": "s"}
    pair = {"key": f"gc_tokens:chat:{ANA}", "value": json.dumps(old)}
    uid_row = mapping(str(ANA), f"email-{ALICE}", event_start="2031-01-06T09:00:00+08:00")
    await _load(quick, [pair, uid_row])
    [placeholder] = await quick.operations.accounts(str(ANA))
    assert placeholder.google_sub == f"email-{ALICE}"
    await quick.connect(ALICE)
    [account] = await quick.operations.accounts(str(ANA))
    assert account.google_sub != placeholder.google_sub
    [row] = await quick.operations.mappings(str(ANA), UID)
    assert (row.google_sub, row.google_event_id) == (account.google_sub, "abc123xyz789")
    assert [call for call in quick.google.calls if call.path == "/revoke"] == []
    assert "1/1 account" in await quick.say("#cal lunch tomorrow noon")
    assert quick.titles(ALICE) == ["lunch"]


async def _opened(harness: Harness, vault: Vault) -> set[str]:
    """The refresh tokens of all accounts in the open."""
    field, query = vault.field(Connection, "refresh_token"), Query(Connection).order_by("-connected_at")
    found = [one.doc async for one in harness.runtime.store.privileged().scan(query)]
    return {field.open(one.refresh_token, one.id).reveal() for one in found}


async def test_after_a_rotation_the_new_key_opens_new_and_imported_tokens_alone(
    former: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await former.connect(ALICE)
    await _load(former, a_dump(legacy("1//secret")))
    tokens = await _opened(former, former.runtime.vault)
    assert tokens > {"1//secret", "1//plain"}
    assert len(tokens) == 3
    new, old = new_key("new"), keys_in(tmp_path / KEYS_FILE)
    for name, value in {"HOME": str(tmp_path), "STORE": former.config.store, "KEYS": f"{new},{old}",
                        "LEGACY_KEY": KEY}.items():  # fmt: skip
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    monkeypatch.chdir(tmp_path)
    before = structlog.get_config()
    done = await asyncio.to_thread(CliRunner().invoke, app, ["keys", "rotate"])
    structlog.configure(**before)
    assert done.exit_code == 0, done.output
    former.config = msgspec.structs.replace(former.config, keys=new, legacy_key="")
    await former.restart()
    assert await _opened(former, Vault.from_settings(new)) == tokens
    former.clock.tick(4_000)
    assert "1/1 account" in await former.say("#cal lunch tomorrow noon")
