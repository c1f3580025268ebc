"""The audit trail on every engine, under honest writers and under forgers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

from holdfast.app import open_store
from holdfast.errors import AppendOnlyError, ConfigError, RetryLaterError
from holdfast.kit.audit import (
    AUDIT_MODELS,
    Audit,
    AuditCheckpoint,
    AuditEntry,
    AuditEvent,
    AuditHead,
    CheckpointFile,
    CheckpointRecorder,
)
from holdfast.kit.audit.chain import seal
from holdfast.kit.audit.signatures import sign_heads
from holdfast.model import CompositeId, Document, Index, document
from holdfast.store import Query, Store, Transaction, create, delete, patch, put

ACME = "acme"


@document("things/{id}", tenant="tenant_id")
class Thing(Document):
    id: str
    tenant_id: str
    state: str = "new"


@document(
    "holdfast_audit/{id}",
    id=CompositeId("tenant_id", "place"),
    tenant="tenant_id",
    indexes=[
        Index("sequence"),
        Index("action", "-sequence"),
        Index("actor", "-sequence"),
        Index("subject", "-sequence"),
    ],
)
class Forged(AuditEvent, rename="camel"):
    """The same collection as another program would see it that respects no declaration."""


DOCUMENTS: list[type[Document]] = [AuditEvent, AuditHead, Thing]


@pytest.fixture
def audit(kit_store: Store) -> Audit:
    return Audit(kit_store, tenant_id=ACME)


@pytest.fixture
async def forger(kit_store: Store, kit_url: str) -> AsyncIterator[Store]:
    store = await open_store(kit_url, [Forged, AuditHead])
    yield store.tenant(ACME)
    await store.close()


async def _write_ten(audit: Audit) -> None:
    for number in range(1, 11):
        await audit.append(
            AuditEntry(action=f"act-{number % 3}", actor="ann", subject="s", details={"n": number})
        )


def _id(sequence: int) -> str:
    return f"{ACME}_{sequence:012d}"


async def test_an_untouched_chain_is_sound_and_counts_its_events(audit: Audit) -> None:
    assert (await audit.verify()).intact
    await _write_ten(audit)
    verdict = await audit.verify()
    assert verdict.intact
    assert verdict.events == 10


async def test_several_parts_append_in_one_transaction(audit: Audit, kit_store: Store) -> None:
    async def act(tx: Transaction) -> None:
        await audit.queue(tx)
        await audit.add(tx, AuditEntry(action="made", actor="ann"))
        await audit.add(tx, AuditEntry(action="told", actor="ann"), AuditEntry(action="paid", actor="bob"))

    await asyncio.gather(
        *(kit_store.tenant(ACME).transact(act) for _ in range(5)), *(audit.transact(act) for _ in range(2))
    )
    verdict = await audit.verify()
    assert (verdict.intact, verdict.events) == (True, 21)


async def test_an_act_and_its_event_land_together_or_not_at_all(audit: Audit, kit_store: Store) -> None:
    acme = kit_store.tenant(ACME)
    await acme.commit(create(Thing(id="t", tenant_id=ACME)))

    async def act(tx: Transaction) -> None:
        tx.write(create(Thing(id="t", tenant_id=ACME)))
        await audit.add(tx, AuditEntry(action="made", actor="ann", subject="t"))

    with pytest.raises(Exception, match="already exists"):
        await audit.transact(act, attempts=2)
    assert (await audit.verify()).events == 0


async def test_the_store_refuses_to_change_or_delete_an_event(audit: Audit, kit_store: Store) -> None:
    (event,) = await audit.append(AuditEntry(action="made", actor="ann"))
    acme = kit_store.tenant(ACME)
    for write in (
        patch(AuditEvent, event.id, changes={"actor": "eve"}),
        put(msgspec.structs.replace(event, actor="eve")),
        delete(AuditEvent, event.id),
    ):
        with pytest.raises(AppendOnlyError):
            await acme.commit(write)
    assert (await audit.verify()).intact


async def test_an_edit_of_any_field_is_found_and_located(audit: Audit, forger: Store) -> None:
    await _write_ten(audit)
    found = await forger.get(Forged, _id(4))
    assert found is not None
    for change in ({"actor": "eve"}, {"details": {"n": 5}}, {"hash": "0" * 64}, {"previous": "0" * 64}):
        await forger.commit(patch(Forged, _id(4), changes=change))
        verdict = await audit.verify()
        assert verdict.fault is not None
        assert (verdict.fault.kind, verdict.fault.sequence) == ("changed", 4)
        await forger.commit(put(found.doc))
    assert (await audit.verify()).intact


async def test_a_deleted_event_is_found_wherever_it_stood(audit: Audit, forger: Store) -> None:
    await _write_ten(audit)
    for sequence, kind in ((5, "missing"), (1, "missing"), (10, "cut off")):
        found = await forger.get(Forged, _id(sequence))
        assert found is not None
        await forger.commit(delete(Forged, _id(sequence)))
        verdict = await audit.verify()
        assert verdict.fault is not None
        assert (verdict.fault.kind, verdict.fault.sequence) == (kind, sequence)
        await forger.commit(put(found.doc))
    assert (await audit.verify()).intact


async def test_an_inserted_event_is_found(audit: Audit, forger: Store) -> None:
    await _write_ten(audit)
    found = await forger.get(Forged, _id(10))
    assert found is not None
    extra = msgspec.structs.replace(found.doc, id="", sequence=11, place="000000000011")
    await forger.commit(put(extra))
    verdict = await audit.verify()
    assert verdict.fault is not None
    assert verdict.fault.sequence == 11


async def test_two_events_that_changed_places_are_found(audit: Audit, forger: Store) -> None:
    await _write_ten(audit)
    third, fourth = await forger.get(Forged, _id(3)), await forger.get(Forged, _id(4))
    assert third is not None
    assert fourth is not None
    await forger.commit(
        put(msgspec.structs.replace(third.doc, id="", sequence=4, place="000000000004")),
        put(msgspec.structs.replace(fourth.doc, id="", sequence=3, place="000000000003")),
    )
    verdict = await audit.verify()
    assert verdict.fault is not None
    assert verdict.fault.sequence == 3


async def test_an_event_holds_neither_control_characters_nor_secrets_of_urls(audit: Audit) -> None:
    (event,) = await audit.append(
        AuditEntry(
            action="endpoint.created", actor="ann\x00", subject="rms",
            details={"url": "https://rms.example/hook?token=hunter2", "said": "no\x00"},
        )
    )  # fmt: skip
    assert (event.actor, event.details) == (
        "ann\ufffd", {"url": "https://rms.example/hook?token=***", "said": "no\ufffd"},
    )  # fmt: skip
    assert (await audit.verify()).intact


KEY, OTHER_KEY = b"k" * 32, b"o" * 32


async def _rewrite(forger: Store, sequence: int) -> None:
    """Change an event and make all hashes again, the head's included, as somebody without the key can."""
    events = [item.doc async for item in forger.scan(Query(Forged).order_by("sequence"))]
    head = AuditHead(tenant_id=ACME)
    for event in events:
        if event.sequence == sequence:
            event.actor = "eve"
        event.previous = head.hash
        event.hash = seal(msgspec.convert(msgspec.to_builtins(event), AuditEvent))
        head = AuditHead(tenant_id=ACME, sequence=event.sequence, hash=event.hash)
    stored = await forger.get(AuditHead, ACME)
    assert stored is not None
    await forger.commit(*map(put, events), put(msgspec.structs.replace(head, mac=stored.doc.mac)))


async def test_a_chain_rewritten_with_all_its_hashes_is_found_by_its_key(
    kit_store: Store, forger: Store
) -> None:
    keyed = Audit(kit_store, ACME, keys=[KEY])
    await _write_ten(keyed)
    assert (await keyed.verify()).intact
    await _rewrite(forger, 4)
    assert (await Audit(kit_store, ACME).verify()).intact, "hashes alone say nothing"
    verdict = await keyed.verify()
    assert verdict.fault is not None
    assert verdict.fault.kind == "forged"


async def test_an_append_does_not_make_a_forged_chain_good(kit_store: Store, forger: Store) -> None:
    keyed = Audit(kit_store, ACME, keys=[KEY])
    await _write_ten(keyed)
    await _rewrite(forger, 4)
    await keyed.append(AuditEntry(action="later", actor="ann"))
    await keyed.append(AuditEntry(action="later", actor="ann"))
    verdict = await keyed.verify()
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.sequence) == ("forged", 10)


async def test_a_rotated_key_verifies_until_every_head_is_signed_by_the_new_one(kit_store: Store) -> None:
    await _write_ten(Audit(kit_store, ACME, keys=[KEY]))
    rotated = Audit(kit_store, ACME, keys=[OTHER_KEY, KEY])
    assert (await rotated.verify()).intact
    assert not (await Audit(kit_store, ACME, keys=[OTHER_KEY]).verify()).intact
    assert await sign_heads(kit_store, AuditHead, [OTHER_KEY, KEY]) == (1, [])
    assert await sign_heads(kit_store, AuditHead, [OTHER_KEY]) == (0, [])
    assert (await Audit(kit_store, ACME, keys=[OTHER_KEY]).verify()).intact
    assert await sign_heads(kit_store, AuditHead, [b"x" * 32]) == (0, [ACME]), "what no key signed stays so"


async def test_a_chain_from_before_there_were_keys_is_unsigned_until_it_is_signed_on_record(
    kit_store: Store,
) -> None:
    keyed = Audit(kit_store, ACME, keys=[KEY])
    await _write_ten(Audit(kit_store, ACME))
    await keyed.append(AuditEntry(action="later", actor="ann"))
    verdict = await keyed.verify()
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.sequence) == ("unsigned", 11), "an append signs nothing"
    assert "holdfast keys rotate" in verdict.fault.message
    assert await sign_heads(kit_store, AuditHead, [KEY], actor="ops") == (1, [])
    assert await sign_heads(kit_store, AuditHead, [KEY], actor="ops") == (0, []), "once"
    assert (await keyed.verify()).intact
    signed = Query(AuditEvent).where("action", "==", "audit.signed").order_by("-sequence")
    events = (await kit_store.tenant(ACME).query(signed)).docs
    assert [(e.actor, e.sequence, e.details["sequence"]) for e in events] == [("ops", 12, 11)]


async def test_a_chain_whose_signature_was_removed_is_forged_where_a_checkpoint_saw_it(
    kit_store: Store, tmp_path: Path
) -> None:
    keyed, recorder = _recorded(kit_store, tmp_path)
    await _write_ten(keyed)
    (checkpoint,) = await recorder.record()
    tenant = kit_store.tenant(ACME)
    stored = await tenant.get(AuditHead, ACME)
    assert stored is not None
    await tenant.commit(put(msgspec.structs.replace(stored.doc, mac="")))
    fault = await keyed.check(checkpoint)
    assert fault is not None
    assert fault.kind == "forged"
    assert await sign_heads(kit_store, AuditHead, [KEY], recorded=[ACME]) == (0, [ACME])


async def test_an_earlier_state_put_back_whole_is_found_by_a_checkpoint(
    kit_store: Store, forger: Store, tmp_path: Path
) -> None:
    keyed, recorder = _recorded(kit_store, tmp_path)
    await _write_ten(keyed)
    early = await forger.get(AuditHead, ACME)
    assert early is not None
    await keyed.append(AuditEntry(action="theft", actor="eve"))
    (checkpoint,) = await recorder.record()
    assert (checkpoint.tenant_id, checkpoint.sequence) == (ACME, 11)
    assert await recorder.record() == [], "only what grew is recorded again"
    await forger.commit(delete(Forged, _id(11)), put(early.doc))
    assert (await keyed.verify()).intact, "nothing in the database shows it"
    verdict = await keyed.verify(checkpoint)
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.sequence) == ("cut off", 11)
    for number in range(3):
        await keyed.append(AuditEntry(action="act", actor="eve", subject=str(number)))
    assert await recorder.record() == [], "a trail that does not continue its checkpoint keeps it"
    verdict = await keyed.verify(checkpoint)
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.sequence) == ("changed", 11)


async def test_a_trail_deleted_with_its_head_is_found_by_a_checkpoint(
    kit_store: Store, forger: Store, tmp_path: Path
) -> None:
    keyed, recorder = _recorded(kit_store, tmp_path)
    await _write_ten(keyed)
    (checkpoint,) = await recorder.record()
    await forger.commit(*(delete(Forged, _id(n)) for n in range(1, 11)), delete(AuditHead, ACME))
    assert (await keyed.verify()).intact
    verdict = await keyed.verify(checkpoint)
    assert verdict.fault is not None
    assert (verdict.fault.kind, verdict.fault.sequence) == ("cut off", 1)


def _recorded(store: Store, folder: Path) -> tuple[Audit, CheckpointRecorder]:
    keyed = Audit(store, ACME, keys=[KEY])
    file = CheckpointFile(folder / "home" / "checkpoints.json")
    return keyed, CheckpointRecorder(store, {"kit": AUDIT_MODELS}, audits=lambda *_, **__: keyed, file=file)


async def test_checkpoints_that_nobody_took_are_sent_again_with_the_next(
    kit_store: Store, tmp_path: Path
) -> None:
    keyed, sent = Audit(kit_store, ACME, keys=[KEY]), list[int]()

    async def publish(checkpoints: Sequence[AuditCheckpoint]) -> None:
        sent.append(checkpoints[0].sequence)
        if len(sent) == 1:
            raise RetryLaterError("nobody is there", after_s=1)

    recorder = CheckpointRecorder(
        kit_store, {"kit": AUDIT_MODELS}, audits=lambda *_, **__: keyed,
        file=CheckpointFile(tmp_path / "checkpoints.json"), publish=publish,
    )  # fmt: skip
    await keyed.append(AuditEntry(action="act", actor="ann"))
    for _ in range(3):
        await recorder.record()
    assert sent == [1, 1]


async def test_a_short_key_is_refused(kit_store: Store) -> None:
    with pytest.raises(ConfigError, match="32 bytes"):
        Audit(kit_store, tenant_id=ACME, keys=[b"short"])


async def test_eight_writers_at_once_keep_one_unbroken_chain(kit_store: Store) -> None:
    trails = [Audit(kit_store, tenant_id=ACME) for _ in range(8)]

    async def write(trail: Audit, writer: int) -> None:
        for number in range(6):
            await trail.append(AuditEntry(action="act", actor=f"w{writer}", subject=str(number)))

    await asyncio.gather(*(write(trail, n) for n, trail in enumerate(trails)))
    verdict = await trails[0].verify()
    assert verdict.intact
    assert verdict.events == 48


async def test_tenants_have_chains_of_their_own(kit_store: Store) -> None:
    acme, other = Audit(kit_store, tenant_id=ACME), Audit(kit_store, tenant_id="other")
    await _write_ten(acme)
    await other.append(AuditEntry(action="act", actor="bob"))
    assert (await other.verify()).events == 1
    events = await kit_store.tenant("other").query(
        Query(AuditEvent).where("actor", "==", "ann").order_by("-sequence")
    )
    assert events.items == []


async def test_an_export_is_one_line_an_event_in_order(audit: Audit) -> None:
    await _write_ten(audit)
    lines = [msgspec.json.decode(line) async for line in audit.export()]
    assert [line["sequence"] for line in lines] == list(range(1, 11))


async def test_an_event_filed_under_a_false_name_is_found(sqlite_url: str) -> None:
    """Only SQL engines keep a field twice, in the document and in a column; both must agree."""
    store = await open_store(sqlite_url, DOCUMENTS)
    await store.migrate()
    audit = Audit(store, tenant_id=ACME)
    await _write_ten(audit)
    link = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    link.execute("UPDATE holdfast_audit SET actor = 'eve' WHERE sequence = 7")
    verdict = await audit.verify()
    link.close()
    await store.close()
    assert verdict.fault is not None
    assert verdict.fault.kind == "misfiled"
