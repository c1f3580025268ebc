"""Encryption of secrets. A sealed text is `hf1.<key id>.<base64url of nonce, ciphertext and tag>`."""

from __future__ import annotations

import base64
import binascii
import copy
import os
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast.errors import ConfigError, DecryptionError, WrongTypeError
from holdfast.kit.vault.keys import LEGACY_SETTING, DerivedKey, KeyRegister, Keyring, legacy_cipher
from holdfast.kit.vault.secret import Secret
from holdfast.model.document import Document, schema_of
from holdfast.model.path import join_key

FORMAT: Final = "hf1"
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
SECRET_BYTES_MAX: Final = 65_536
_ENCODER: Final = msgspec.msgpack.Encoder()


class Vault:
    """Seals texts under the current key and opens what any of its keys sealed.

    The place of a secret (its collection, document and field) is authenticated data: the same sealed text
    does not open anywhere else.

    Example: `vault.open(vault.seal("hunter2", "users", "u1", "pin"), "users", "u1", "pin").reveal()`
    """

    def __init__(self, keys: Keyring, *, legacy_key: str | None = None) -> None:
        self._keys = keys
        self._legacy: AESGCM | None = None if legacy_key is None else legacy_cipher(legacy_key)
        self._register: KeyRegister | None = None

    @classmethod
    def from_settings(cls, keys: str | None, *, legacy_key: str | None = None) -> Vault:
        """Parse `id:base64,id:base64` (the current key first), or raise `ConfigError` that says what to do.

        `legacy_key` opens values from before the vault: base64 of IV and ciphertext, bound to nothing.
        """
        return cls(Keyring.read(keys), legacy_key=legacy_key)

    def __repr__(self) -> str:
        return f"Vault({self._keys!r})"

    def registered(self, register: KeyRegister) -> Vault:
        """The same vault, for what is in the register alone."""
        vault = copy.copy(self)
        vault._register = register
        return vault

    @property
    def current_key(self) -> str:
        return self._keys.current

    @property
    def key_ids(self) -> list[str]:
        """The ids of all keys, the current one first."""
        return self._keys.ids

    def secrets(self, key: DerivedKey) -> dict[str, bytes]:
        """Secrets for signing what goes out and comes back, by key id: sign with the first, accept all.

        Example: `GoogleChannelVerifier(*vault.secrets(CHANNEL_KEY).values())`
        """
        if self._register is not None:
            self._register.check_derived(key)
        return self._keys.secrets(key.purpose)

    def field(self, cls: type[Document], name: str) -> SealedField:
        """The `SealedField` of one field of one document class."""
        if self._register is not None:
            self._register.check_field(cls, name)
        return SealedField(self, cls, name)

    def seal(self, secret: str | Secret, *place: str) -> str:
        """Encrypt a secret for this place under the current key."""
        plain = (secret.reveal() if isinstance(secret, Secret) else secret).encode()
        if len(plain) > SECRET_BYTES_MAX:
            raise WrongTypeError(f"a secret has at most {SECRET_BYTES_MAX:,} bytes")
        key_id, nonce = self._keys.current, os.urandom(NONCE_BYTES)
        sealed = self._keys.cipher(key_id, _purpose(place)).encrypt(
            nonce, plain, _associated_data(key_id, place)
        )
        return f"{FORMAT}.{key_id}.{base64.urlsafe_b64encode(nonce + sealed).decode().rstrip('=')}"

    def open(self, sealed: str, *place: str) -> Secret:
        """Decrypt what was sealed at this place, or raise `DecryptionError` (which never shows the text)."""
        if not sealed.startswith(f"{FORMAT}."):
            return self._open_legacy(sealed)
        _, _, rest = sealed.partition(".")
        key_id, _, encoded = rest.partition(".")
        if key_id not in self._keys:
            raise DecryptionError(f"the secret was sealed with the key {key_id[:32]!r}, which is not set")
        cipher = self._keys.cipher(key_id, _purpose(place))
        raw = _decode(encoded.replace("-", "+").replace("_", "/") + "=" * (-len(encoded) % 4))
        return _decrypt(cipher, raw, associated_data=_associated_data(key_id, place))

    def is_current(self, sealed: str) -> bool:
        """Whether the text has the current format and key; if not, seal it again at the next write."""
        return sealed.startswith(f"{FORMAT}.{self._keys.current}.")

    def seal_legacy(self, secret: Secret) -> str:
        """Encrypt a secret under the legacy key, as the former system reads it: bound to no place."""
        if self._legacy is None:
            raise ConfigError(f"{LEGACY_SETTING} is not set, so nothing is sealed for the former system")
        nonce = os.urandom(NONCE_BYTES)
        return base64.b64encode(nonce + self._legacy.encrypt(nonce, secret.reveal().encode(), None)).decode()

    def _open_legacy(self, sealed: str) -> Secret:
        if self._legacy is None:
            raise DecryptionError("the text is not in the vault's format, and no legacy key is set")
        return _decrypt(self._legacy, _decode(sealed), associated_data=None)


def key_id_of(sealed: str) -> str:
    """The id of the key that sealed a text; empty for the legacy key."""
    return sealed.split(".", 2)[1] if sealed.startswith(f"{FORMAT}.") else ""


class SealedField:
    """One field of one document class. `name` may lead into structures and lists: `secrets.sealed`.

    Example: `vault.field(Connection, "refresh_token").seal("1//0g…", connection.id)`
    """

    __slots__ = ("_cls", "_vault", "name", "path")

    def __init__(self, vault: Vault, cls: type[Document], name: str) -> None:
        schema = schema_of(cls)
        head, dot, rest = name.partition(".")
        schema.check_field(head)
        self._vault, self._cls = vault, cls
        self.path = tuple(name.split("."))
        # The stored name: the Python attribute may be renamed.
        self.name = schema.fields[head].encode_name + dot + rest

    def seal(self, secret: str | Secret, *ids: str) -> str:
        """Encrypt a secret for this field of the document with these ids."""
        return self._vault.seal(secret, *self._place(ids))

    def open(self, sealed: str, *ids: str) -> Secret:
        """Decrypt what was sealed for this field of this document, or raise `DecryptionError`."""
        return self._vault.open(sealed, *self._place(ids))

    def is_current(self, sealed: str) -> bool:
        return self._vault.is_current(sealed)

    def _place(self, ids: tuple[str, ...]) -> tuple[str, str, str]:
        path = schema_of(self._cls).path
        return "/".join(path.names), join_key(ids, path.parameters), self.name


def _purpose(place: tuple[str, ...]) -> str:
    if not place:
        raise WrongTypeError("a secret is sealed for a place: give its collection, document and field")
    return place[0]


def _associated_data(key_id: str, place: tuple[str, ...]) -> bytes:
    # An encoding, not a join: ("ab", "c") and ("a", "bc") are different places.
    return _ENCODER.encode((FORMAT, key_id, *place))


def _decode(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecryptionError("the sealed text is damaged") from None
    if len(raw) < NONCE_BYTES + TAG_BYTES:
        raise DecryptionError("the sealed text is truncated")
    return raw


def _decrypt(cipher: AESGCM, raw: bytes, *, associated_data: bytes | None) -> Secret:
    try:
        return Secret(cipher.decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], associated_data).decode())
    except (InvalidTag, UnicodeDecodeError):
        raise DecryptionError(
            "the sealed text can't be decrypted: it is damaged, or from another place or key"
        ) from None
