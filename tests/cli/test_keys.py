"""`holdfast keys rotate`: after it the old key may go, whatever part or service sealed with it."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

import holdfast
from holdfast.app import open_store
from holdfast.cli import app
from holdfast.config import load_config
from holdfast.errors import DecryptionError, HoldfastError
from holdfast.kit.access.visitors import VISITOR_KEY
from holdfast.kit.audit import AUDIT_KEY, AUDIT_MODELS, Audit, AuditEntry
from holdfast.kit.channels import OpenChannel, Watch
from holdfast.kit.outbox import Endpoint, EndpointSecrets, new_secret
from holdfast.kit.processes import Process
from holdfast.kit.vault import DerivedKey, Rotation, Vault, new_key
from holdfast.model import schema_of
from holdfast.runtime import documents_of, find_services, key_register, sealed_fields, select_services
from holdfast.runtime.key_uses import KeyUse, old_key_uses
from holdfast.services.gwi.models.records import AUDIT as GWI_AUDIT
from holdfast.services.renewals.models import RmsEndpoint
from holdfast.store import create, delete, patch
from holdfast.testing import ManualClock

_AT = datetime(2026, 11, 15, tzinfo=UTC)
_KINDS = (Endpoint, RmsEndpoint)


def _audit_keys(keys: str) -> tuple[bytes, ...]:
    return tuple(Vault.from_settings(keys).secrets(AUDIT_KEY).values())


async def _keep(home: Path, keys: str, *, services: Sequence[str] | None = None) -> None:
    config = load_config({"home": home}, environ={})
    store = await open_store(config.store, documents_of(select_services(find_services(), services)))
    await store.migrate()
    secrets = EndpointSecrets(Vault.from_settings(keys))
    for kind in _KINDS:
        made = kind(id="there", tenant_id="acme", url="https://rms.example", created_at=_AT)
        made.secrets = [secrets.seal(made, new_secret())]
        await store.tenant("acme").commit(create(made))
    audit = Audit(store, "acme", keys=_audit_keys(keys))
    await audit.append(AuditEntry(action="act", actor="ann"))
    await store.close()


async def _signs(home: Path, keys: str) -> list[bool]:
    """For each kind of endpoint and the audit trail, whether its secret opens with these keys alone."""
    config = load_config({"home": home}, environ={})
    store = await open_store(config.store, documents_of(find_services()))
    found = [await store.tenant("acme").get(kind, "there") for kind in _KINDS]
    audit = Audit(store, "acme", keys=_audit_keys(keys))
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
    needed = [one["use"] for one in json.loads(done.stdout)["oldKeys"]]
    assert needed == [VISITOR_KEY.signs], "what is sealed and signed again needs no old key"
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
    secrets = _audit_keys(keys) if keys else ()
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


def _run(*words: str, code: int = 0) -> str:
    before = structlog.get_config()
    done = CliRunner().invoke(app, ["keys", *words, "--json"])
    structlog.configure(**before)
    assert done.exit_code == code, done.output
    return str(done.exception.message) if isinstance(done.exception, HoldfastError) else done.stdout


async def _record_uses(home: Path, keys: str) -> None:
    """A process that works with these keys, and a channel whose token their first one has signed."""
    await _keep(home, keys)
    config, key_id = load_config({"home": home}, environ={}), Vault.from_settings(keys).current_key
    store = (await open_store(config.store, documents_of(find_services()))).tenant("-")
    now, later = store.clock.now(), store.clock.now() + timedelta(days=5)
    process = Process(
        id="p", host="h", pid=1, version="1", release_id="r", key_id=key_id, started_at=now, seen_at=later
    )
    current = OpenChannel(channel_id="c-1", resource_id="r", ends_at=later)
    watch = Watch(
        id="parcels-a", name="parcels", watched_id="a", status="watched", current=current, renew_at=later,
        due_at=later, key_id=key_id,
    )  # fmt: skip
    await store.commit(create(process), create(watch))
    await store.close()


async def _replace_channel(home: Path, keys: str) -> bool:
    """Whether the channel is due to be replaced; then it is, by these keys."""
    config = load_config({"home": home}, environ={})
    store = (await open_store(config.store, documents_of(find_services()))).tenant("-")
    found = await store.get(Watch, "parcels-a")
    assert found is not None
    due = found.doc.due_at is not None and found.doc.due_at <= store.clock.now()
    await store.commit(patch(Watch, "parcels-a", changes={"key_id": Vault.from_settings(keys).current_key}))
    await store.commit(delete(Process, "p"))
    await store.close()
    return due


def test_a_key_is_dropped_once_nothing_needs_it_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = new_key("old"), new_key("new")
    asyncio.run(_record_uses(tmp_path, old))
    file = tmp_path / "keys"
    file.write_text(f"{new},{old}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_KEYS", raising=False)
    refused = _run("drop", "old", code=1)
    for use in ("the process", "1 sealed in holdfast_endpoints", "1 signed in holdfast_audit_heads",
                "tokens of 1 open push channels", VISITOR_KEY.signs):  # fmt: skip
        assert use in refused
    _run("rotate")
    refused = _run("drop", "old", code=1)
    assert "sealed in" not in refused
    assert "signed in" not in refused
    assert re.search(r"until \d{4}-\d\d-\d\d \d\d:\d\d UTC: tokens of 1 open push channels", refused)
    assert asyncio.run(_replace_channel(tmp_path, new)), "running processes are asked to open another"
    assert "push channels" not in _run("drop", "old", code=1)
    assert "current key" in _run("drop", "new", code=1)
    assert "there is no key" in _run("drop", "older", code=1)
    assert json.loads(_run("drop", "old", "--force")) == {"key": "old", "removed": True}
    assert file.read_text() == new
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_of_the_environment_is_only_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    old, new = new_key("old"), new_key("new")
    asyncio.run(_keep(tmp_path, new))
    monkeypatch.setenv("HOLDFAST_KEYS", f"{new},{old}")
    assert json.loads(_run("drop", "old", "--force")) == {"key": "old", "removed": False}


async def test_an_old_key_stays_for_as_long_as_what_it_signed_is_out_counted_from_the_first_rotation(
    sqlite_url: str, clock: ManualClock
) -> None:
    services, now = find_services(), clock.now()
    store = await open_store(sqlite_url, documents_of(services), clock=clock)
    await store.migrate()
    vault = Vault.from_settings(f"{new_key('new')},{new_key('old')}")
    for n in (0, 5):
        rotation = Rotation(id=f"r{n}", collection="c", fields=[], key_id="new",
                            started_at=now + timedelta(hours=n), updated_at=now)  # fmt: skip
        await store.privileged().commit(create(rotation))
    assert await old_key_uses(store, Vault.from_settings(new_key("new")), services) == []
    uses = await old_key_uses(store, vault, services)
    assert uses == [KeyUse("old", VISITOR_KEY.signs, now + timedelta(days=1))]
    await clock.advance(86_400)
    assert await old_key_uses(store, vault, services) == []
    await store.close()


def test_every_derived_key_of_the_package_is_registered() -> None:
    found = pkgutil.walk_packages(holdfast.__path__, "holdfast.")
    modules = [importlib.import_module(one.name) for one in found if not one.name.endswith("__main__")]
    declared = [one for module in modules for one in vars(module).values() if isinstance(one, DerivedKey)]
    registered = key_register(find_services()).derived
    assert len({one.purpose for one in declared}) >= 3
    for key in declared:
        assert key in registered
