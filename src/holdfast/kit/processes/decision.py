"""Which releases can work on one store side by side, and what they leave out. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.kit.processes.models import Layout, Process, Release, SchemaState
from holdfast.model.schema import Schema
from holdfast.store import Catalog

Writers = Mapping[str, list[str]]
_CLAIM: Final = "(claim)"


def release_of(catalog: Catalog, version: str) -> Release:
    """Return the release that these declarations make."""
    layouts = {catalog.table(schema): layout_of(schema) for schema in catalog.schemas}
    text = msgspec.json.encode([version, sorted(layouts.items())], order="sorted")
    return Release(id=hashlib.blake2b(text, digest_size=10).hexdigest(), version=version, layouts=layouts)


def layout_of(schema: Schema[Any]) -> Layout:
    columns: dict[str, str] = {c.stored: c.kind for c in schema.columns if c.kind != "list"}
    columns |= {f"{index.name}[]": "list" for index in schema.indexes if index.member is not None}
    if schema.claim is not None:
        columns[_CLAIM] = f"{schema.claim.due} by {schema.claim.lane}"
    access = hashlib.blake2b(repr(schema.access).encode(), digest_size=5).hexdigest()
    return Layout(schema.version, columns, access)


def differs(mine: Release, other: Release) -> bool:
    """Whether two releases store a collection that both have differently."""
    return any(layout != other.layouts.get(name, layout) for name, layout in mine.layouts.items())


def newer_collections(mine: Release, state: SchemaState) -> list[str]:
    """Name the collections that hold documents of a schema version this release does not understand."""
    return [
        f"{name} is stored at schema version {state.versions[name]}, this release knows {layout.version}"
        for name, layout in mine.layouts.items()
        if state.versions.get(name, 0) > layout.version
    ]


def conflicts(mine: Release, other: Release) -> list[str]:
    """Name what two releases can't both do on one store at a time."""
    found = []
    for name, layout in mine.layouts.items():
        theirs = other.layouts.get(name, layout)
        if theirs.version != layout.version:
            found.append(f"{name} at schema version {theirs.version} instead of {layout.version}")
        found += [
            f"{name}.{column} as {theirs.columns[column]} instead of {kind}"
            for column, kind in layout.columns.items()
            if theirs.columns.get(column, kind) != kind
        ]
    return sorted(found)


def stale_columns(
    mine: Release, writers: Writers, releases: Mapping[str, Release]
) -> dict[str, frozenset[str]]:
    """Return the columns, by collection, that one of its writers did not fill."""
    found: dict[str, frozenset[str]] = {}
    for name, layout in mine.layouts.items():
        others = [
            releases[id] for id in writers.get(name, ()) if id in releases and name in releases[id].layouts
        ]
        filled = [other.layouts[name].columns.keys() for other in others]
        missing = frozenset(layout.columns).difference(
            {_CLAIM}, frozenset(layout.columns).intersection(*filled)
        )
        if missing:
            found[name] = missing
    return found


def joined(mine: Release, writers: Writers, releases: Mapping[str, Release]) -> dict[str, list[str]]:
    """Return the writers once this release may write, too; of equal layouts one release is named."""
    names = {name: {*writers.get(name, ()), _named(mine, name, writers, releases)} for name in mine.layouts}
    return {**writers, **{name: sorted(ids) for name, ids in names.items()}}


def filled(mine: Release, writers: Writers, releases: Mapping[str, Release]) -> dict[str, list[str]]:
    """Return the writers once every column of this release is filled."""
    return {**writers, **{name: [_named(mine, name, writers, releases)] for name in mine.layouts}}


def _named(mine: Release, name: str, writers: Writers, releases: Mapping[str, Release]) -> str:
    for id in writers.get(name, ()):
        if id in releases and releases[id].layouts.get(name) == mine.layouts[name]:
            return id
    return mine.id


def is_newer(version: str, than: str) -> bool:
    """Whether a version comes after another.

    Example: `is_newer("0.10.0", than="0.9.2")` gives `True`
    """
    return _numbers(version) > _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


def describe(process: Process) -> str:
    """Name a process for people."""
    return f"{process.host}/{process.pid} (Holdfast {process.version})"
