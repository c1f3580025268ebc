"""What is shown of stored values: no secret, whoever wrote it and wherever it stands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import DeclarationError
from holdfast.model import Document, document, schema_of
from holdfast.model.columns import readable_kind
from holdfast.outside_text import names_secret
from holdfast.runtime import documents_of, find_services, sealed_fields
from holdfast.runtime.document_browser import MASK, redact_value
from holdfast.runtime.document_registry import hidden_fields
from holdfast.service import Parts, Service

# Names that sound like secrets, and are none: hashes that prove nothing by themselves, and ids.
HARMLESS = {
    ("AuditEvent", "hash"), ("AuditHead", "hash"), ("CacheDocument", "key"),
    ("IdempotencyDocument", "bodyHash"),
    ("IdempotencyDocument", "key"), ("PropertyName", "name_key"), ("Rotation", "keyId"),
    ("UnitPricing", "price_key"), ("Story", "key"), ("CachedSpan", "key"), ("BotEvent", "changed_key"),
    ("AuditRecord", "hash"), ("AuditRecordHead", "hash"), ("Candidate", "patchHash"),
    ("RequestRecord", "bodyHash"), ("RequestRecord", "key"), ("RequestRecord", "requestKey"),
    ("WorkItem", "dedupeKey"), ("Process", "keyId"), ("Watch", "keyId"),
}  # fmt: skip
SOUNDS = (
    "pass",
    "secret",
    "token",
    "hash",
    "key",
    "credential",
    "verifier",
    "cookie",
    "signature",
    "private",
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"accessToken": "a", "refresh_token": "b"}, {"accessToken": MASK, "refresh_token": MASK}),
        ({"headers": {"X-Goog-Channel-Token": "a"}}, {"headers": {"X-Goog-Channel-Token": MASK}}),
        ({"note": "hf1.k1.AAAA"}, {"note": MASK}),
        ({"secrets": [{"id": "s1", "n": 3}]}, {"secrets": [{"id": MASK, "n": 3}]}),
        ({"tokens": {"input": 5}}, {"tokens": {"input": 5}}),
        ({"password": ""}, {"password": ""}),
        ({"source": "postgresql://u:pw@h/db"}, {"source": f"postgresql://u:{MASK}@h/db"}),
        ({"at": "https://rms.example:8443/x@y"}, {"at": "https://rms.example:8443/x@y"}),
        ({"body": b"\x00\x01", "token": b"\x00"}, {"body": "2 bytes", "token": MASK}),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"at": "2026-01-01T00:00:00+00:00"}),
        ([{"csrf": "c"}, 1, None], [{"csrf": MASK}, 1, None]),
        ({"source": "postgresql://u:p@ss:w@h/db"}, {"source": f"postgresql://u:{MASK}@h/db"}),
        (
            {"url": "https://rms.example/x?sig=1&access_token=ya29&n=2 and ?apiKey=k#top"},
            {"url": f"https://rms.example/x?sig=1&access_token={MASK}&n=2 and ?apiKey={MASK}#top"},
        ),
        (
            {"X-Api-Key": "k", "privateKey": "k", "signing_key": "k", "idempotency_key": "k"},
            {"X-Api-Key": MASK, "privateKey": MASK, "signing_key": MASK, "idempotency_key": "k"},
        ),
        (
            {"error": f"401 for Bearer {'y' * 20}; whsec_{'A' * 32} and hf_{'a' * 40}; the bearer of news"},
            {"error": f"401 for {MASK}; {MASK} and {MASK}; the bearer of news"},
        ),
    ],
    ids=[
        "names", "headers", "sealed", "inside", "counts", "empty", "address", "port", "bytes", "time", "list",
        "signs in a password", "query", "keys", "in a sentence",
    ],
)  # fmt: skip
def test_secrets_are_masked_and_the_rest_stays(value: Any, shown: Any) -> None:
    assert redact_value(value) == shown


def test_a_hidden_field_shows_nothing_at_any_depth() -> None:
    assert redact_value({"result": {"body": {"said": "x"}, "status": 200}}, {"result"}) == {
        "result": {"body": {"said": MASK}, "status": 200}
    }


def test_no_stored_field_that_sounds_like_a_secret_is_shown_unless_somebody_found_it_harmless() -> None:
    services = find_services()
    hidden = hidden_fields(services)
    shown = {
        (cls.__name__, field.encode_name)
        for cls in documents_of(services)
        for field in schema_of(cls).fields.values()
        if any(sound in field.encode_name.lower() for sound in SOUNDS)
        and not names_secret(field.encode_name)
        and field.encode_name not in hidden.get(cls, ())
    }
    assert shown == HARMLESS


def test_no_sql_view_shows_text_that_is_named_like_a_secret() -> None:
    shown = {
        (cls.__name__, name)
        for cls in documents_of(find_services())
        for name, field in schema_of(cls).fields.items()
        if names_secret(field.encode_name)
        and readable_kind(field.type) == "text"
        and name not in schema_of(cls).hidden
    }
    assert shown == {("CalendarState", "sync_token")}  # of a calendar's changes; it opens nothing


def test_a_sealed_field_that_views_would_show_is_refused() -> None:
    @document("keyrings/{id}")
    class Keyring(Document):
        id: str
        secret: str = ""

    service = Service(
        name="rings", summary="Rings.", documents=[Keyring], build=lambda _: Parts(),
        sealed={Keyring: ["secret"]},
    )  # fmt: skip
    with pytest.raises(DeclarationError, match="HIDDEN"):
        sealed_fields([service])
