"""What a URL says about a server and the way to it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from holdfast.errors import ConfigError


class PostgresAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server, how many links to keep to it, and how long to wait when it is away.

    `pooled` is set by `?pooler=transaction`: nothing may then outlive a transaction on a link, and
    notifications come over `direct` (`&direct=HOST:PORT`) or, without it, are replaced by polling.
    """

    dsn: str
    direct: str | None
    pooled: bool = False
    readers: int = 10
    writers: int = 2
    retry_s: float = 10.0
    timeout_s: float = 30.0


def parse_url(url: str) -> PostgresAddress:
    """Take our own words out of a URL; the rest is PostgreSQL's.

    Example: `postgresql://app@db/holdfast?pooler=transaction&direct=db:5432&readers=20`
    """
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        raise ConfigError("the port in a postgresql:// address is a number from 0 to 65535") from None
    words = dict(parse_qsl(parts.query))
    pooler = words.pop("pooler", "none")
    if pooler not in ("none", "session", "transaction"):
        raise ConfigError(f"pooler={pooler}: use none, session or transaction")
    direct = words.pop("direct", None)
    readers, writers = _number(words, "readers", 10), _number(words, "writers", 2)
    patience, timeout = _number(words, "retry_s", 10), _number(words, "timeout_s", 30)
    parts = parts._replace(query=urlencode(words))
    pooled = pooler == "transaction"
    straight = urlunsplit(parts._replace(netloc=_at(parts.netloc, direct))) if direct else None
    return PostgresAddress(
        dsn=urlunsplit(parts), direct=straight if direct or pooled else urlunsplit(parts), pooled=pooled,
        readers=int(readers), writers=int(writers), retry_s=patience, timeout_s=timeout,
    )  # fmt: skip


def _number(words: dict[str, str], name: str, default: float) -> float:
    text = words.pop(name, str(default))
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0 or (name in ("readers", "writers") and value % 1):
        raise ConfigError(f"{name}={text}: give a positive number")
    return value


def _at(netloc: str, place: str) -> str:
    user, joint, _ = netloc.rpartition("@")
    return f"{user}{joint}{place}"
