"""Ids of documents: how they are generated and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import inspect as mi
from msgspec.structs import force_setattr

from holdfast import ids
from holdfast.errors import BadIdError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_FORBIDDEN = re.compile(r"[/\x00-\x1f\x7f\ud800-\udfff]")
_RESERVED = re.compile(r"__.*__", re.DOTALL)
# Matches most ids that all engines can store; the others need a closer look.
match_plain_id = re.compile(r"[A-Za-z0-9:@+=~-][A-Za-z0-9:@+=~._-]{0,120}").fullmatch


def check_id(value: object, path: str, *, bytes_max: int) -> None:
    """Refuse an id that one of the engines can't store."""
    if not isinstance(value, str):
        raise BadIdError(f"an id is text, not {type(value).__name__}", path)
    if match_plain_id(value):
        return
    if not value:
        raise BadIdError("an id can't be empty", path)
    if _FORBIDDEN.search(value):
        raise BadIdError("an id can't hold '/', control characters or half a surrogate pair", path)
    if value in (".", "..") or _RESERVED.fullmatch(value):
        raise BadIdError("an id can't be '.', '..' or of the form __x__", path)
    if len(value.encode()) > bytes_max:
        raise BadIdError(f"an id takes at most {bytes_max} bytes", path)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class ProvidedId(msgspec.Struct, frozen=True):
    """The caller provides the id; `pattern` is what it must match.

    Example: `id=ProvidedId(pattern=r"[A-Za-z0-9_+/=-]{1,64}")`
    """

    pattern: str | None = None

    def make(self, read: Callable[[str], Any]) -> str | None:
        return None

    def check(self, value: str, path: str) -> None:
        if self.pattern is not None and not _compiled(self.pattern).fullmatch(value):
            raise BadIdError(f"{value!r} doesn't match {self.pattern}", path)


PROVIDED = ProvidedId()


class UlidId(msgspec.Struct, frozen=True):
    """26 Crockford characters, ordered by time: the fast choice on every SQL engine."""

    def make(self, read: Callable[[str], Any]) -> str | None:
        return ids.ulid()

    def check(self, value: str, path: str) -> None:
        return None


class TimestampId(msgspec.Struct, frozen=True):
    """`prefix-{timestamp36}-{random}`, ordered by time.

    Example: `id=TimestampId("run")` makes `run-m5v2kx8a-a7b3c9d2`
    """

    prefix: str

    def make(self, read: Callable[[str], Any]) -> str | None:
        return ids.timestamp_id(self.prefix)

    def check(self, value: str, path: str) -> None:
        if not value.startswith(self.prefix + "-"):
            raise BadIdError(f"{value!r} doesn't begin with {self.prefix}-", path)


# The last time converted and its text: consecutive documents often share their time.
_last: tuple[datetime, str] = (datetime(1970, 1, 1, tzinfo=UTC), "1970-01-01T00:00:00Z")


def _text_of(value: Any) -> str:
    global _last
    time, text = _last
    if value is time:
        return text
    if not isinstance(value, datetime) or value.tzinfo is None:
        return str(msgspec.to_builtins(value))
    if time != value:
        # Times are stored in UTC: an id must not change with the zone of its time.
        time = value.astimezone(UTC)
        text = str(msgspec.to_builtins(time))
        _last = (time, text)
    return text


@dataclass(frozen=True, init=False)
class CompositeId:
    """The values of other fields, joined: the combination is unique.

    Example: `id=CompositeId("user_id", "tenant_id")` makes `abc123_gh-org-12345678`
    """

    fields: tuple[str, ...]
    separator: str

    def __init__(self, *fields: str, separator: str = "_") -> None:
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "separator", separator)

    def make(self, read: Callable[[str], Any]) -> str | None:
        parts = []
        for name in self.fields:
            value = read(name)
            parts.append(value if type(value) is str else _text_of(value))
        return self.separator.join(parts)


class ZeroPaddedId(msgspec.Struct, frozen=True):
    """A number from another field, padded with zeros so that text order is number order.

    Example: `id=ZeroPaddedId("number")` makes `0042345678`
    """

    field: str
    width: int = 10

    def make(self, read: Callable[[str], Any]) -> str | None:
        return ids.zero_padded(read(self.field), self.width)


Identity = ProvidedId | UlidId | TimestampId | CompositeId | ZeroPaddedId


def id_assigner(identity: Identity, name: str, fields: Mapping[str, mi.Field]) -> Callable[[Any], None]:
    """Return what generates a document's id, the field `name`, where it is empty, and otherwise checks it."""
    read = attrgetter(name)
    if isinstance(identity, ProvidedId):
        provided = identity
        if provided.pattern is None:
            return lambda document: None
        return lambda document: provided.check(read(document), name)
    make = _maker(identity, fields)

    def assign(document: Any) -> None:
        current = read(document)
        if not current:
            force_setattr(document, name, make(document))
        elif isinstance(identity, (UlidId, TimestampId)):
            identity.check(current, name)
        elif (made := make(document)) != current:
            raise BadIdError(f"the id must be {made!r}, which its fields make up", name)

    return assign


def ids_assigner(
    identity: Identity, name: str, fields: Mapping[str, mi.Field]
) -> Callable[[Sequence[Any]], None]:
    """Return what does for many documents as `id_assigner` does for each."""
    assign, read = id_assigner(identity, name, fields), attrgetter(name)
    joined = isinstance(identity, CompositeId) and _is_joined_text(identity, fields)

    def assign_all(documents: Sequence[Any]) -> None:
        if not isinstance(identity, CompositeId) or not joined or any(map(read, documents)):
            for document in documents:
                assign(document)
            return
        made = list(map(identity.separator.join, map(attrgetter(*identity.fields), documents)))
        for document, id in zip(documents, made, strict=True):
            force_setattr(document, name, id)

    return assign_all


def _is_joined_text(identity: CompositeId, fields: Mapping[str, mi.Field]) -> bool:
    types = [type(fields[name].type) for name in identity.fields if name in fields]
    return len(identity.fields) > 1 and types == [mi.StrType] * len(identity.fields)


def _maker(identity: Identity, fields: Mapping[str, mi.Field]) -> Callable[[Any], str | None]:
    """Return what makes the id of a document; in one call where it is joined of text."""
    if isinstance(identity, CompositeId) and _is_joined_text(identity, fields):
        return _text_joiner(identity)
    return lambda document: identity.make(document.__getattribute__)


def _text_joiner(identity: CompositeId) -> Callable[[Any], str | None]:
    read, join = attrgetter(*identity.fields), identity.separator.join

    def make(document: Any) -> str | None:
        try:
            return join(read(document))
        except TypeError:
            return identity.make(document.__getattribute__)  # what is no text is refused later

    return make
