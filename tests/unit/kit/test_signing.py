"""Signatures as independent packages make and check them, also while secrets rotate."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime

import pytest
import standardwebhooks
import svix.webhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UnverifiedError, WrongTypeError
from holdfast.kit.outbox.signing import (
    SignatureVerifier,
    WebhookSigner,
    escape_id,
    new_key_pair,
    new_secret,
)

BODY = '{"event":"renewal.risk_flagged","name":"Zoë 🗝","n":1}'.encode()
OLD, NEW = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", new_secret()


def at_second(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def signed(*secrets: str, at_s: int | None = None, body: bytes = BODY) -> dict[str, str]:
    return dict(WebhookSigner(secrets).headers("evt-1", int(time.time()) if at_s is None else at_s, body))


@pytest.mark.parametrize("receiver", [OLD, NEW], ids=["old held", "new held"])
@pytest.mark.parametrize("active", [(OLD, NEW), (NEW, OLD)], ids=["old first", "new first"])
def test_during_a_rotation_a_receiver_may_hold_either_secret(receiver: str, active: tuple[str, str]) -> None:
    headers = signed(*active)
    assert len(headers["webhook-signature"].split(" ")) == 2
    assert standardwebhooks.Webhook(receiver).verify(BODY, headers) == json.loads(BODY)
    svix.webhooks.Webhook(receiver).verify(BODY, headers)


@pytest.mark.parametrize(
    "secret", [OLD, NEW, "whsec_" + base64.b64encode(b"k" * 64).decode()], ids=["given", "made", "longest"]
)
def test_one_secret_verifies_with_both_packages(secret: str) -> None:
    headers = signed(secret)
    assert standardwebhooks.Webhook(secret).verify(BODY, headers) == json.loads(BODY)
    svix.webhooks.Webhook(secret).verify(BODY, headers)


def test_after_a_rotation_the_old_secret_no_longer_fits() -> None:
    headers = signed(NEW)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(OLD).verify(BODY, headers)
    with pytest.raises(svix.webhooks.WebhookVerificationError):
        svix.webhooks.Webhook(OLD).verify(BODY, headers)


def test_ed25519_signatures_verify_with_the_public_key_over_the_signed_content() -> None:
    private, public = new_key_pair()
    headers = signed(private, at_s=1_700_000_000)
    version, _, text = headers["webhook-signature"].partition(",")
    raw = base64.b64decode(public.removeprefix("whpk_"))
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(text), b"evt-1.1700000000." + BODY)
    assert version == "v1a"


def test_both_algorithms_can_sign_one_message_and_each_receiver_finds_its_own() -> None:
    private, public = new_key_pair()
    headers = signed(private, NEW)
    now_s = int(time.time())
    assert [s.partition(",")[0] for s in headers["webhook-signature"].split(" ")] == ["v1a", "v1"]
    standardwebhooks.Webhook(NEW).verify(BODY, headers)
    svix.webhooks.Webhook(NEW).verify(BODY, headers)
    assert SignatureVerifier([public]).verify(headers, BODY, now=at_second(now_s)) == "evt-1"
    assert SignatureVerifier([private]).verify(headers, BODY, now=at_second(now_s)) == "evt-1"


@pytest.mark.parametrize("package", [standardwebhooks.Webhook, svix.webhooks.Webhook])
def test_what_independent_packages_sign_is_accepted(
    package: type[standardwebhooks.Webhook | svix.webhooks.Webhook],
) -> None:
    at = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": package(OLD).sign("msg_1", at, BODY.decode()),
    }
    assert SignatureVerifier([NEW, OLD]).verify(headers, BODY, now=at) == "msg_1"


def test_what_an_independent_ed25519_key_signs_is_accepted() -> None:
    private = Ed25519PrivateKey.generate()
    public = "whpk_" + base64.b64encode(private.public_key().public_bytes_raw()).decode()
    signature = "v1a," + base64.b64encode(private.sign(b"msg_1.1700000000." + BODY)).decode()
    headers = {"svix-id": "msg_1", "svix-timestamp": "1700000000", "svix-signature": f"v1,xx {signature}"}
    assert (
        SignatureVerifier([public], prefix="svix").verify(headers, BODY, now=at_second(1_700_000_010))
        == "msg_1"
    )


@pytest.mark.parametrize("kind", ["v1", "v1a"])
def test_any_changed_bit_of_body_id_time_or_signature_is_refused(kind: str) -> None:
    secret = NEW if kind == "v1" else new_key_pair()[0]
    verifier = SignatureVerifier([secret], tolerance_s=10**12)
    headers = signed(secret, at_s=1_700_000_000)
    verifier.verify(headers, BODY, now=at_second(1_700_000_000))
    for at in range(len(BODY) * 8):
        changed = bytearray(BODY)
        changed[at // 8] ^= 1 << at % 8
        with pytest.raises(UnverifiedError):
            verifier.verify(headers, bytes(changed), now=at_second(1_700_000_000))
    for name, value in headers.items():
        for at in range(len(value) * 8):
            text = bytearray(value.encode())
            text[at // 8] ^= 1 << at % 8
            with pytest.raises(UnverifiedError):
                verifier.verify({**headers, name: text.decode("latin-1")}, BODY, now=at_second(1_700_000_000))


@pytest.mark.parametrize("off_s", [-301, 301])
def test_a_message_too_old_or_from_the_future_is_refused(off_s: int) -> None:
    headers = signed(NEW, at_s=1_700_000_000)
    inside_s = off_s - (1 if off_s > 0 else -1)
    SignatureVerifier([NEW]).verify(headers, BODY, now=at_second(1_700_000_000 + inside_s))
    with pytest.raises(UnverifiedError, match="300 s"):
        SignatureVerifier([NEW]).verify(headers, BODY, now=at_second(1_700_000_000 + off_s))


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_message_without_one_of_the_headers_is_refused(missing: str) -> None:
    headers = signed(NEW)
    del headers[missing]
    with pytest.raises(UnverifiedError, match="headers"):
        SignatureVerifier([NEW]).verify(headers, BODY, now=at_second(int(time.time())))


@pytest.mark.parametrize("at", ["", "x", "1e9", "-1700000000", "1700000000.5", " 1700000000", "١٧٠٠٠٠٠٠٠٠"])
def test_a_time_that_is_no_plain_number_is_refused(at: str) -> None:
    headers = signed(NEW) | {"webhook-timestamp": at}
    with pytest.raises(UnverifiedError):
        SignatureVerifier([NEW], tolerance_s=10**12).verify(headers, BODY, now=at_second(1_700_000_000))


def test_more_signatures_than_anyone_needs_are_not_all_tried() -> None:
    headers = signed(NEW)
    headers["webhook-signature"] = "v1,x " * 32 + headers["webhook-signature"]
    with pytest.raises(UnverifiedError):
        SignatureVerifier([NEW]).verify(headers, BODY, now=at_second(int(time.time())))


def test_the_body_can_be_signed_alone_as_well() -> None:
    raw = base64.b64decode(OLD.removeprefix("whsec_"))
    headers = dict(WebhookSigner([OLD], plain_header="X-Webhook-Signature").headers("e", 1, BODY))
    assert headers["X-Webhook-Signature"] == "sha256=" + hmac.new(raw, BODY, hashlib.sha256).hexdigest()


@given(body=st.binary(max_size=300), at_s=st.integers(1, 10**11), name=st.text("abc-:.0", min_size=1))
def test_every_message_signed_is_accepted_and_its_signature_agrees_with_hmac(
    body: bytes, at_s: int, name: str
) -> None:
    headers = dict(WebhookSigner([OLD]).headers(name, at_s, body))
    assert SignatureVerifier([OLD]).verify(headers, body, now=at_second(at_s)) == escape_id(name)
    key = base64.b64decode(OLD.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{escape_id(name)}.{at_s}.".encode() + body, "sha256")
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


BAD_SECRETS = [
    "", "hunter2", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!!", "whsk_c2hvcnQ=", "whsec_" + "A" * 200,
    "whsk_" + base64.b64encode(bytes(64)).decode(), new_key_pair()[1],
]  # fmt: skip


@pytest.mark.parametrize("secret", BAD_SECRETS, ids=range(len(BAD_SECRETS)))
def test_a_malformed_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        WebhookSigner([secret])
    assert len(secret) < 7 or secret[6:] not in str(caught.value)


def test_a_private_key_with_its_public_half_is_the_same_key() -> None:
    private, public = new_key_pair()
    seed, half = (base64.b64decode(k.partition("_")[2]) for k in (private, public))
    whole = "whsk_" + base64.b64encode(seed + half).decode()
    assert WebhookSigner([whole]).headers("e", 1, BODY) == WebhookSigner([private]).headers("e", 1, BODY)


def test_nothing_signs_or_checks_without_a_secret() -> None:
    with pytest.raises(WrongTypeError):
        WebhookSigner([])
    with pytest.raises(WrongTypeError):
        SignatureVerifier([])


def test_an_id_with_a_point_is_signed_and_sent_without_one() -> None:
    secret = new_secret()
    ids = []
    for event_id in ("evt-7.5", "evt-7%2E5", "evt-7%2E.5", "evt-75"):
        headers = dict(WebhookSigner([secret]).headers(event_id, 1_700_000_000, b"{}"))
        ids.append(headers["webhook-id"])
        now = datetime.fromtimestamp(1_700_000_000, UTC)
        assert SignatureVerifier([secret]).verify(headers, b"{}", now=now) == headers["webhook-id"]
    assert not any("." in one for one in ids)
    assert len(set(ids)) == len(ids)
