"""`holdfast keys rotate`: after it the old key may go, whatever part or service sealed with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from holdfast.app import open_store
from holdfast.cli import app
from holdfast.cli.keys import _old_key_uses
from holdfast.config import load_config
from holdfast.errors import DecryptionError
from holdfast.kit.audit import AUDIT_MODELS, Audit, AuditEntry
from holdfast.kit.outbox import Endpoint, EndpointSecrets, new_secret
from holdfast.kit.vault import Rotation, Vault, new_key
from holdfast.model import schema_of
from holdfast.runtime import (
    Runtime,
    derived_keys,
    documents_of,
    find_services,
    sealed_fields,
    select_services,
)
from holdfast.services.gwi.models.records import AUDIT as GWI_AUDIT
from holdfast.services.renewals.models import RmsEndpoint
from holdfast.store import create

_AT = datetime(2026, 11, 15, tzinfo=UTC)
_KINDS = (Endpoint, RmsEndpoint)


async def _keep(home: Path, keys: str, *, services: Sequence[str] | None = None) -> None:
    config = load_config({"home": home}, environ={})
    store = await open_store(config.store, documents_of(select_services(find_services(), services)))
    await store.migrate()
    secrets = EndpointSecrets(Vault.from_settings(keys))
    for kind in _KINDS:
        made = kind(id="there", tenant_id="acme", url="https://rms.example", created_at=_AT)
        made.secrets = [secrets.seal(made, new_secret())]
        await store.tenant("acme").commit(create(made))
    audit = Audit(store, "acme", keys=Vault.from_settings(keys).secrets("audit"))
    await audit.append(AuditEntry(action="act", actor="ann"))
    await store.close()


async def _signs(home: Path, keys: str) -> list[bool]:
    """For each kind of endpoint and the audit trail, whether its secret opens with these keys alone."""
    config = load_config({"home": home}, environ={})
    store = await open_store(config.store, documents_of(find_services()))
    found = [await store.tenant("acme").get(kind, "there") for kind in _KINDS]
    audit = Audit(store, "acme", keys=Vault.from_settings(keys).secrets("audit"))
    verified = (await audit.verify()).intact
    await store.close()
    told = []
    for one in found:
        assert one is not None
        try:
            await EndpointSecrets(Vault.from_settings(keys)).signing(one.doc)
            told.append(True)
        except DecryptionError:
            told.append(False)
    return [*told, verified]


def test_after_a_rotation_the_new_key_opens_everything_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key("old"), new_key("new")
    asyncio.run(_keep(tmp_path, old))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_KEYS", f"{new},{old}")
    before = structlog.get_config()
    done = CliRunner().invoke(app, ["keys", "rotate", "--json"])
    structlog.configure(**before)
    assert done.exit_code == 0, done.output
    resealed = {one["collection"]: one["resealed"] for one in json.loads(done.stdout)["rotations"]}
    assert [resealed["/".join(schema_of(kind).path.names)] for kind in _KINDS] == [1, 1]
    needed = [one["signs"] for one in json.loads(done.stdout)["oldKeys"]]
    assert any("push channels" in signs for signs in needed), "without the old key they would go deaf"
    assert not any("audit" in signs for signs in needed), "what is signed again needs no old key"
    signed = {one["collection"]: one["signed"] for one in json.loads(done.stdout)["auditHeads"]}
    assert signed["holdfast_audit_heads"] == 1
    assert asyncio.run(_signs(tmp_path, new)) == [True, True, True]
    assert asyncio.run(_signs(tmp_path, old)) == [False, False, False]


def test_what_services_that_are_not_chosen_sealed_is_rotated_too_without_tables_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key("old"), new_key("new")
    asyncio.run(_keep(tmp_path, old, services=["renewals"]))
    monkeypatch.chdir(tmp_path)
    for name, value in (("HOME", str(tmp_path)), ("KEYS", f"{new},{old}"), ("SERVICES", "hackernews")):
        monkeypatch.setenv(f"HOLDFAST_{name}", value)
    before = structlog.get_config()
    done = CliRunner().invoke(app, ["keys", "rotate", "--json"])
    structlog.configure(**before)
    assert done.exit_code == 0, done.output
    resealed = {one["collection"]: one["resealed"] for one in json.loads(done.stdout)["rotations"]}
    assert [resealed["/".join(schema_of(kind).path.names)] for kind in _KINDS] == [1, 1]
    theirs = select_services(find_services(), ["renewals", "hackernews"])
    assert set(resealed) == {"/".join(schema_of(kind).path.names) for kind in sealed_fields(theirs)}


async def _verified(home: Path, keys: str, *, append: bool = False) -> list[bool]:
    """Whether the kit's trail and that of a service hold with these keys; appends to both if asked."""
    config = load_config({"home": home}, environ={})
    store = await open_store(config.store, documents_of(find_services()))
    await store.migrate()
    secrets = Vault.from_settings(keys).secrets("audit") if keys else ()
    verdicts = []
    for models in (AUDIT_MODELS, GWI_AUDIT):
        audit = Audit(store, "acme", keys=secrets, models=models)
        if append:
            await audit.append(AuditEntry(action="act", actor="ann"))
        verdicts.append((await audit.verify()).intact)
    await store.close()
    return verdicts


def test_trails_from_before_there_were_signatures_are_signed_once_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = new_key("first")
    asyncio.run(_verified(tmp_path, "", append=True))
    assert asyncio.run(_verified(tmp_path, key)) == [False, False]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_KEYS", key)
    before = structlog.get_config()
    for expected in (1, 0):
        done = CliRunner().invoke(app, ["keys", "rotate", "--json"])
        assert done.exit_code == 0, done.output
        signed = {one["collection"]: one["signed"] for one in json.loads(done.stdout)["auditHeads"]}
        assert (signed["holdfast_audit_heads"], signed["gwi_audit_heads"]) == (expected, expected)
    shown = CliRunner().invoke(
        app, ["audit", "list", "--tenant", "acme", "--action", "audit.signed", "--json"]
    )
    structlog.configure(**before)
    subjects = {one["subject"] for one in json.loads(shown.stdout)["items"]}
    assert subjects == {"holdfast_audit_heads/acme", "gwi_audit_heads/acme"}
    assert asyncio.run(_verified(tmp_path, key)) == [True, True]


def test_every_endpoint_there_is_says_what_it_seals() -> None:
    services = find_services()
    sealed = sealed_fields(services)
    for kind in documents_of(services):
        assert not issubclass(kind, Endpoint) or kind in sealed, kind


def test_an_old_key_stays_for_as_long_as_what_it_signed_is_out_counted_from_the_first_rotation() -> None:
    both, alone = (
        Vault.from_settings(keys) for keys in (f"{new_key('new')},{new_key('old')}", new_key("new"))
    )
    done = [
        Rotation(id=f"r{n}", collection="c", fields=[], key_id="new", started_at=_AT + timedelta(hours=n),
                 updated_at=_AT)
        for n in (0, 5)
    ]  # fmt: skip
    services = find_services()

    def uses(vault: Vault, days: float) -> dict[str, datetime]:
        found = _old_key_uses(vault, done, services, now=_AT + timedelta(days=days))
        return {one.signs: one.until for one in found}

    assert uses(alone, 0) == {}
    assert set(uses(both, 0).values()) == {_AT + timedelta(days=1), _AT + timedelta(days=7)}
    assert list(uses(both, 2).values()) == [_AT + timedelta(days=7)]
    assert uses(both, 7) == {}


async def test_everything_derived_from_the_keys_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purposes, secrets = set[str](), Vault.secrets

    def recorded(vault: Vault, purpose: str) -> list[bytes]:
        purposes.add(purpose)
        return secrets(vault, purpose)

    monkeypatch.setattr(Vault, "secrets", recorded)
    services = [one for one in find_services() if one.name in ("calendar_sync", "hackernews")]
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=services)
    runtime.audit("acme")
    await runtime.close()
    assert purposes == {one.purpose for one in derived_keys(services)}
