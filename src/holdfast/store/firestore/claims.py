"""Claims on Firestore: find due documents, then lease each by a write that only one worker can make."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from google.api_core.exceptions import GoogleAPICallError

from holdfast.clock import from_us, to_us
from holdfast.errors import RetryLaterError
from holdfast.model.columns import Column
from holdfast.model.schema import Schema
from holdfast.store.commit import Snapshot
from holdfast.store.firestore import wire
from holdfast.store.firestore.client import FirestoreClient, back_off
from holdfast.store.firestore.document_names import DocumentNames
from holdfast.store.firestore.faults import (
    OK,
    UNKNOWN,
    from_status,
    may_be_applied,
    translate,
    unknown_outcome,
)
from holdfast.store.firestore.finder import compare, cursor_after, select, tenant_filter
from holdfast.store.firestore.key_locks import KeyLocks
from holdfast.store.firestore.unconfirmed_claims import UnconfirmedClaims, names_owner
from holdfast.store.firestore.values import encode, encode_fields, field_path
from holdfast.store.port import ClaimRequest

ROUNDS: Final = 8
TAKE_MAX: Final = 250
PAGE_MAX: Final = 300


class Claimer:
    def __init__(self, client: FirestoreClient, names: DocumentNames) -> None:
        self._client = client
        self._names = names
        self._locks = KeyLocks()
        self._unconfirmed = UnconfirmedClaims(client, names)

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        """Lease and fence what is due; what another worker leased first is skipped."""
        taken: list[tuple[datetime, Snapshot[Any]]] = []
        # Otherwise this process's own workers would all compete for the same earliest documents.
        async with self._locks.hold([request.schema.name]):
            for attempt in range(1, ROUNDS + 1):
                try:
                    if await self._take(request, taken):
                        break
                except RetryLaterError:
                    if not taken:
                        raise
                    break  # what is leased already must be worked on, not wait for its lease to end
                await back_off(attempt)
        return [item for _, item in sorted(taken, key=lambda pair: (pair[0], pair[1].key))]

    async def next_due(self, schema: Schema[Any], tenant: str | None, after_us: int | None) -> int | None:
        """Return when the earliest document is due: what a claim at the end of time would find first."""
        end = to_us(datetime.max.replace(tzinfo=UTC))
        request = ClaimRequest(schema=schema, now_us=end, lease_us=0, limit=1, owner="", tenant=tenant)
        due = schema.claim_columns[0]
        later = [] if after_us is None else [compare(due.stored, ">", encode(from_us(after_us)))]
        async for page in self._pages(request, later, [due.stored], size=1):
            return to_us(due.read(page[0].doc)) if page else None
        return None

    async def count_due(self, schema: Schema[Any], *, now_us: int, limit: int) -> int:
        """Count what a claim could find, page by page."""
        request = ClaimRequest(schema=schema, now_us=now_us, lease_us=0, limit=limit, owner="", tenant=None)
        count = 0
        async for page in self._pages(
            request, [], [schema.claim_columns[0].stored], size=min(limit, PAGE_MAX)
        ):
            count += len(page)
            if count >= limit or not page:
                break
        return min(count, limit)

    async def leased(
        self, schema: Schema[Any], owner_prefix: str, *, now_us: int, until_us: int, limit: int
    ) -> list[Snapshot[Any]]:
        """Return the documents that owners with this prefix hold, among all that are due in that time."""
        request = ClaimRequest(schema=schema, now_us=until_us, lease_us=0, limit=limit, owner="", tenant=None)
        due, claim = schema.claim_columns[0].stored, schema.claim
        assert claim is not None
        assert claim.owner is not None
        later, found = [compare(due, ">", encode(from_us(now_us)))], list[Snapshot[Any]]()
        async for page in self._pages(request, later, [due], size=PAGE_MAX):
            for item in page:
                in_state = claim.state is None or getattr(item.doc, claim.state[0]) == claim.state[1]
                if in_state and (getattr(item.doc, claim.owner) or "").startswith(owner_prefix):
                    found.append(item)
            if len(found) >= limit:
                break
        return found[:limit]

    async def _take(self, request: ClaimRequest, taken: list[tuple[datetime, Snapshot[Any]]]) -> bool:
        """Lease what the limit leaves beside `taken`; False where others got some of it, or may have."""
        found, before = await self._candidates(request, [item for _, item in taken]), len(taken)
        for start in range(0, len(found), TAKE_MAX):
            taken += await self._take_some(request, found[start : start + TAKE_MAX])
        return len(taken) - before == len(found)

    async def _take_some(
        self, request: ClaimRequest, found: Sequence[Snapshot[Any]]
    ) -> list[tuple[datetime, Snapshot[Any]]]:
        leased = [_leased(request, item.doc) for item in found]
        writes = [self._lease(request, item, doc) for item, doc in zip(found, leased, strict=True)]
        try:
            answers = await self._client.write_each(writes)
        except GoogleAPICallError as fault:
            if not may_be_applied(fault):
                raise translate(fault) from fault
            if not names_owner(request):
                raise unknown_outcome(str(fault)) from fault
            answers = [(UNKNOWN, str(fault), None)] * len(writes)
        due, won = request.schema.claim_columns[0], list[tuple[datetime, Snapshot[Any]]]()
        for item, doc, (code, text, result) in zip(found, leased, answers, strict=True):
            lost = code != OK and may_be_applied(from_status(code, text))
            self._unconfirmed.note(request, item.key, doc if lost else None)
            if code == OK:
                held = Snapshot(doc, wire.nanoseconds(result.update_time), item.key)
                won.append((due.read(item.doc), held))
        return won

    def _lease(self, request: ClaimRequest, item: Snapshot[Any], leased: Any) -> Any:
        """Return the write of the claimed fields alone, on condition that nobody was first."""
        stored = [column.stored for column in request.schema.claim_columns]
        fields = request.schema.to_fields(leased)
        document = wire.Document(
            name=self._names.name(request.schema, item.key),
            fields=encode_fields({name: fields[name] for name in stored}),
        )
        return wire.Write(
            update=document,
            update_mask=wire.DocumentMask(field_paths=map(field_path, stored)),
            current_document=wire.Precondition(update_time=wire.instant(item.version)),
        )

    async def _candidates(self, request: ClaimRequest, taken: Sequence[Snapshot[Any]]) -> list[Snapshot[Any]]:
        choice = _Choice(request, taken)
        choice.add(await self._unconfirmed.own(request))
        if choice.lane is None:
            due = request.schema.claim_columns[0].stored
            async for page in self._pages(request, [], [due], size=choice.wanted):
                choice.add(page)
                if choice.full:
                    break
        elif request.only_lanes is not None:
            for name in choice.in_order(request.only_lanes - request.skip_lanes):
                await self._visit(request, choice, name)
        else:
            await self._visit_lanes(request, choice)
        return choice.items

    async def _visit(self, request: ClaimRequest, choice: _Choice, lane: str) -> None:
        assert choice.lane is not None
        room = choice.room(lane)
        if room > 0:
            only = compare(choice.lane.stored, "==", encode(lane))
            async for page in self._pages(
                request, [only], [request.schema.claim_columns[0].stored], size=room
            ):
                choice.add(page)
                if choice.room(lane) <= 0:
                    break

    async def _visit_lanes(self, request: ClaimRequest, choice: _Choice) -> None:
        """Visit the lanes from `after_lane` on, once round."""
        first = request.lane_prefix
        start = max(request.after_lane or "", first)
        await self._visit_range(request, choice, low=start, high=None)
        if start != first:
            await self._visit_range(request, choice, low=first, high=start)

    async def _visit_range(
        self, request: ClaimRequest, choice: _Choice, *, low: str, high: str | None
    ) -> None:
        assert choice.lane is not None
        lane, due = choice.lane, request.schema.claim_columns[0].stored
        upper = [] if high is None else [compare(lane.stored, "<=", encode(high))]
        if request.lanes_below is not None:
            upper.append(compare(lane.stored, "<", encode(request.lanes_below)))
        position: str | None = low
        while position is not None:
            bounds = [compare(lane.stored, ">", encode(position)), *upper]
            position = None
            async for page in self._pages(request, bounds, [lane.stored, due], size=choice.page):
                choice.add(page)
                last = lane.read(page[-1].doc) if page else None
                if choice.full:
                    return
                if last is not None and choice.room(last) <= 0:
                    # The rest of this lane may be long: continue after it.
                    position = last
                    break

    async def _pages(
        self, request: ClaimRequest, filters: list[Any], order: list[str], *, size: int
    ) -> AsyncIterator[list[Snapshot[Any]]]:
        schema, size = request.schema, min(size, PAGE_MAX)
        ids = (request.tenant,) if schema.tenant_is_parent and request.tenant is not None else ()
        parent = self._names.parent(schema, ids)
        source = self._names.source(schema, across_parents=schema.path.nested and not ids)
        now = encode(from_us(request.now_us))
        filters = [
            compare(schema.claim_columns[0].stored, "<=", now),
            *tenant_filter(schema, request.tenant),
            *filters,
        ]
        query = select(source, filters, [(name, False) for name in order])
        query.limit.value = size
        rows = await self._client.query(parent, query)
        while True:
            yield list(self._names.snapshots(schema, rows))
            if len(rows) < size:
                return
            query.start_at.CopyFrom(cursor_after(rows[-1], order))
            rows = await self._client.query(parent, query)


class _Choice:
    """The candidates so far, within the limit and their lanes' shares."""

    def __init__(self, request: ClaimRequest, taken: Sequence[Snapshot[Any]]) -> None:
        self._request = request
        self.items: list[Snapshot[Any]] = []
        self._keys: set[str] = set()
        self.wanted = request.limit - len(taken)
        self.lane = _lane(request)
        self._used: Counter[str] = Counter()
        if self.lane is not None:
            self._used.update(self.lane.read(item.doc) for item in taken)

    @property
    def full(self) -> bool:
        return len(self.items) >= self.wanted

    @property
    def page(self) -> int:
        """Return a page size for several lanes, without reading far into a long one."""
        share = self._request.per_lane
        return self.wanted if share is None else min(self.wanted, max(4 * share, 20))

    def room(self, lane: str) -> int:
        only = self._request.only_lanes
        if lane in self._request.skip_lanes or (only is not None and lane not in only):
            return 0
        prefix = self._request.lane_prefix
        if prefix and not (lane.startswith(prefix) and lane != prefix):
            return 0
        left = self.wanted - len(self.items)
        share = self._request.per_lane
        return left if share is None else min(left, share - self._used[lane])

    def add(self, page: Sequence[Snapshot[Any]]) -> None:
        for item in page:
            lane: str = "" if self.lane is None else self.lane.read(item.doc)
            if item.key not in self._keys and self.room(lane) > 0:
                self.items.append(item)
                self._keys.add(item.key)
                self._used[lane] += 1

    def in_order(self, lanes: frozenset[str]) -> list[str]:
        start = self._request.after_lane or ""
        return sorted(lanes, key=lambda lane: (lane <= start, lane))


def _lane(request: ClaimRequest) -> Column | None:
    """Return the lane's column where the request chooses lanes."""
    asked = request.per_lane is not None or request.only_lanes is not None
    asked = asked or bool(request.skip_lanes or request.lane_prefix)
    claim = request.schema.claim
    if not asked or claim is None or claim.lane is None:
        return None
    return request.schema.column(claim.lane)


def _leased(request: ClaimRequest, document: Any) -> Any:
    claim = request.schema.claim
    assert claim is not None
    changes = {
        claim.due: from_us(request.now_us + request.lease_us),
        claim.fence: getattr(document, claim.fence) + 1,
    }
    if claim.owner:
        changes[claim.owner] = request.owner
    if claim.state:
        changes[claim.state[0]] = claim.state[1]
    return msgspec.structs.replace(document, **changes)
