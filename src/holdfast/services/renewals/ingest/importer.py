"""Taking the platform's tables in, from a folder or from a database: one portfolio, one import at a time.

    lease ──► read everything, as at one moment ──► which tables are not as they were last time?
                 a fault here has changed nothing         │
                            remove what is gone (of a database), the last table first
                            keep what is new or changed, set aside what does not fit
                                                          ▼
                            `SourceState`: the moment the data is of, and a digest of each table

A row is known by its id, so the same rows again change nothing, and an import that was killed is gone on with
by the next one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import ConfigError, InProgressError, RetryLaterError, StoreUnavailableError
from holdfast.ids import ulid
from holdfast.kit import NO_TENANT
from holdfast.kit.audit.trail import ATTEMPTS
from holdfast.kit.leases import Lease, Leases
from holdfast.services.renewals.ingest.deletion import remove_gone
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.sources import CsvTable, TableSource
from holdfast.services.renewals.ingest.table_import import REFERS, TableImport
from holdfast.services.renewals.models import BAD_KEPT, TABLES, Property, SourceState, TableState
from holdfast.store import Query, Store, Transaction, put

LEASE: Final = "renewals-import"
LEASE_S: Final = 30.0
# Longer than a lease, so that the import after a killed one waits for it and does not fail.
WAIT_S: Final = 45.0
# Whatever the digests say: what others changed in the store is put right by then.
COMPARE_S: Final = 86_400.0
_TABLE_OF: Final = {cls: table for table, cls in TABLES.items()}

Tell = Callable[[TableReport], None]
# Appends an audit event to a commit: without reports to the one that begins an import, with them to its end.
Record = Callable[[Transaction, Sequence[TableReport] | None], Awaitable[None]]


class Import:
    """One import into one portfolio.

    With `replace`, a database may take the place of where the portfolio's data came from before. Rows land
    in many commits between the one that begins it and the one that ends it; `record` is called in both.

    Example: `reports = await Import(store.tenant("-"), Folder(Path("export"))).run()`
    """

    def __init__(
        self,
        store: Store,
        source: TableSource,
        *,
        replace: bool = False,
        lease_s: float = LEASE_S,
        record: Record | None = None,
    ) -> None:
        self._store, self._source, self._clock = store, source, store.clock
        self._replace, self._record = replace, record
        self._leases, self._lease_s = Leases(store), lease_s
        self._tenant_id = store.tenant_id or NO_TENANT

    async def run(
        self, tell: Tell = lambda report: None, *, trust_digests: bool = False, wait_s: float = WAIT_S
    ) -> list[TableReport]:
        """Take everything in; with `trust_digests`, tables that are as they were last time are passed over.

        `InProgressError` where another import of the portfolio is under way for longer than `wait_s`.
        """
        async with contextlib.AsyncExitStack() as stack:
            holding = self._leases.hold(LEASE, ttl_s=self._lease_s, owner=ulid(), wait_s=wait_s)
            try:
                lease = await stack.enter_async_context(holding)
            except StoreUnavailableError:
                raise
            except RetryLaterError:
                raise InProgressError(
                    "another import of this portfolio is under way; try again once it has ended"
                ) from None
            return await self._run(lease, tell, trust_digests=trust_digests)

    async def _run(self, lease: Lease, tell: Tell, *, trust_digests: bool) -> list[TableReport]:
        read_at, state = self._clock.now(), await self._state()
        trusted = state if trust_digests and _is_trusted(state, self._source, read_at) else None
        if self._source.mirrored:
            await self._refuse_other(state)
        async with self._source.read() as sheets:
            chosen = to_compare(sheets, trusted)
            if self._source.mirrored:
                await self._refuse_emptied(sheets)
            if chosen:
                await self._commit(lease, self._begun(state), None)
            made = await self._apply(lease, {t: sheets[t] for t in chosen}, trusted=trusted, tell=tell)
            reports = [made.get(table) or _as_it_was(table, trusted) for table in sheets]
            digests = {table: sheet.digest for table, sheet in sheets.items()}
        new = _state_after(reports, digests, before=state or self._new_state())
        new.source, new.read_at, new.kept_at = self._source.name, read_at, self._clock.now()
        new.compared_at = read_at if trusted is None else trusted.compared_at
        await self._commit(lease, new, reports)
        return reports

    async def _commit(self, lease: Lease, state: SourceState, reports: Sequence[TableReport] | None) -> None:
        """Write the state under the lease, with the audit events of an import that somebody asked for."""

        async def act(tx: Transaction) -> None:
            tx.write(lease.guard(), put(state))
            if self._record is not None:
                await self._record(tx, reports)

        await self._store.transact(act, attempts=ATTEMPTS)

    async def _apply(
        self, lease: Lease, sheets: dict[str, CsvTable], *, trusted: SourceState | None, tell: Tell
    ) -> dict[str, TableReport]:
        """Remove, then keep: a name that is released can be taken, and nothing refers to what goes."""
        removed = dict.fromkeys(sheets, 0)
        if self._source.mirrored:
            for table in reversed(sheets):
                removed[table] = await remove_gone(self._store, sheets[table], guard=lease.guard())
        reports = {}
        for table, sheet in sheets.items():
            orphans = not _was_clean(table, trusted) or any(removed.get(one) for one in parents_of(table))
            taking = TableImport(self._store, sheet, guard=lease.guard(), orphans=orphans)
            taking.report.removed = removed[table]
            reports[table] = await taking.run(tell)
        return reports

    async def _refuse_other(self, state: SourceState | None) -> None:
        """Rows are not removed for being absent from a source that they never came from."""
        before = "" if state is None else state.source
        if before != self._source.name and not self._replace and await self._has_properties():
            raise ConfigError(
                f"the data here came from {before or 'elsewhere'}, and what is not in {self._source.name}"
                " would be removed: import it with --replace if that is meant"
            )

    async def _refuse_emptied(self, sheets: Mapping[str, CsvTable]) -> None:
        if not sheets["properties"].count and await self._has_properties():
            raise ConfigError(
                f"{self._source.name} holds no properties, and we do; nothing was changed: is it loading?"
            )

    async def _has_properties(self) -> bool:
        return bool(await self._store.count(Query(Property).order_by("name")))

    async def _state(self) -> SourceState | None:
        found = await self._store.get(SourceState, self._tenant_id)
        return None if found is None else found.doc

    def _new_state(self) -> SourceState:
        return SourceState(tenant_id=self._tenant_id, source="")

    def _begun(self, state: SourceState | None) -> SourceState:
        """Noted before the first change: a kill must not leave rows of now under digests of then."""
        begun, name = _without_digests(state or self._new_state()), self._source.name
        if begun.source != name:
            begun.source, begun.read_at = name, None
        return begun


def parents_of(table: str) -> set[str]:
    """The tables that a table's rows refer to."""
    return {_TABLE_OF[cls] for cls in REFERS.get(table, {}).values()}


def to_compare(sheets: Mapping[str, CsvTable], trusted: SourceState | None) -> list[str]:
    """The tables that are not as they were, and those that refer to them, in their order. Pure."""
    chosen: list[str] = []
    for table, sheet in sheets.items():
        same = (
            trusted is not None
            and _was_clean(table, trusted)
            and trusted.tables[table].digest == sheet.digest
        )
        if not same or not parents_of(table).isdisjoint(chosen):
            chosen.append(table)
    return chosen


def _is_trusted(state: SourceState | None, source: TableSource, now: datetime) -> bool:
    if state is None or state.source != source.name or state.compared_at is None:
        return False
    return 0 <= (now - state.compared_at).total_seconds() < COMPARE_S


def _was_clean(table: str, trusted: SourceState | None) -> bool:
    """Whether every row fitted when the table was last read; a digest is kept only then."""
    return trusted is not None and table in trusted.tables and trusted.tables[table].digest != ""


def _without_digests(state: SourceState) -> SourceState:
    tables = {table: msgspec.structs.replace(one, digest="") for table, one in state.tables.items()}
    return msgspec.structs.replace(state, tables=tables)


def _as_it_was(table: str, trusted: SourceState | None) -> TableReport:
    rows = trusted.tables[table].rows if trusted is not None else 0
    return TableReport(table, rows=rows, unchanged=rows, same=True)


def _state_after(
    reports: Sequence[TableReport], digests: Mapping[str, str], *, before: SourceState
) -> SourceState:
    """What is known after an import; a table with bad rows has no digest, so that they are tried again."""
    tables = dict(_without_digests(before).tables)
    for one in reports:
        tables[one.table] = TableState(one.rows, len(one.bad), "" if one.bad else digests[one.table])
    bad = [one for report in reports for one in report.bad][:BAD_KEPT]
    named = [msgspec.structs.replace(one, values={}) for one in bad]
    return SourceState(tenant_id=before.tenant_id, source=before.source, tables=tables, bad_rows=named)
