"""`holdfast doctor` on stores and what they hold: each fault is planted for real and found."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import asyncpg

from holdfast.app import open_store
from holdfast.kit.audit import Audit, AuditEntry, AuditHead, CheckpointRecorder
from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, EndpointSecrets, new_secret
from holdfast.kit.outbox.circuits import circuit_id
from holdfast.kit.outbox.models import EndpointCircuit, EndpointSecret
from holdfast.kit.processes import SchemaState
from holdfast.kit.vault import new_key
from holdfast.kit.vault.keys import legacy_cipher
from holdfast.operations import audit
from holdfast.runtime import Runtime, documents_of, find_services
from holdfast.store import create, delete, put
from tests.cli.doctor.examined import examine, fault, faults, keep, nothing

_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_store_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert "HOLDFAST_STORE" in fault(tmp_path, "store", HOLDFAST_STORE="sqlite:///folder")


def test_a_store_that_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("dear diary, today I lost a webhook. " * 500)
    assert "HOLDFAST_STORE" in fault(tmp_path, "store", HOLDFAST_STORE="sqlite:///notes.db")


def test_a_store_that_another_process_holds_locked(tmp_path: Path) -> None:
    keep(tmp_path, nothing)
    holder = apsw.Connection(str(tmp_path / ".holdfast" / "holdfast.db"))
    holder.execute("BEGIN IMMEDIATE")
    assert "locked" in fault(tmp_path, "store")
    holder.close()
    assert faults(examine(tmp_path)) == []


def test_a_file_with_damaged_pages(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        made = Endpoint(id="there", tenant_id="acme", url="https://page.example", created_at=_LONG_AGO)
        await runtime.store.tenant("acme").commit(create(made))

    keep(tmp_path, act)
    told = examine(tmp_path, options=("--integrity",))
    assert faults(told) == []
    (file,) = [one["message"] for one in told["findings"] if one["name"] == "file"]
    assert "MB of it free for new documents" in file
    database = tmp_path / ".holdfast" / "holdfast.db"
    content = bytearray(database.read_bytes())
    page = content.index(b"https://page.example") // 4096 * 4096
    content[page : page + 4096] = b"\xff" * 4096
    database.write_bytes(content)
    assert "restore the newest backup" in fault(tmp_path, "integrity", options=("--integrity",))


def test_a_server_that_can_not_be_reached(home: Path) -> None:
    assert "HOLDFAST_STORE" in fault(
        home, "store", HOLDFAST_STORE="postgresql://127.0.0.1:1/none?retry_s=0.2"
    )


def test_a_password_that_is_wrong(home: Path, postgres_url: str) -> None:
    asyncio.run(_want_password(postgres_url))
    url = f"postgresql://doctored:guess@{postgres_url.partition('://')[2].rpartition('@')[2]}"
    told = fault(home, "store", HOLDFAST_STORE=url)
    assert "correct the user and password" in told
    assert "guess" not in told


async def _want_password(url: str) -> None:
    """From now on the server wants a password of one person it knows."""
    link = await asyncpg.connect(url)
    try:
        await link.execute(
            "do $$ begin if not exists (select from pg_roles where rolname = 'doctored') "
            "then create role doctored login password 'right'; end if; end $$"
        )
        rules = Path(await link.fetchval("show hba_file"))
        rule = "host all doctored all scram-sha-256\nlocal all doctored scram-sha-256\n"
        if rule not in rules.read_text():
            rules.write_text(rule + rules.read_text())
            await link.execute("select pg_reload_conf()")
    finally:
        await link.close()


def test_a_server_that_is_read_only(home: Path, postgres_url: str) -> None:
    async def make_read_only() -> None:
        store = await open_store(postgres_url, documents_of(find_services()))
        await store.migrate()
        await store.close()
        link = await asyncpg.connect(postgres_url)
        name = await link.fetchval("select current_database()")
        await link.execute(f'alter database "{name}" set default_transaction_read_only = on')
        await link.close()

    asyncio.run(make_read_only())
    told = fault(home, "store", HOLDFAST_STORE=postgres_url)
    assert "PostgreSQL is read-only" in told
    assert "primary server" in told


def test_a_database_that_is_not_there(home: Path, postgres_url: str) -> None:
    url = f"{postgres_url.rpartition('/')[0]}/nowhere"
    assert "createdb" in fault(home, "store", HOLDFAST_STORE=url)


def test_an_old_schema(tmp_path: Path) -> None:
    (tmp_path / "old.db").touch()
    assert "holdfast serve" in fault(tmp_path, "schema", HOLDFAST_STORE="sqlite:///old.db")


def test_a_store_that_a_newer_release_worked_on(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        await runtime.store.privileged().commit(put(SchemaState(version="99.1.0", at=_LONG_AGO)))

    keep(tmp_path, act)
    assert "holdfast-kit>=99.1.0" in fault(tmp_path, "release")


def test_nobody_who_may_do_everything(tmp_path: Path) -> None:
    keep(tmp_path, nothing, admin=False)
    assert "tokens create" in fault(tmp_path, "admin")


def test_secrets_that_the_keys_do_not_open(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        made = Endpoint(id="there", tenant_id="acme", url="https://rms.example", created_at=_LONG_AGO)
        made.secrets = [EndpointSecrets(runtime.vault).seal(made, new_secret())]
        await runtime.store.tenant("acme").commit(create(made))

    keep(tmp_path, act)
    assert faults(examine(tmp_path)) == []
    assert "put the key" in fault(tmp_path, "sealed secrets", HOLDFAST_KEYS=new_key("other"))


def test_secrets_of_a_former_system_need_its_key(tmp_path: Path) -> None:
    key, iv = "the former system's key", b"0" * 12
    former = base64.b64encode(iv + legacy_cipher(key).encrypt(iv, b"whsec_c2VjcmV0", None)).decode()

    async def act(runtime: Runtime) -> None:
        made = Endpoint(id="there", tenant_id="acme", url="https://rms.example", created_at=_LONG_AGO)
        made.secrets = [EndpointSecret(former)]
        await runtime.store.tenant("acme").commit(create(made))

    keep(tmp_path, act)
    assert "HOLDFAST_LEGACY_KEY" in fault(tmp_path, "sealed secrets")
    assert faults(examine(tmp_path, HOLDFAST_LEGACY_KEY=key)) == []


def test_due_work_that_nobody_does(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        delivery = Delivery(
            id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid", body=b"{}",
            occurred_at=_LONG_AGO, created_at=_LONG_AGO, next_attempt_at=_LONG_AGO,
        )  # fmt: skip
        await runtime.store.tenant("acme").commit(create(delivery))

    keep(tmp_path, act)
    assert "holdfast work" in fault(tmp_path, "backlog")


def test_dead_letters_that_wait_for_somebody(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        letter = DeadLetter(
            id="e1~rms", tenant_id="acme", event_id="e1", endpoint_id="rms", event_type="paid", reason="no",
            died_at=_LONG_AGO,
        )  # fmt: skip
        await runtime.store.tenant("acme").commit(create(letter))

    keep(tmp_path, act)
    said = fault(tmp_path, "dead letters")
    assert "`holdfast dlq replay --outbox holdfast --tenant acme`" in said, "as it is, it finds them"


def test_endpoints_that_take_nothing(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        made = Endpoint(
            id="rms", tenant_id="acme", url="https://rms.example", created_at=_LONG_AGO, status="disabled",
            reason="410",
        )  # fmt: skip
        circuit = EndpointCircuit(
            id=circuit_id(Endpoint, "crm"), tenant_id="globex", collection="holdfast_endpoints",
            endpoint_id="crm", failures=10, probe_at=runtime.clock.now() + timedelta(days=1),
        )  # fmt: skip
        await runtime.store.tenant("acme").commit(create(made))
        await runtime.store.tenant("globex").commit(create(circuit))

    keep(tmp_path, act)
    said = fault(tmp_path, "endpoints")
    assert "rms of holdfast is disabled: 410; crm of holdfast is paused after 10 failures" in said
    assert "`holdfast endpoints enable rms --outbox holdfast --tenant acme`" in said
    assert "`holdfast endpoints show crm --outbox holdfast --tenant globex`" in said


def test_an_audit_trail_that_lost_what_its_checkpoint_holds(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        await runtime.audit("acme").append(AuditEntry(action="act", actor="ann"))
        trails = {name: part.models for name, part in runtime.audits.items()}
        file = runtime.checkpoints
        assert await CheckpointRecorder(runtime.store, trails, audits=runtime.audit, file=file).record()

    async def cut(runtime: Runtime) -> None:
        assert (await audit.verify(runtime, "acme")).sound
        await runtime.store.tenant("acme").commit(delete(AuditHead, "acme"))
        assert not (await audit.verify(runtime, "acme")).sound

    keep(tmp_path, act)
    assert faults(examine(tmp_path)) == []
    assert "no key authenticates" in fault(tmp_path, "audit trails", HOLDFAST_KEYS=new_key("other"))
    keep(tmp_path, cut, admin=False)
    assert "holdfast audit verify --trail holdfast --tenant acme" in fault(tmp_path, "audit trails")


def test_an_audit_trail_that_no_key_has_signed_yet(tmp_path: Path) -> None:
    async def act(runtime: Runtime) -> None:
        await Audit(runtime.store, "acme").append(AuditEntry(action="act", actor="ann"))

    keep(tmp_path, act)
    assert "sign it with `holdfast keys rotate`" in fault(tmp_path, "audit trails")
