"""Accounts that an import knew by their address alone: replaced when they are connected again."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.ids import join_segments
from holdfast.kit.connections import Connections
from holdfast.services.c4lendar.domain.kv_layout import UNKNOWN_SUB
from holdfast.services.c4lendar.models import EventMapping, GoogleConnection
from holdfast.store import Query, Store, Transaction, delete, put

BATCH: Final = 200


async def end_placeholder(tx: Transaction, connections: Connections, account: GoogleConnection) -> None:
    """End the placeholder of an account that is being connected.

    Nothing is revoked at Google: the account's new grant would end with it.
    """
    stored = await tx.get(GoogleConnection, join_segments(account.chat_id, _placeholder(account)))
    if stored is not None and not stored.doc.revoked:
        await connections.end(tx, stored.doc.connection_id, reason="connected again", at_provider=False)
        tx.write(put(msgspec.structs.replace(stored.doc, revoked=1, purge_at=account.updated_at)))


async def move_mappings(store: Store, account: GoogleConnection) -> None:
    """Give an account the events that its placeholder has."""
    query = Query(EventMapping).where("google_sub", "==", _placeholder(account)).limit(BATCH)
    while rows := (await store.query(query)).docs:
        for row in rows:
            moved = msgspec.structs.replace(row, id="", google_sub=account.google_sub)
            await store.commit(put(moved), delete(EventMapping, row.id))


def _placeholder(account: GoogleConnection) -> str:
    return f"{UNKNOWN_SUB}{account.google_email}"
