"""Strict URL parsing: what two parsers could read differently is refused."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import msgspec

from holdfast.net.port import SendFailure

URL_BYTES_MAX: Final = 2_048
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PLAIN: Final = re.compile(r"[!$-;=?-\[\]_a-z~]+")  # visible ASCII without " # < > \ ^ ` { | }
_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?]*)(?P<path>.*)")
_NAME_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS: Final = {"http": 80, "https": 443}


class TargetUrl(msgspec.Struct, frozen=True):
    """A parsed URL; `address` is set when its host is an IP address."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None = None

    @property
    def authority(self) -> str:
        """The Host header, with the port only where it is not the scheme's default."""
        host = f"[{self.host}]" if isinstance(self.address, ipaddress.IPv6Address) else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def refused(message: str) -> SendFailure:
    return SendFailure("refused_address", message)


def read_url(url: str) -> TargetUrl:
    """Parse a URL, or raise `SendFailure` that says what is wrong. Resolves nothing."""
    if len(url) > URL_BYTES_MAX:
        raise refused(f"the URL is over {URL_BYTES_MAX:,} characters")
    if not _PLAIN.fullmatch(url):
        raise refused("the URL holds spaces, a fragment, backslashes, control or non-ASCII characters")
    match = _URL.fullmatch(url)
    if match is None:
        raise refused("the URL must be http://host/… or https://host/…")
    scheme = match["scheme"].lower()
    if scheme not in _PORTS:
        raise refused(f"the scheme {scheme!r} is not sent to; use https or http")
    authority = match["authority"]
    if "@" in authority:
        raise refused("the URL holds a user name or password before its host")
    if "%" in authority:
        raise refused("the host holds percent-encoding or a zone id")
    host, port = _split(authority, scheme)
    path = match["path"] or "/"
    return TargetUrl(scheme, host, port, path if path.startswith("/") else f"/{path}", _literal(host))


def _split(authority: str, scheme: str) -> tuple[str, int]:
    if authority.startswith("["):
        host, closing, rest = authority[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")):
            raise refused("the host opens a bracket and does not close it")
        return _ipv6(host), _port(rest[1:] if rest else None, scheme)
    host, colon, port = authority.partition(":")
    if ":" in port:
        raise refused("an IPv6 address stands in brackets")
    return _name(host.lower()), _port(port if colon else None, scheme)


def _ipv6(host: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise refused("what stands in brackets is no IPv6 address") from None


def _port(text: str | None, scheme: str) -> int:
    if text is None:
        return _PORTS[scheme]
    if not re.fullmatch(r"[1-9][0-9]{0,4}", text) or int(text) > 65_535:
        raise refused("the port must be a plain number from 1 to 65535")
    return int(text)


def _name(host: str) -> str:
    if not host:
        raise refused("the URL has no host")
    if host.endswith("."):
        raise refused("the host ends with a dot")
    labels = host.split(".")
    if len(host) > 253 or not all(_NAME_LABEL.fullmatch(label) for label in labels):
        raise refused("the host is no name that the DNS could hold")
    # Some resolvers read 2130706433, 0x7f.1 or 0177.0.0.1 as addresses; only the plain form passes.
    if _NUMBER_LABEL.fullmatch(labels[-1]):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise refused("an IPv4 address is written as four plain decimal numbers") from None
    return host


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
