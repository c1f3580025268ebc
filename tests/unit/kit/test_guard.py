"""Every trick by which a URL or a DNS answer could point inside, and the few ways that are meant to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.errors import ConfigError
from holdfast.net import AddressGuard, PortPolicy, Resolver, SendFailure

PUBLIC = "93.184.216.34"


def answers(*texts: str) -> Resolver:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return texts

    return resolve


class Scripted:
    """A resolver that gives another answer each time it is asked."""

    def __init__(self, *turns: Sequence[str]) -> None:
        self.turns = list(turns)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.turns.pop(0)


async def refusal(guard: AddressGuard, url: str) -> str:
    with pytest.raises(SendFailure) as caught:
        await guard.pin(url)
    assert caught.value.reason == "refused_address"
    return caught.value.message


HOSTILE_URLS = [
    # plainly inside
    "http://127.0.0.1/", "http://127.8.8.8/", "http://10.0.0.1/", "http://172.16.0.1/", "http://172.31.255.255/",
    "http://192.168.1.1/", "http://169.254.10.10/", "http://100.64.0.1/", "http://0.0.0.0/", "http://0.1.2.3/",
    "http://224.0.0.1/", "http://239.255.255.250/", "http://240.0.0.1/", "http://255.255.255.255/",
    "http://192.0.2.1/", "http://198.51.100.7/", "http://203.0.113.9/", "http://198.18.0.1/", "http://192.0.0.8/",
    "http://192.88.99.1/",
    # metadata services
    "http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/v2/", "http://100.100.100.200/",
    "http://168.63.129.16/", "http://192.0.0.192/", "http://[fd00:ec2::254]/",
    # odd spellings of 127.0.0.1
    "http://2130706433/", "http://0177.0.0.1/", "http://017700000001/", "http://0x7f000001/", "http://0x7f.0.0.1/",
    "http://127.1/", "http://127.0.1/", "http://127.0.0.01/", "http://0/", "http://0x/", "http://127.0.0.0x1/",
    "http://127.0.0.1.2/", "http://256.256.256.256/",
    # IPv6, and IPv4 inside it
    "http://[::1]/", "http://[::]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fc00::1]/",
    "http://[fd12:3456::1]/", "http://[fec0::1]/", "http://[ff02::1]/", "http://[2001:db8::1]/", "http://[100::1]/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:8.8.8.8]/", "http://[::127.0.0.1]/",
    "http://[::ffff:0:7f00:1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::a00:1]/", "http://[2002:7f00:1::]/",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", "http://[2606:4700::200:5efe:a00:1]/", "http://[4000::1]/",
    "http://[5f00::1]/", "http://[3fff::1]/",
    # what two parsers read differently
    "http://good.example@127.0.0.1/", "http://user:secret@good.example/", "http://127.0.0.1#@good.example/",
    "http://good.example\\@127.0.0.1/", "http://127.0.0.1%2f@good.example/", "http://127.0.0.%31/",
    "http://%31%32%37.0.0.1/", "http://good.example:80:80/", "http://[::1/", "http://[::1]x/", "http://::1/",
    "http:///path", "http://", "http://:80/", "//good.example/", "good.example/", "http:good.example", "",
    "http://good.example./", "http://.good.example/", "http://good..example/", "http://-good.example/",
    "http://good.example /", " http://good.example/", "http://good.example/\r\nx: y", "http://good.example/\ta",
    "http://good.example/\0", "http://good.example/#fragment", f"http://{'a' * 64}.example/",
    f"http://{'a.' * 127}example/", f"http://good.example/{'a' * 2_100}",
    # names that other alphabets turn into addresses or other names
    "http://１２７.０.０.１/", "http://①②⑦.0.0.1/", "http://ⓛocalhost/", "http://127。0。0。1/", "http://gооd.example/",
    # schemes and ports
    "ftp://good.example/", "file:///etc/passwd", "gopher://good.example/", "javascript:alert(1)", "ws://good.example/",
    "http://good.example:22/", "http://good.example:25/", "http://good.example:0/", "http://good.example:65536/",
    "http://good.example:/", "http://good.example:080/", "http://good.example:+80/", "http://good.example:-1/",
]  # fmt: skip


@pytest.mark.parametrize("url", HOSTILE_URLS)
async def test_a_hostile_url_is_refused_before_anything_is_resolved(url: str) -> None:
    resolver = Scripted()
    await refusal(AddressGuard(resolver=resolver), url)
    assert resolver.asked == []


def test_the_table_of_hostile_urls_is_long_and_holds_each_once() -> None:
    assert len(HOSTILE_URLS) == len(set(HOSTILE_URLS)) >= 100


HOSTILE_ANSWERS = [
    ("127.0.0.1",), ("10.1.2.3",), ("169.254.169.254",), ("100.64.9.9",), ("::1",), ("::ffff:10.0.0.1",),
    ("::ffff:93.184.216.34",), ("fe80::1%eth0",), ("fe80::1",), ("fd00:ec2::254",), ("64:ff9b::a00:1",),
    ("2002:a00:1::",), ("0.0.0.0",), ("224.0.0.251",), ("2606:4700::1111%eth0",), ("nonsense",), ("",),
    (PUBLIC, "10.0.0.1"), ("10.0.0.1", PUBLIC), (PUBLIC, "2606:4700::1111", "::1"),
    (PUBLIC,) * 50 + ("127.0.0.1",),
]  # fmt: skip


@pytest.mark.parametrize("texts", HOSTILE_ANSWERS, ids=lambda texts: " ".join(texts)[-40:])
async def test_a_name_is_refused_when_any_one_of_its_addresses_is_inside(texts: tuple[str, ...]) -> None:
    await refusal(AddressGuard(resolver=answers(*texts)), "https://good.example/hook")


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain", "ip6-localhost", "metadata"])
async def test_a_name_of_this_machine_is_refused_by_where_it_leads(name: str) -> None:
    await refusal(AddressGuard(resolver=answers("127.0.0.1")), f"http://{name}/")


async def test_the_machines_own_resolver_is_judged_too() -> None:
    await refusal(AddressGuard(), "http://localhost/")


async def test_a_public_target_is_pinned_with_all_its_addresses() -> None:
    guard = AddressGuard(resolver=answers(PUBLIC, "2606:4700::1111", PUBLIC))
    pin = await guard.pin("https://Good.Example/hook?x=1")
    assert [str(a) for a in pin.addresses] == [PUBLIC, "2606:4700::1111"]
    assert (pin.target.host, pin.target.port, pin.target.path) == ("good.example", 443, "/hook?x=1")
    assert pin.target.authority == "good.example"


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://good.example", "good.example", "/"),
        ("http://good.example:80/a", "good.example", "/a"),
        ("https://good.example:8443/a/%2e%2e/b", "good.example:8443", "/a/%2e%2e/b"),
        ("https://good.example?q=[1]", "good.example", "/?q=[1]"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
        ("https://my_service.example/", "my_service.example", "/"),
        ("https://1.2.example/", "1.2.example", "/"),
        (f"http://{PUBLIC}:8080/", f"{PUBLIC}:8080", "/"),
        ("http://[2606:4700:0:0::1111]:8080/", "[2606:4700::1111]:8080", "/"),
    ],
)
async def test_an_ordinary_url_is_read_as_written(url: str, authority: str, path: str) -> None:
    pin = await AddressGuard(resolver=answers(PUBLIC)).pin(url)
    assert (pin.target.authority, pin.target.path) == (authority, path)


async def test_a_name_that_rebinds_is_used_as_it_was_judged_and_refused_when_asked_again() -> None:
    now = 0.0
    resolver = Scripted([PUBLIC], ["127.0.0.1"])
    guard = AddressGuard(resolver=resolver, ttl_s=30, monotonic=lambda: now)
    pins = [await guard.pin("https://rebinding.example/") for _ in range(3)]
    assert {str(a) for pin in pins for a in pin.addresses} == {PUBLIC}
    assert len(resolver.asked) == 1
    now = 30.0
    refused = await refusal(guard, "https://rebinding.example/")
    assert "'rebinding.example' leads to an address that is not public" in refused
    assert "127.0.0.1" not in refused, "which address a name has in here is nobody's business"
    assert len(resolver.asked) == 2


async def test_a_refusal_is_remembered_for_a_moment_only() -> None:
    now = 0.0
    resolver = Scripted(["10.0.0.1"], [PUBLIC])
    guard = AddressGuard(resolver=resolver, failed_ttl_s=1, monotonic=lambda: now)
    await refusal(guard, "https://moving.example/")
    await refusal(guard, "https://moving.example/")
    assert len(resolver.asked) == 1
    now = 1.0
    assert str((await guard.pin("https://moving.example/")).addresses[0]) == PUBLIC


async def test_callers_at_the_same_time_share_one_look_up_and_one_giving_up_does_not_end_it() -> None:
    going = asyncio.Event()
    asked = 0

    async def resolve(host: str, port: int) -> Sequence[str]:
        nonlocal asked
        asked += 1
        await going.wait()
        return [PUBLIC]

    guard = AddressGuard(resolver=resolve)
    callers = [asyncio.create_task(guard.pin("https://good.example/")) for _ in range(10)]
    await asyncio.sleep(0)
    callers[0].cancel()
    going.set()
    pins = await asyncio.gather(*callers[1:])
    assert (asked, len(pins)) == (1, 9)


async def test_a_name_without_an_address_is_no_connection() -> None:
    with pytest.raises(SendFailure) as caught:
        await AddressGuard(resolver=answers()).pin("https://good.example/")
    assert caught.value.reason == "connect"


async def test_a_name_that_does_not_exist_is_no_connection() -> None:
    async def fails(host: str, port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(SendFailure, match="not known") as caught:
        await AddressGuard(resolver=fails).pin("https://good.example/")
    assert caught.value.reason == "connect"


# -- what is meant ----------------------------------------------------------------------------------


async def test_an_allowed_network_opens_itself_and_nothing_beside_it() -> None:
    guard = AddressGuard(allow=["10.20.0.0/16"], resolver=answers("10.20.3.4"))
    assert str((await guard.pin("http://rms.internal/")).addresses[0]) == "10.20.3.4"
    await guard.pin("http://10.20.3.4/")
    await refusal(guard, "http://10.21.0.1/")
    await refusal(guard, "http://[::ffff:10.20.3.4]/")


async def test_an_allowed_name_opens_its_addresses_and_ports_but_no_other_name() -> None:
    guard = AddressGuard(allow=["RMS.internal", "*.corp.example"], resolver=answers("10.0.0.1"))
    await guard.pin("http://rms.internal:81/")
    await guard.pin("http://a.b.corp.example/")
    for other in ("rms.internal.evil.example", "xrms.internal", "corp.example", "evilcorp.example"):
        await refusal(guard, f"http://{other}/")
    await refusal(guard, "http://10.0.0.1/")


async def test_a_metadata_address_opens_only_when_it_is_named_exactly() -> None:
    url = "http://169.254.169.254/"
    await refusal(AddressGuard(allow=["169.254.0.0/16"]), url)
    named = AddressGuard(allow=["meta.internal"], resolver=answers("169.254.169.254"))
    await refusal(named, "http://meta.internal/")
    await AddressGuard(allow=["169.254.169.254"]).pin(url)


async def test_schemes_and_ports_follow_the_policy() -> None:
    guard = AddressGuard(
        schemes=["https"], ports=PortPolicy(frozenset({443}), 65_536), resolver=answers(PUBLIC)
    )
    await guard.pin("https://good.example/")
    await refusal(guard, "http://good.example:443/")
    await refusal(guard, "https://good.example:8443/")


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "::zz", "1.2.3"])
def test_an_allowed_network_that_is_none_is_a_setting_to_fix(text: str) -> None:
    with pytest.raises(ConfigError, match="no network"):
        AddressGuard(allow=[text])


@pytest.mark.parametrize("url", HOSTILE_URLS[:62])
def test_an_endpoint_can_be_checked_when_it_is_written_down(url: str) -> None:
    with pytest.raises(SendFailure):
        AddressGuard().check(url)
