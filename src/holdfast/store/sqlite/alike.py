"""Settling claimed documents alike: one statement for all that still carry their fence.

The first goes the usual way, where the change is judged like any other; the others then take over
what it became, in their columns and in their JSON. Who lost the claim meanwhile goes the usual
way too, and hears why.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.store.commit import Commit, Committed, Fence, Outcome, Write
from holdfast.store.relational.dialect import quote
from holdfast.store.relational.tables import BODY, KEY, VERSION
from holdfast.store.sqlite.links import one
from holdfast.store.sqlite.shelf import Shelf

if TYPE_CHECKING:
    from holdfast.store.sqlite.writer import Desk

ALIKE_MIN: Final = 8
_PLAIN: Final = frozenset({str, datetime, NoneType})


def alike(commits: Sequence[Commit], desk: Desk) -> bool:
    """Whether all make one and the same change, to claimed fields alone, each expecting its fence."""
    if len(commits) < ALIKE_MIN or len(commits[0].writes) != 1:
        return False
    first, tenant = commits[0].writes[0], commits[0].tenant
    if not _may_share(first, desk.shelves[first.schema]):
        return False
    schema, changes = first.schema, first.changes
    for commit in commits:
        if len(commit.writes) != 1 or commit.tenant != tenant:
            return False
        write = commit.writes[0]
        if write.schema is not schema or type(write.expect) is not Fence or write.kind != "patch":
            return False
        if write.changes is not changes and write.changes != changes:
            return False
    return len({commit.writes[0].key for commit in commits}) == len(commits)


def _may_share(write: Write, shelf: Shelf) -> bool:
    schema, changes = write.schema, write.changes or {}
    if schema.claim is None or schema.claim.due not in changes or schema.claim.fence in changes:
        return False
    if schema.lifecycle or schema.declared.upgrades or any(items.carry_sql for items in shelf.lists):
        return False
    if any('"' in column.stored for column in shelf.hot):
        return False
    if any(column.kind not in ("text", "integer") for column in shelf.hot[1:]):
        return False
    claimed = {column.path for column in shelf.hot}
    return (
        changes.keys() <= claimed
        and claimed.isdisjoint(schema.immutable)
        and all(type(value) in _PLAIN for value in changes.values())
    )


def settle_alike(desk: Desk, commits: Sequence[Commit]) -> list[Outcome]:
    """An outcome for each, as if each had gone the usual way."""
    first, rest = desk.commit(commits[0]), commits[1:]
    landed: set[str] = set()
    version = desk.next_version()
    if isinstance(first, Committed):
        landed = _follow(desk, commits[0].writes[0], rest, version=version)
    done = Committed((version,))
    return [first, *(done if c.writes[0].key in landed else desk.commit(c) for c in rest)]


def _follow(desk: Desk, write: Write, rest: Sequence[Commit], *, version: int) -> set[str]:
    """Make of the rest what the first became; gives the keys of those whose fence held."""
    shelf = desk.shelves[write.schema]
    changed = [column for column in shelf.hot if column.path in (write.changes or {})]
    names = [quote(column.stored) for column in changed]
    shown = ", ".join([*names, *[f"{quote(BODY)} -> ?" for _ in changed]])
    paths = [f'$."{column.stored}"' for column in changed]
    sql = f"SELECT {shown} FROM {quote(shelf.table)} WHERE {quote(KEY)} = ?"
    row = one(desk.link, sql, (*paths, write.key))
    columns, texts = row[: len(changed)], row[len(changed) :]
    if None in texts:
        # JSON that leaves out what is as by default has no text to take over.
        return set()
    writes = [commit.writes[0] for commit in rest]
    fences = [(w.key, w.expect.number) for w in writes if isinstance(w.expect, Fence)]
    kept = [column for column in shelf.hot if column not in changed]
    values: list[Any] = [version, *columns]
    for path, text in zip(paths, texts, strict=True):
        values += [path, text]
    values += [*(f'$."{column.stored}"' for column in kept), msgspec.json.encode(fences).decode()]
    fields = "".join([", ?, json(?)" for _ in changed] + [f", ?, {quote(c.stored)}" for c in kept])
    sets = ", ".join(f"{name} = ?" for name in (quote(VERSION), *names))
    tenant, mine = rest[0].tenant, ""
    if shelf.schema.tenant is not None and tenant is not None:
        mine = f" AND {quote(shelf.schema.tenant.stored)} = ?"
        values.append(tenant)
    sets += f", {quote(BODY)} = json_set({quote(BODY)}{fields})"
    return {
        key for (key,) in desk.link.execute(f"{_update(shelf, sets)}{mine} RETURNING {quote(KEY)}", values)
    }


def _update(shelf: Shelf, sets: str) -> str:
    taken = "(SELECT value ->> 0 AS k, value ->> 1 AS f FROM json_each(?)) AS taken"
    same = f"{quote(KEY)} = taken.k AND {quote(shelf.hot[1].stored)} = taken.f"
    return f"UPDATE {quote(shelf.table)} SET {sets} FROM {taken} WHERE {same}"
