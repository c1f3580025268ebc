"""Leases whose response was lost.

Such a lease may exist: nobody works under it, and nobody else can before it ends. So its owner remembers it
and claims the document again once it has read that the lease is its own.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.commit import Snapshot
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.document_names import DocumentNames, FirestoreDocument
from holdfast.store.port import ClaimRequest


def names_owner(request: ClaimRequest) -> bool:
    """Whether a lease names its owner: only then can it be recognized."""
    return bool(request.owner and request.schema.claim and request.schema.claim.owner)


class UnconfirmedClaims:
    def __init__(self, client: FirestoreClient, names: DocumentNames) -> None:
        self._client, self._names = client, names
        self._leased: dict[tuple[str, str, str | None], dict[str, Any]] = {}

    def note(self, request: ClaimRequest, key: str, leased: Any | None) -> None:
        """Remember a document as its lease would leave it; None forgets it."""
        leases = self._leased.setdefault(_owner_key(request), {})
        leases.pop(key, None)
        if leased is not None and names_owner(request):
            leases[key] = leased
        if not leases:
            del self._leased[_owner_key(request)]

    async def own(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        """Return what this owner holds unconfirmed, to be claimed as if it were due."""
        leases = self._leased.get(_owner_key(request))
        if not leases:
            return []
        names = {self._names.name(request.schema, key): key for key in leases}
        rows = await self._client.read(list(names))
        found = [FirestoreDocument(request.schema, names[name], row).snapshot() for name, row in rows.items()]
        own = [item for item in found if _same_lease(request, item.doc, leases[item.key])]
        for key in leases.keys() - {item.key for item in own}:
            self.note(request, key, None)
        return own


def _owner_key(request: ClaimRequest) -> tuple[str, str, str | None]:
    return request.schema.name, request.owner, request.tenant


def _same_lease(request: ClaimRequest, one: Any, other: Any) -> bool:
    """Whether both have the same owner, fence and end of the lease."""
    claim = request.schema.claim
    assert claim is not None
    fields = (claim.due, claim.fence, *([claim.owner] if claim.owner else ()))
    return all(getattr(one, name) == getattr(other, name) for name in fields)
