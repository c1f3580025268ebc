"""Inbox verifiers against messages signed by independent code."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from gidgethub.sansio import validate_event
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from standardwebhooks import Webhook as StandardWebhook
from svix.webhooks import Webhook as SvixWebhook

from holdfast.errors import HoldfastError, InvalidError, UnverifiedError
from holdfast.kit.inbox import MessageVerifier, Source, StandardWebhooksVerifier, Verifier
from holdfast.providers.github import GithubVerifier
from holdfast.providers.google_calendar import GoogleChannelVerifier, channel_token
from holdfast.providers.telegram import TelegramVerifier

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SECRET = "It's a Secret to Everybody"
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = b"0123456789abcdef0123456789abcdef"
BODY = json.dumps({"action": "opened", "number": 7, "title": "ünïcode 🦭"}).encode()

Message = tuple[dict[str, str], bytes]


def _github() -> Message:
    signature = "sha256=" + hmac.digest(SECRET.encode(), BODY, "sha256").hex()
    validate_event(BODY, signature=signature, secret=SECRET)  # another library finds it right too
    headers = {"x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958", "x-github-event": "issues"}
    return headers | {"x-hub-signature-256": signature}, BODY


def _standard() -> Message:
    signature = StandardWebhook(WHSEC).sign("msg_1", NOW, BODY.decode())
    at = str(int(NOW.timestamp()))
    return {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": signature}, BODY


def _svix() -> Message:
    signature = SvixWebhook(WHSEC).sign("msg_1", NOW, BODY.decode())
    at = str(int(NOW.timestamp()))
    return {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": signature}, BODY


def _google() -> Message:
    return {
        "x-goog-channel-id": "calendar-sync-alice-1", "x-goog-resource-id": "ret08u3rv24htgh289g",
        "x-goog-resource-state": "exists", "x-goog-message-number": "10",
        "x-goog-channel-token": channel_token(KEY, "calendar-sync-alice-1"),
    }, b""  # fmt: skip


def _telegram() -> Message:
    return {"x-telegram-bot-api-secret-token": "s3cret-token"}, json.dumps({"update_id": 123456789}).encode()


CASES: Mapping[str, tuple[Verifier, Message, str, tuple[str, ...]]] = {
    "github": (
        GithubVerifier("older", SECRET), _github(), "72d3162e-cc78-11e3-81ab-4c9367dc0958",
        ("x-hub-signature-256",),
    ),
    "standard": (StandardWebhooksVerifier(WHSEC), _standard(), "msg_1", tuple(_standard()[0])),
    "svix": (StandardWebhooksVerifier(WHSEC), _svix(), "msg_1", tuple(_svix()[0])),
    "google": (
        GoogleChannelVerifier(KEY), _google(), "calendar-sync-alice-1:10",
        ("x-goog-channel-id", "x-goog-channel-token"),
    ),
    "telegram": (
        TelegramVerifier("s3cret-token"), _telegram(), "123456789", ("x-telegram-bot-api-secret-token",),
    ),
}  # fmt: skip
SIGNED_BODY = ("github", "standard", "svix")


@pytest.mark.parametrize("name", CASES)
def test_a_message_signed_by_others_is_accepted_and_named(name: str) -> None:
    verifier, (headers, body), mark, _ = CASES[name]
    assert verifier.verify(headers, body, NOW).message_id == mark


@pytest.mark.parametrize(
    ("body", "account"),
    [
        (b'{"action": "opened", "installation": {"id": 42, "node_id": "x"}}', "42"),
        (b'{"action": "opened"}', ""),
        (b"payload=%7B%7D", ""),
        (b'{"installation": "text"}', ""),
        (b"[" * 100_000, ""),
        (b'{"a": "\xff"}', ""),
    ],
)
def test_the_account_of_a_github_message_is_its_installation(body: bytes, account: str) -> None:
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    headers = {"x-github-delivery": "d", "x-hub-signature-256": signature}
    assert GithubVerifier(SECRET).verify(headers, body, NOW).account == account
    without = GithubVerifier(SECRET).verify_message(headers, body, NOW)
    assert without == replace(GithubVerifier(SECRET).verify(headers, body, NOW), account="")


async def _tenant_of(account: str) -> str | None:
    return account


@pytest.mark.parametrize("name", CASES)
def test_a_source_asks_for_the_account_only_where_it_finds_the_tenant(name: str) -> None:
    verifier = CASES[name][0]
    without = verifier.verify_message if isinstance(verifier, MessageVerifier) else verifier.verify
    assert Source(name="s", verifier=verifier).verify == without
    assert Source(name="s", verifier=verifier, tenant_of=_tenant_of).verify == verifier.verify
    assert isinstance(verifier, MessageVerifier) == (name == "github")


@pytest.mark.parametrize(
    ("update", "account"),
    [
        ({"message": {"chat": {"id": -7}}}, "-7"),
        ({"edited_message": {"chat": {"id": 7}}}, "7"),
        ({"my_chat_member": {"chat": {"id": 8}}}, "8"),
        ({"callback_query": {"id": "q", "message": {"chat": {"id": 9}}}}, "9"),
        ({"callback_query": {"id": "q"}}, ""),
        ({"inline_query": {"id": "q"}}, ""),
    ],
)
def test_the_account_of_a_telegram_update_is_its_chat(update: Mapping[str, object], account: str) -> None:
    headers, _ = _telegram()
    body = json.dumps({"update_id": 1, **update}).encode()
    assert TelegramVerifier("s3cret-token").verify(headers, body, NOW).account == account


@pytest.mark.parametrize("name", SIGNED_BODY)
@given(data=st.data())
def test_a_body_with_one_bit_changed_is_refused(name: str, data: st.DataObject) -> None:
    verifier, (headers, body), _, _ = CASES[name]
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    changed = bytearray(body)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(UnverifiedError):
        verifier.verify(headers, bytes(changed), NOW)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_a_header_with_one_bit_changed_is_refused(name: str, data: st.DataObject) -> None:
    verifier, (headers, body), _, signed = CASES[name]
    header = data.draw(st.sampled_from(signed))
    value = bytearray(headers[header].encode())
    bit = data.draw(st.integers(0, len(value) * 8 - 1))
    value[bit // 8] ^= 1 << bit % 8
    with pytest.raises(HoldfastError):
        verifier.verify(headers | {header: value.decode("latin-1")}, body, NOW)


@pytest.mark.parametrize("name", CASES)
def test_a_message_without_its_proof_is_refused(name: str) -> None:
    verifier, (headers, body), _, signed = CASES[name]
    without = {k: v for k, v in headers.items() if k != signed[-1]}
    with pytest.raises((UnverifiedError, InvalidError)):
        verifier.verify(without, body, NOW)


def test_a_secret_being_rotated_is_accepted_old_and_new() -> None:
    headers, body = _github()
    for secrets in ((SECRET, "newer"), ("newer", SECRET)):
        assert GithubVerifier(*secrets).verify(headers, body, NOW).message_id == headers["x-github-delivery"]
    with pytest.raises(UnverifiedError):
        GithubVerifier("newer").verify(headers, body, NOW)


def test_the_example_of_githubs_documentation_is_accepted() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-github-delivery": "1", "x-hub-signature-256": signature}
    assert GithubVerifier(SECRET).verify(headers, b"Hello, World!", NOW).message_id == "1"


def test_a_delivery_without_an_id_is_malformed_not_unverified() -> None:
    headers, body = _github()
    del headers["x-github-delivery"]
    with pytest.raises(InvalidError) as refusal:
        GithubVerifier(SECRET).verify(headers, body, NOW)
    assert refusal.value.path == "x-github-delivery"


def test_an_update_that_is_no_json_is_malformed() -> None:
    with pytest.raises(InvalidError, match="no Telegram update"):
        TelegramVerifier("s3cret-token").verify(_telegram()[0], b"{", NOW)


def test_verifiers_without_a_usable_secret_are_refused() -> None:
    for make in (
        lambda: GithubVerifier(),
        lambda: GithubVerifier(""),
        lambda: TelegramVerifier(""),
        lambda: GoogleChannelVerifier(b"x"),
    ):
        with pytest.raises(InvalidError):
            make()
