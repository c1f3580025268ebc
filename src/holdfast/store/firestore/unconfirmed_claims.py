"""Leases whose answer was lost.

Such a lease may have landed: nobody works under it, and nobody else can before it ends. So whoever asked for
it remembers it, and takes the document anew once that says that the lease is his.
"""

from __future__ import annotations

from typing import Any

from holdfast.store.commit import Snapshot
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.document_names import DocumentNames, Stored
from holdfast.store.port import ClaimRequest


def names_owner(request: ClaimRequest) -> bool:
    """Whether a lease says whose it is: only then can it be known again."""
    return bool(request.owner and request.schema.claim and request.schema.claim.owner)


class UnconfirmedClaims:
    def __init__(self, client: FirestoreClient, places: DocumentNames) -> None:
        self._client, self._places = client, places
        self._leased: dict[tuple[str, str, str | None], dict[str, Any]] = {}

    def note(self, request: ClaimRequest, key: str, leased: Any | None) -> None:
        """Remember a document as it is if its lease landed; None once that is known."""
        mine = self._leased.setdefault(_whose(request), {})
        mine.pop(key, None)
        if leased is not None and names_owner(request):
            mine[key] = leased
        if not mine:
            del self._leased[_whose(request)]

    async def own(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        """What this owner holds without having heard of it, to be taken as if it were due."""
        mine = self._leased.get(_whose(request))
        if not mine:
            return []
        names = {self._places.name(request.schema, key): key for key in mine}
        rows = await self._client.read(list(names))
        found = [Stored(request.schema, names[name], row).snapshot() for name, row in rows.items()]
        own = [item for item in found if _alike(request, item.doc, mine[item.key])]
        for key in mine.keys() - {item.key for item in own}:
            self.note(request, key, None)
        return own


def _whose(request: ClaimRequest) -> tuple[str, str, str | None]:
    return request.schema.name, request.owner, request.tenant


def _alike(request: ClaimRequest, one: Any, other: Any) -> bool:
    """Whether both say the same of whose claim it is, which one, and until when."""
    claim = request.schema.claim
    assert claim is not None
    fields = (claim.due, claim.fence, *([claim.owner] if claim.owner else ()))
    return all(getattr(one, name) == getattr(other, name) for name in fields)
