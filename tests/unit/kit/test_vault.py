"""Sealing and opening: at its place alone, with its key alone, old formats and old keys too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ConfigError, DeclarationError, DecryptionError, HoldfastError, WrongTypeError
from holdfast.kit.vault import DerivedKey, KeyRegister, Keyring, Vault, new_key
from holdfast.model import Document, document

OLD, NEW = new_key("2025-07"), new_key("2026-03")
VAULT = Vault.from_settings(NEW)
PLACE = ("connections", "c-1", "refresh_token")

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
# Made by the Web Crypto code of the storage design, on Node.
LEGACY = [
    ("correct-horse-battery-staple-and-more-than-32", "1//0gExampleRefreshToken",
     "FjqG7SGEpFPjDnPW+SWvBv0UiwEnZp4f2SQyLFx8pNBYf1pycdAlmq8V9pyMG8PeYLgI0w=="),
    ("correct-horse-battery-staple-and-more-than-32", "naïve 🗝",
     "9rsmHie+F15EVVcoBkOH3cvrPfhAiDLivhs5WHjIzpN8Ay4aqlB7"),
    ("short-key", "1//0gExampleRefreshToken",
     "sfbmx2skMEvdfldwPulpNTl+UEGrx/GeKOpyqZOnZLgnb0CdAO1zy2Br9paZEQkrK2PB1A=="),
    ("short-key", "naïve 🗝", "4nVR1njc8eUt6Ite6KwFkeRXUQmWU9e+OGKN0q2N5G4zuVFJGXop"),
]  # fmt: skip


@document("connections/{id}")
class Connection(Document, rename="camel"):
    id: str
    refresh_token: str = ""


@document("chats/{chat_id}/connections/{id}")
class ChatConnection(Document, rename="camel"):
    chat_id: str
    id: str
    refresh_token: str = ""
    access_token: str = ""


@given(text=TEXT, place=st.lists(TEXT, min_size=1, max_size=4))
def test_what_is_sealed_opens_at_its_place_as_it_was(text: str, place: list[str]) -> None:
    assert VAULT.open(VAULT.seal(text, *place), *place).reveal() == text


@given(here=st.lists(TEXT, min_size=1, max_size=4), there=st.lists(TEXT, min_size=1, max_size=4))
def test_what_is_sealed_opens_at_no_other_place(here: list[str], there: list[str]) -> None:
    sealed = VAULT.seal("secret", *here)
    if here != there:
        with pytest.raises(DecryptionError):
            VAULT.open(sealed, *there)


@given(at=st.integers(0, 400), bit=st.integers(0, 6))
def test_a_sealed_text_with_a_changed_character_does_not_open_as_something_else(at: int, bit: int) -> None:
    text = VAULT.seal("secret" * 20, *PLACE)
    at %= len(text)
    changed = text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :]
    try:
        # Base64 has spare bits at its end; nothing else may pass.
        assert VAULT.open(changed, *PLACE).reveal() == "secret" * 20
        assert at == len(text) - 1
    except DecryptionError:
        pass


@given(st.text(max_size=100))
def test_nonsense_is_unreadable_and_never_a_crash(text: str) -> None:
    for vault in (VAULT, Vault.from_settings(NEW, legacy_key="k")):
        for tried in (text, f"hf1.{text}", f"hf1.2026-03.{text}"):
            with pytest.raises(DecryptionError):
                vault.open(tried, *PLACE)


def test_the_same_secret_never_looks_the_same_twice() -> None:
    assert len({VAULT.seal("same", *PLACE) for _ in range(1_000)}) == 1_000


def test_a_sealed_text_says_its_format_and_its_key() -> None:
    version, key_id, rest = VAULT.seal("x", *PLACE).split(".")
    assert (version, key_id) == ("hf1", "2026-03")
    assert len(rest) == 39  # base64 of nonce 12, text 1, tag 16


def test_a_ciphertext_moved_to_another_row_field_or_collection_does_not_open() -> None:
    refresh = VAULT.field(ChatConnection, "refresh_token")
    sealed = refresh.seal("1//0g", "chat-1", "sub-1")
    assert refresh.open(sealed, "chat-1", "sub-1").reveal() == "1//0g"
    moved = [
        (refresh, ("chat-2", "sub-1")), (refresh, ("chat-1", "sub-2")),
        (VAULT.field(ChatConnection, "access_token"), ("chat-1", "sub-1")),
        (VAULT.field(Connection, "refresh_token"), ("sub-1",)),
    ]  # fmt: skip
    for field, ids in moved:
        with pytest.raises(DecryptionError):
            field.open(sealed, *ids)


def test_a_field_must_be_declared() -> None:
    with pytest.raises(HoldfastError):
        VAULT.field(Connection, "no_such_field")
    with pytest.raises(DeclarationError):
        VAULT.field(Document, "id")


def test_a_field_is_bound_by_its_stored_name() -> None:
    assert VAULT.field(Connection, "refresh_token").name == "refreshToken"


def test_an_old_key_still_opens_and_asks_to_be_sealed_again() -> None:
    sealed = Vault.from_settings(OLD).seal("secret", *PLACE)
    both = Vault.from_settings(f"{NEW}, {OLD}")
    assert both.open(sealed, *PLACE).reveal() == "secret"
    assert not both.is_current(sealed)
    assert both.is_current(both.seal("secret", *PLACE))


def test_a_key_that_is_not_set_is_named() -> None:
    sealed = Vault.from_settings(OLD).seal("secret", *PLACE)
    with pytest.raises(DecryptionError, match="'2025-07'"):
        VAULT.open(sealed, *PLACE)


def test_another_key_under_the_same_id_does_not_open() -> None:
    sealed = VAULT.seal("secret", *PLACE)
    with pytest.raises(DecryptionError):
        Vault.from_settings(new_key("2026-03")).open(sealed, *PLACE)


def test_each_purpose_has_a_key_of_its_own_and_the_root_key_is_never_used() -> None:
    key = bytes(range(32))
    ring = Keyring({"k": key})
    nonce = bytes(12)
    made = {ring.cipher("k", purpose).encrypt(nonce, b"same", None) for purpose in ("a", "b", "c")}
    root = type(ring.cipher("k", "a"))(key).encrypt(nonce, b"same", None)
    assert len(made | {root}) == 4


BAD_KEYS = [
    (None, "keys new"), ("", "keys new"), (" , ", "keys new"), ("no-colon-here", "id:base64"),
    ("A:xx", "id:base64"),
    (":AAAA", "id:base64"), ("k1:!!!!", "not base64"), ("k1:c2hvcnQ=", "short: 5 bytes instead of 32"),
    ("k1:", "short: 0 bytes"), (f"{NEW},{NEW}", "twice"), ("k1:" + "A" * 44, "not random"),
    (f"{NEW},k1:c2hvcnQ=", "short"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD_KEYS, ids=[says for _, says in BAD_KEYS])
def test_missing_and_weak_keys_are_refused_with_what_to_do_and_without_showing_them(
    text: str | None, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Vault.from_settings(text)
    assert says in str(caught.value)
    assert caught.value.path == "HOLDFAST_KEYS"
    for part in (text or "").replace(",", ":").split(":"):
        assert len(part) < 6 or part in ("2026-03",) or part not in str(caught.value)


@pytest.mark.parametrize(("key", "plain", "sealed"), LEGACY)
def test_values_of_the_older_format_are_read_and_ask_to_be_sealed_again(
    key: str, plain: str, sealed: str
) -> None:
    vault = Vault.from_settings(NEW, legacy_key=key)
    assert vault.open(sealed, *PLACE).reveal() == plain
    assert not vault.is_current(sealed)
    again = vault.seal(vault.open(sealed, *PLACE), *PLACE)
    assert VAULT.open(again, *PLACE).reveal() == plain


def test_values_of_the_older_format_need_their_key() -> None:
    with pytest.raises(DecryptionError, match="no legacy key"):
        VAULT.open(LEGACY[0][2], *PLACE)
    with pytest.raises(DecryptionError):
        Vault.from_settings(NEW, legacy_key="another").open(LEGACY[0][2], *PLACE)


@pytest.mark.parametrize("key", ["", "schlüssel-der-zu-lang-für-32-bytes-ist"])
def test_an_older_key_that_can_never_have_worked_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="ASCII"):
        Vault.from_settings(NEW, legacy_key=key)


def test_what_is_too_long_for_a_secret_is_refused() -> None:
    with pytest.raises(WrongTypeError):
        VAULT.seal("x" * 65_537, *PLACE)


def test_a_secret_needs_a_place() -> None:
    with pytest.raises(WrongTypeError):
        VAULT.seal("x")


def test_each_purpose_has_secrets_of_its_own_and_old_keys_keep_theirs() -> None:
    old, new = new_key("2025-07"), new_key("2026-03")
    before, after = Vault.from_settings(old), Vault.from_settings(f"{new},{old}")
    channels, links = (DerivedKey(purpose=name, signs=name) for name in ("channels", "links"))
    assert list(before.secrets(channels)) == ["2025-07"]
    assert list(after.secrets(channels)) == ["2026-03", "2025-07"]
    assert after.secrets(channels)["2025-07"] == before.secrets(channels)["2025-07"]
    assert len({*after.secrets(channels).values(), *after.secrets(links).values()}) == 4


def test_a_vault_with_a_register_refuses_what_is_not_declared_there() -> None:
    links = DerivedKey(purpose="links", signs="links to parcels")
    register = KeyRegister(sealed={Connection: ["refresh_token"]}, derived=[links])
    vault = VAULT.registered(register)
    vault.field(Connection, "refresh_token")
    vault.secrets(links)
    with pytest.raises(DeclarationError, match=r"sealed=\{Connection: \['id'\]\}"):
        vault.field(Connection, "id")
    with pytest.raises(DeclarationError, match="purpose='channels' in derived_keys"):
        vault.secrets(DerivedKey(purpose="channels", signs="tokens"))
    VAULT.field(Connection, "id")
