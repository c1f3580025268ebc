"""The SSRF guard: resolves a host once, checks every address, and pins them for the connection.

The name is not resolved a second time to connect, so DNS rebinding between check and use has no effect.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from holdfast.errors import ConfigError
from holdfast.net.ip_ranges import Network, is_metadata, private_range
from holdfast.net.port import SendFailure
from holdfast.net.url import Address, TargetUrl, read_url, refused

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
HOSTS_MAX: Final = 10_000


class Pin(msgspec.Struct, frozen=True):
    """A checked target: connect to these addresses and no others, before `until`."""

    target: TargetUrl
    addresses: tuple[Address, ...]
    until: float


class PortPolicy(msgspec.Struct, frozen=True):
    """Allows the named ports and all from `from_port` on."""

    named: frozenset[int] = frozenset({80, 443})
    from_port: int = 1_024

    def allows(self, port: int) -> bool:
        return port in self.named or port >= self.from_port


class AddressGuard:
    """Returns the addresses an outgoing URL may be connected to, or refuses it with the reason.

    `allow` names private destinations that may be reached: host names (`rms.internal`, `*.corp.example`)
    and networks or addresses (`10.20.0.0/16`). A cloud's metadata address must be named exactly.

    Example: `pin = await AddressGuard(allow=["10.20.0.0/16"]).pin("https://rms.example/hooks")`
    """

    def __init__(
        self,
        *,
        allow: Iterable[str] = (),
        schemes: Iterable[str] = ("https", "http"),
        ports: PortPolicy | None = None,
        resolver: Resolver | None = None,
        ttl_s: float = 30.0,
        failed_ttl_s: float = 1.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hosts, self._networks = _read_allowed(allow)
        self._schemes = frozenset(schemes)
        self._ports = ports or PortPolicy()
        self._resolver = resolver or system_resolver
        self._ttl_s, self._failed_ttl_s = ttl_s, failed_ttl_s
        self.monotonic = monotonic
        self._resolved: dict[tuple[str, int], tuple[float, tuple[Address, ...] | SendFailure]] = {}
        self._lookups: dict[tuple[str, int], asyncio.Task[tuple[Address, ...]]] = {}

    def check(self, url: str) -> TargetUrl:
        """Check what needs no resolving: for the moment an endpoint is stored."""
        target = read_url(url)
        if target.scheme not in self._schemes:
            raise refused(f"{target.scheme} is not allowed here; use {' or '.join(sorted(self._schemes))}")
        named = self._names(target.host)
        if not named and not self._ports.allows(target.port):
            raise refused(f"port {target.port} is not one that webhooks are sent to")
        if target.address is not None:
            self._check_address(target.address, named=named)
        elif not named and (target.host == "localhost" or target.host.endswith(".localhost")):
            raise refused("this machine itself is not sent to; allow it by name if it is meant")
        return target

    async def pin(self, url: str) -> Pin:
        """Return the addresses to connect to, all checked; `SendFailure` when any is refused."""
        target = self.check(url)
        now = self.monotonic()
        if target.address is not None:
            return Pin(target, (target.address,), now + self._ttl_s)
        key = (target.host, target.port)
        cached = self._resolved.get(key)
        if cached is None or cached[0] <= now:
            cached = await self._look_up(key)
        until, outcome = cached
        if isinstance(outcome, SendFailure):
            raise SendFailure(outcome.reason, outcome.message)
        return Pin(target, outcome, until)

    async def _look_up(self, key: tuple[str, int]) -> tuple[float, tuple[Address, ...] | SendFailure]:
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(self._resolve(*key))
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
        try:
            # Others may wait for the same lookup: one caller's time limit must not cancel it.
            outcome: tuple[Address, ...] | SendFailure = await asyncio.shield(lookup)
            until = self.monotonic() + self._ttl_s
        except SendFailure as failure:
            outcome, until = failure, self.monotonic() + self._failed_ttl_s
        if len(self._resolved) >= HOSTS_MAX:
            self._resolved.clear()
        self._resolved[key] = (until, outcome)
        return until, outcome

    async def _resolve(self, host: str, port: int) -> tuple[Address, ...]:
        try:
            texts = await self._resolver(host, port)
        except OSError as fault:
            raise SendFailure("connect", f"the name {host!r} can't be resolved: {fault.strerror}") from None
        if not texts:
            raise SendFailure("connect", f"the name {host!r} has no address")
        named = self._names(host)
        addresses = [self._read(text) for text in texts]
        for address in addresses:
            try:
                self._check_address(address, named=named)
            except SendFailure:
                # Not which one: whoever may save a URL must not learn the addresses of names in here.
                raise refused(
                    f"the name {host!r} leads to an address that is not public; allow it if it is meant"
                ) from None
        return tuple(dict.fromkeys(addresses))

    def _read(self, text: str) -> Address:
        try:
            return ipaddress.ip_address(text)
        except ValueError:
            raise refused("the resolver gave something that is no address") from None

    def _check_address(self, address: Address, *, named: bool) -> None:
        why = private_range(address)
        if why is None:
            return
        allowing = [n for n in self._networks if n.version == address.version and address in n]
        if is_metadata(address):
            allowing = [network for network in allowing if network.num_addresses == 1]
            named = False
        if not named and not allowing:
            raise refused(f"the address {address} is {why}; allow it by name or network if it is meant")

    def _names(self, host: str) -> bool:
        if host in self._hosts:
            return True
        parts = host.split(".")
        return any("*." + ".".join(parts[i:]) in self._hosts for i in range(1, len(parts)))


async def system_resolver(host: str, port: int) -> list[str]:
    """Resolve by the machine's own resolver, all families."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def _read_allowed(allow: Iterable[str]) -> tuple[frozenset[str], tuple[Network, ...]]:
    hosts: set[str] = set()
    networks: list[Network] = []
    for text in allow:
        if "/" in text or ":" in text or text.replace(".", "").isdigit():
            networks.append(_network(text))
        else:
            hosts.add(text.lower())
    return frozenset(hosts), tuple(networks)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as fault:
        raise ConfigError(f"{text!r} is no network to allow: {fault}; write it as 10.20.0.0/16") from None
