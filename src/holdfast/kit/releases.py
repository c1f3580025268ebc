"""The newest release of Holdfast that migrated a store, so that an older one can refuse it."""

from __future__ import annotations

import re
from datetime import datetime

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, document
from holdfast.store import Store, Transaction, put

RELEASE_ID = "holdfast"


@document("holdfast_releases/{id}", tenant="tenant_id", access=SERVICE_ONLY)
class Release(Document, rename="camel"):
    """The newest release that migrated this store."""

    id: str = RELEASE_ID
    tenant_id: str = NO_TENANT
    version: str
    at: datetime


def is_newer(version: str, than: str) -> bool:
    """Whether a version comes after another.

    Example: `is_newer("0.10.0", than="0.9.2")` gives `True`
    """
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


async def note_release(store: Store, version: str) -> None:
    """Record this release if it is the newest yet."""

    async def act(tx: Transaction) -> None:
        stored = await tx.get(Release, RELEASE_ID)
        if stored is None or is_newer(version, than=stored.doc.version):
            tx.write(put(Release(version=version, at=store.clock.now())))

    await store.privileged().transact(act)


async def release_of(store: Store) -> str:
    """The newest release that migrated the store; empty where none is recorded."""
    stored = await store.privileged().get(Release, RELEASE_ID)
    return "" if stored is None else stored.doc.version
