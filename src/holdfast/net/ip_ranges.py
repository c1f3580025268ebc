"""IP ranges that are not the public internet, each with the reason."""

from __future__ import annotations

import ipaddress
from typing import Final

from holdfast.net.url import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_RANGES: Final[tuple[tuple[str, str], ...]] = (
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a carrier"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved for protocols"),
    ("192.0.2.0/24", "for documentation"),
    ("192.31.196.0/24", "reserved for protocols"),
    ("192.52.193.0/24", "reserved for protocols"),
    ("192.88.99.0/24", "a 6to4 relay"),
    ("192.168.0.0/16", "private"),
    ("192.175.48.0/24", "reserved for protocols"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved"),
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4 inside IPv6"),
    ("::ffff:0:0:0/96", "IPv4 inside IPv6"),
    ("::/96", "IPv4 inside IPv6"),
    ("64:ff9b::/96", "IPv4 behind NAT64"),
    ("64:ff9b:1::/48", "IPv4 behind NAT64"),
    ("100::/64", "discarded"),
    ("2001::/32", "IPv4 inside Teredo"),
    ("2001::/23", "reserved for protocols"),
    ("2001:db8::/32", "for documentation"),
    ("2002::/16", "IPv4 inside 6to4"),
    ("3fff::/20", "for documentation"),
    ("5f00::/16", "for segment routing"),
    ("fc00::/7", "private"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("ff00::/8", "multicast"),
)
_METADATA: Final = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200",
        "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
    )
)  # fmt: skip
_TABLE: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ipaddress.ip_network(network), why) for network, why in _RANGES
)
_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")


def private_range(address: Address) -> str | None:
    """Return why nothing may be sent there, or None for a public address."""
    if address in _METADATA:
        return "a cloud's metadata service"
    for network, why in _TABLE:
        if address.version == network.version and address in network:
            return why
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address not in _GLOBAL_IPV6):
        return "no global address"
    # ISATAP hides an IPv4 address in the lower half of an otherwise ordinary one.
    if isinstance(address, ipaddress.IPv6Address) and (int(address) >> 32) & 0xFDFFFFFF == 0x5EFE:
        return "IPv4 inside ISATAP"
    return None


def is_metadata(address: Address) -> bool:
    return address in _METADATA
