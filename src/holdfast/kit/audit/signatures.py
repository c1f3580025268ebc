"""Signatures of the heads of audit trails, renewed when the key changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from holdfast.kit.audit.chain import is_authentic, is_unsigned, sign
from holdfast.kit.audit.models import AuditEntry, AuditHead, AuditHeadFields
from holdfast.kit.audit.trail import ATTEMPTS, PAGE, Audit
from holdfast.model import schema_of
from holdfast.store import Query, Store, Transaction, put

SIGNED: Final = "audit.signed"


async def sign_heads(
    store: Store,
    kind: type[AuditHeadFields],
    keys: Sequence[bytes],
    *,
    actor: str = "holdfast",
    recorded: Collection[str] = (),
) -> tuple[int, list[str]]:
    """Sign every head by the first key, where any of them did; return how many, and the tenants of others.

    Afterwards the other keys can go. A head that no key ever signed is signed, too, and an event in the
    tenant's trail says so; not where a checkpoint of that tenant is `recorded`, for then it was signed once.
    """
    signed, forged, store = 0, list[str](), store.privileged()
    async for head in store.scan(Query(kind).limit(PAGE)):
        tenant_id = head.doc.tenant_id
        if is_unsigned(head.doc) and tenant_id not in recorded:
            act = partial(_sign_first, store=store, head=head.doc, keys=keys, actor=actor)
            signed += await store.transact(act, attempts=ATTEMPTS)
        elif not is_authentic(head.doc, keys):
            forged.append(tenant_id)
        elif not is_authentic(head.doc, keys[:1]):
            again = partial(_sign_again, kind=kind, tenant_id=tenant_id, keys=keys)
            signed += await store.transact(again, attempts=ATTEMPTS)
    return signed, forged


async def count_heads(store: Store, kind: type[AuditHeadFields], keys: Mapping[str, bytes]) -> Counter[str]:
    """Count the heads by the id of the key that signed them; those that none did are not counted."""
    counts: Counter[str] = Counter()
    async for head in store.privileged().scan(Query(kind).limit(PAGE)):
        if head.doc.sequence:
            counts.update([id for id, key in keys.items() if is_authentic(head.doc, [key])][:1])
    return counts


async def _sign_first(
    tx: Transaction, *, store: Store, head: AuditHeadFields, keys: Sequence[bytes], actor: str
) -> bool:
    kind, tenant_id = type(head), head.tenant_id
    stored = await tx.get(kind, tenant_id)
    if stored is None or not is_unsigned(stored.doc):
        return False
    details = {"sequence": stored.doc.sequence, "hash": stored.doc.hash}
    subject = f"{'/'.join(schema_of(kind).path.names)}/{tenant_id}"
    entry = AuditEntry(action=SIGNED, actor=actor, subject=subject, details=details)
    await Audit(store, tenant_id, keys=keys).add(tx, entry, sign_first=kind is AuditHead)
    if kind is not AuditHead:
        tx.write(put(sign(stored.doc, keys[0])))
    return True


async def _sign_again(
    tx: Transaction, *, kind: type[AuditHeadFields], tenant_id: str, keys: Sequence[bytes]
) -> bool:
    stored = await tx.get(kind, tenant_id)
    if stored is None or is_authentic(stored.doc, keys[:1]) or not is_authentic(stored.doc, keys):
        return False
    tx.write(put(sign(stored.doc, keys[0])))
    return True
