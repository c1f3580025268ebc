"""Collection paths: `gwi_tenants/{tenant_id}/signals/{id}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.errors import BadIdError, DeclarationError
from holdfast.model.identity import check_id, match_plain_id
from holdfast.model.limits import ID_BYTES_MAX, KEY_BYTES_MAX
from holdfast.plural import plural

# Ids have no control characters, so with this between them text order is order by segment.
JOINT = "\x01"
_LITERAL = re.compile(r"(\{env\}-)?[A-Za-z][A-Za-z0-9_-]{0,60}")
_PARAMETER = re.compile(r"\{([a-z][a-z0-9_]*)\}")


class CollectionPath(msgspec.Struct, frozen=True):
    """Collection names, and the fields with the ids between them."""

    names: tuple[str, ...]
    parameters: tuple[str, ...]

    @property
    def nested(self) -> bool:
        return len(self.names) > 1

    def group(self, env: str) -> str:
        """Return the last collection name: Firestore's collection group."""
        return self.names[-1].replace("{env}", env)

    def table(self, env: str) -> str:
        return "__".join(self.names).replace("{env}", env)

    def document(self, ids: tuple[str, ...], env: str) -> str:
        """Return the full path of a document, as in Firestore."""
        names = (name.replace("{env}", env) for name in self.names)
        return "/".join(part for pair in zip(names, ids, strict=True) for part in pair)


def parse_path(text: str) -> CollectionPath:
    parts = text.split("/")
    names, parameters = parts[::2], parts[1::2]
    if len(names) != len(parameters):
        raise DeclarationError(f"{text!r}: a collection path ends with its id, as in 'things/{{id}}'")
    for name in names:
        if not _LITERAL.fullmatch(name):
            raise DeclarationError(f"{text!r}: {name!r} is not a collection name")
    fields = [_PARAMETER.fullmatch(p) for p in parameters]
    if not all(fields):
        raise DeclarationError(f"{text!r}: ids are in braces, as in 'things/{{id}}'")
    return CollectionPath(tuple(names), tuple(m[1] for m in fields if m))


def join_key(ids: tuple[str, ...], names: tuple[str, ...]) -> str:
    """Return a document's ids as one key; refuses ids that an engine can't store."""
    if len(ids) != len(names):
        raise BadIdError(f"give {plural(len(names), 'id')} ({', '.join(names)}), not {len(ids)}")
    if len(ids) == 1:
        (value,) = ids
        if type(value) is not str or not match_plain_id(value):
            check_id(value, names[0], bytes_max=ID_BYTES_MAX)
        return value
    for value, name in zip(ids, names, strict=True):
        check_id(value, name, bytes_max=ID_BYTES_MAX)
    key = JOINT.join(ids)
    if len(key.encode()) > KEY_BYTES_MAX:
        raise BadIdError(f"the ids of a path take at most {KEY_BYTES_MAX} bytes together")
    return key


def join_keys(many: Iterable[str | tuple[str, ...]], names: tuple[str, ...]) -> list[str]:
    """Return the keys of many documents, each given by its ids or by its only one."""
    if len(names) > 1:
        return [join_key((one,) if isinstance(one, str) else one, names) for one in many]
    given: list[Any] = list(many)
    if _are_plain(given):
        return given
    return [join_key((one,) if isinstance(one, str) else one, names) for one in given]


def _are_plain(values: Iterable[Any]) -> bool:
    """Whether all of these are ids that need no closer look."""
    return set(map(type, values)) <= {str} and all(map(match_plain_id, values))


def key_reader(names: tuple[str, ...]) -> Callable[[Any], str]:
    """Return what joins the ids of a document's path, which these fields hold."""
    if len(names) > 1:
        read_all = attrgetter(*names)
        return lambda document: join_key(read_all(document), names)
    read = attrgetter(names[0])

    def read_key(document: Any) -> str:
        value: str = read(document)
        return value if type(value) is str and match_plain_id(value) else join_key((value,), names)

    return read_key


def keys_reader(names: tuple[str, ...]) -> Callable[[Sequence[Any]], list[str]]:
    """Return what `key_reader` reads of many documents; most ids are plain, which is asked of all at once."""
    read_key, read = key_reader(names), attrgetter(names[0])

    def read_keys(documents: Sequence[Any]) -> list[str]:
        values: list[Any] = list(map(read, documents)) if len(names) == 1 else []
        return values if values and _are_plain(values) else list(map(read_key, documents))

    return read_keys


def split_key(key: str) -> tuple[str, ...]:
    return tuple(key.split(JOINT))


def parent_of(key: str) -> str:
    return key.rpartition(JOINT)[0]
