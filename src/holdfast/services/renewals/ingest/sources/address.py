"""What a source's URL says: a server, and the schema to read there."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.errors import InvalidError

SCHEMES: Final = ("postgresql", "postgres")
# What is wrong with a URL is not quoted: it may be a part of a password.
_UNREADABLE: Final = (
    "the source can't be understood: write postgresql://USER@HOST/DATABASE?schema=NAME,"
    " with special characters of a password percent-encoded"
)


class SourceAddress(msgspec.Struct, frozen=True):
    """`dsn` is for the driver alone; `name` says the same without user, password and options."""

    dsn: str
    schema: str
    name: str

    def __repr__(self) -> str:
        return f"Address({self.name!r})"


def parse_address(url: str) -> SourceAddress:
    """Take the schema out of the URL; `public` where none is named.

    Example: `parse_address("postgresql://rop@db/platform?schema=rop").schema` gives `rop`
    """
    try:
        parts = urlsplit(url)
        words = dict(parse_qsl(parts.query, keep_blank_values=True))
        place = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError:
        raise InvalidError(_UNREADABLE, "source") from None
    schema = words.pop("schema", "public")
    if parts.scheme not in SCHEMES or "://" not in url or parts.fragment or not schema or "\0" in schema:
        raise InvalidError(_UNREADABLE, "source")
    # A `/` or `?` in a password ends the host too early, and shows the rest of it as the database.
    if "@" in parts.path or any("@" in word for word in words):
        raise InvalidError(_UNREADABLE, "source")
    dsn = urlunsplit(parts._replace(query=urlencode(words)))
    return SourceAddress(dsn, schema, f"postgresql://{place}{parts.path}?schema={schema}")
