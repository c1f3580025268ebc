"""The order of a chat's updates: each is decided when those before it are.

    update ──► join, in the commit that starts its run ──► decide ──► leave, which wakes the next run

What follows a decision (calendars, the answer) goes on side by side: versions keep that right.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.kit.runs import Runs, Workflow
from holdfast.services.c4lendar.incoming import Incoming
from holdfast.services.c4lendar.models import ChatQueue, QueuedUpdate
from holdfast.store import Store, Transaction, delete, put

# A run that was not woken looks for itself whether the one before it has ended.
LOOK_S: Final = 5.0


async def start_in_order(tx: Transaction, store: Store, workflow: Workflow, incoming: Incoming) -> None:
    """Start the run of an update behind those that its chat still waits for.

    Telegram may deliver two updates at once in the wrong order, so that a late one goes before later ones.
    """
    chat_id = incoming.tenant_id
    stored = await tx.get(ChatQueue, chat_id)
    waiting = stored.doc.updates if stored else []
    run, writes = Runs(store.tenant(chat_id)).writes_start(
        workflow, input=incoming, delay_s=LOOK_S if waiting else 0.0
    )
    later = (place for place, one in enumerate(waiting) if place and one.update_id > incoming.update_id > 0)
    place = next(later, len(waiting))
    queued = QueuedUpdate(update_id=incoming.update_id, run_id=run.id)
    tx.write(*writes, put(ChatQueue(chat_id=chat_id, updates=[*waiting[:place], queued, *waiting[place:]])))


async def is_first(store: Store, chat_id: str, run_id: str) -> bool:
    """Whether it is this run's turn; a run that ended without a decision is nobody's predecessor."""
    while True:
        stored = await store.tenant(chat_id).get(ChatQueue, chat_id)
        waiting = [one.run_id for one in stored.doc.updates] if stored else []
        if run_id not in waiting or waiting[0] == run_id:
            return True
        first = await Runs(store.tenant(chat_id)).get(waiting[0])
        if first is not None and first.completed_at is None:
            return False
        await leave(store, chat_id, waiting[0])


async def leave(store: Store, chat_id: str, run_id: str) -> None:
    """Take a decided update out of its chat's queue and wake the run of the next."""
    runs = Runs(store.tenant(chat_id))

    async def act(tx: Transaction) -> None:
        stored = await tx.get(ChatQueue, chat_id)
        waiting = stored.doc.updates if stored else []
        left = [one for one in waiting if one.run_id != run_id]
        if stored is None or len(left) == len(waiting):
            return
        if not left:
            tx.write(delete(ChatQueue, chat_id))
            return
        tx.write(put(msgspec.structs.replace(stored.doc, updates=left)))
        await runs.wake(left[0].run_id, tx)

    await store.tenant(chat_id).transact(act)
