"""An endpoint's secrets from sealing to signature, across a rotation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import DecryptionError, WrongTypeError
from holdfast.kit.outbox.endpoint_secrets import EndpointSecrets
from holdfast.kit.outbox.models import Endpoint, EndpointSecret
from holdfast.kit.outbox.signing import SignatureVerifier, new_secret
from holdfast.kit.vault import Vault, new_key
from holdfast.net import SendFailure

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOW_S = int(NOW.timestamp())
SECRETS = EndpointSecrets(Vault.from_settings(new_key("k1")), plain_header="X-Webhook-Signature")
BODY = b'{"a":1}'


def endpoint(endpoint_id: str = "rms") -> Endpoint:
    return Endpoint(id=endpoint_id, url="https://rms.example/hook", created_at=NOW)


async def signed(place: Endpoint, at: datetime) -> dict[str, str]:
    return dict((await SECRETS.signing(place))("evt-1", int(at.timestamp()), BODY))


async def test_what_is_sealed_for_an_endpoint_signs_its_messages() -> None:
    place, secret = endpoint(), new_secret()
    place.secrets = [SECRETS.seal(place, secret)]
    assert secret[6:] not in place.secrets[0].sealed
    headers = await signed(place, NOW)
    assert SignatureVerifier([secret]).verify(headers, BODY, now=NOW) == "evt-1"
    assert headers["X-Webhook-Signature"].startswith("sha256=")


async def test_a_secret_copied_to_another_endpoint_does_not_sign_there() -> None:
    place, other = endpoint(), endpoint("other")
    other.secrets = [SECRETS.seal(place, new_secret())]
    with pytest.raises(DecryptionError):
        await SECRETS.signing(other)


async def test_during_the_overlap_both_secrets_sign_and_afterwards_only_the_new_one() -> None:
    place, old, new = endpoint(), new_secret(), new_secret()
    place.secrets = [SECRETS.seal(place, old)]
    place.secrets = SECRETS.rotated(place, new, now=NOW, overlap_s=60)
    sign = await SECRETS.signing(place)
    counts = []
    for passed_s in (0, 59, 60, 61, 3_600):
        headers = dict(sign("evt-1", NOW_S + passed_s, BODY))
        at = NOW + timedelta(seconds=passed_s)
        assert SignatureVerifier([new]).verify(headers, BODY, now=at) == "evt-1"
        counts.append(len(headers["webhook-signature"].split(" ")))
        # One signature has room in the plain header: the old secret's for as long as it lasts.
        lasting = old if passed_s < 60 else new
        assert headers["X-Webhook-Signature"] == await plain(lasting)
    assert counts == [2, 2, 1, 1, 1]


async def plain(secret: str) -> str:
    alone = endpoint()
    alone.secrets = [SECRETS.seal(alone, secret)]
    return (await signed(alone, NOW))["X-Webhook-Signature"]


async def test_rotating_again_never_lengthens_an_old_secrets_life_and_drops_what_ended() -> None:
    place = endpoint()
    place.secrets = [SECRETS.seal(place, new_secret())]
    place.secrets = SECRETS.rotated(place, new_secret(), now=NOW, overlap_s=60)
    place.secrets = SECRETS.rotated(place, new_secret(), now=NOW + timedelta(seconds=30), overlap_s=600)
    ends = [one.expires_at for one in place.secrets]
    assert ends == [None, NOW + timedelta(seconds=630), NOW + timedelta(seconds=60)]
    place.secrets = SECRETS.rotated(place, new_secret(), now=NOW + timedelta(seconds=60))
    assert len(place.secrets) == 3


async def test_at_most_three_secrets_are_live_however_often_they_are_rotated() -> None:
    place = endpoint()
    for minute in range(6):
        place.secrets = SECRETS.rotated(place, new_secret(), now=NOW + timedelta(minutes=minute))
    assert len(place.secrets) == 3
    assert place.secrets[0].expires_at is None
    signatures = (await signed(place, NOW + timedelta(minutes=6)))["webhook-signature"]
    assert len(signatures.split(" ")) == 3


async def test_a_leaked_secret_ends_at_once() -> None:
    place, leaked, fresh = endpoint(), new_secret(), new_secret()
    place.secrets = [SECRETS.seal(place, leaked)]
    place.secrets = SECRETS.rotated(place, fresh, now=NOW, overlap_s=0)
    assert (await signed(place, NOW))["X-Webhook-Signature"] == await plain(fresh)
    assert len(place.secrets) == 1


async def test_nothing_is_sent_unsigned() -> None:
    expired = endpoint()
    expired.secrets = [EndpointSecret(SECRETS.seal(expired, new_secret()).sealed, expires_at=NOW)]
    for place in (endpoint(), expired):
        with pytest.raises(SendFailure, match="no active signing secret") as failure:
            await signed(place, NOW)
        assert failure.value.reason == "unsigned"


def test_a_secret_that_could_not_sign_is_not_sealed() -> None:
    with pytest.raises(WrongTypeError):
        SECRETS.seal(endpoint(), "hunter2")
