"""The sender over TLS: whose certificate is believed, and what is told when none is."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from holdfast.net import AddressGuard, RawSender
from tests.kit.receiver import OK, Serving, answering, serving
from tests.kit.sender.sender_fixture import failure_of, outgoing


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(authority: trustme.CA | None) -> RawSender:
    async def pinned(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    return RawSender(AddressGuard(allow=["127.0.0.1"], resolver=pinned), tls=context)


async def test_a_certificate_is_judged_by_the_urls_name_although_the_address_is_pinned(
    authority: trustme.CA,
) -> None:
    sender = trusting(authority)
    async with serving(answering(OK), server_side(authority, "hooks.example")) as receiver:
        for _ in range(3):
            answer = await sender.send(outgoing(receiver.url("hooks.example", "https")))
            assert (answer.status, answer.excerpt) == (200, b"ok")
        assert receiver.connections == 1
        assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"
        assert await failure_of(sender, outgoing(receiver.url("other.example", "https"))) == "tls"
    await sender.close()


async def test_a_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    sender = trusting(None)
    async with serving(answering(OK), server_side(authority, "hooks.example")) as receiver:
        assert await failure_of(sender, outgoing(receiver.url("hooks.example", "https"))) == "tls"
        assert receiver.requests == []
    await sender.close()


async def test_a_receiver_that_speaks_no_tls_is_a_tls_failure() -> None:
    async def plain(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OK)

    sender = trusting(None)
    async with serving(plain) as receiver:
        assert await failure_of(sender, outgoing(receiver.url("hooks.example", "https"))) == "tls"
    await sender.close()


async def test_a_tls_handshake_that_hangs_is_a_timeout() -> None:
    async def silent(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4_096):
            pass

    sender = trusting(None)
    async with serving(silent) as receiver:
        request = outgoing(receiver.url("hooks.example", "https"), timeout_s=0.2)
        assert await failure_of(sender, request) == "timeout"
    await sender.close()
