"""The keyring: one current key, old ones that still decrypt, and a derived key for each purpose."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from holdfast.errors import ConfigError, DeclarationError
from holdfast.model.document import Document
from holdfast.plural import plural

KEY_BYTES_MIN: Final = 32
SETTING: Final = "HOLDFAST_KEYS"
LEGACY_SETTING: Final = "HOLDFAST_LEGACY_KEY"
_KEY_ID: Final = re.compile(r"[a-z0-9-]{1,32}")
_LEGACY_KEY_LENGTH: Final = 32
_HOW_TO: Final = f"make one with `holdfast keys new` and put it first in {SETTING}"


class DerivedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A purpose for which secrets are derived from the keys, and what they sign.

    What was signed is out for `lasts_s`, and an old key must stay so long after a new one is first; 0 where
    it is signed again: by `holdfast keys rotate`, or by a loop, as push channels are.

    Example: `DerivedKey(purpose="parcels links", signs="links to parcels", lasts_s=604_800)`
    """

    purpose: str
    signs: str
    lasts_s: float = 0.0


class KeyRegister(msgspec.Struct, frozen=True, kw_only=True):
    """Everything for which keys may be used: the fields that are sealed, and what derived secrets sign.

    A vault with a register refuses other uses, so that none is unknown to `holdfast keys`.
    """

    sealed: Mapping[type[Document], Sequence[str]]
    derived: Sequence[DerivedKey]

    def check_field(self, cls: type[Document], name: str) -> None:
        if name not in self.sealed.get(cls, ()):
            declaration = f"sealed={{{cls.__name__}: [{name!r}]}}"
            raise DeclarationError(f"{cls.__name__}.{name} is sealed, so its service needs {declaration}")

    def check_derived(self, key: DerivedKey) -> None:
        if key not in self.derived:
            declaration = f"a DerivedKey with purpose={key.purpose!r} in derived_keys"
            raise DeclarationError(
                f"secrets for {key.signs} are derived, so their service needs {declaration}"
            )


class Keyring:
    """Root keys by id, the first one current. Only keys derived from them by HKDF are used.

    Example: `Keyring({"2026-03": new_bytes, "2025-07": old_bytes})`
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        if not keys:
            raise ConfigError(f"{SETTING} is not set, so secrets can't be stored: {_HOW_TO}", SETTING)
        for key_id, key in keys.items():
            _check(key_id, key)
        if len(set(keys.values())) < len(keys):
            raise ConfigError(f"{SETTING}: two ids have the same key; {_HOW_TO}", SETTING)
        self._keys = dict(keys)
        self.current = next(iter(keys))
        self._derived: dict[tuple[str, str], AESGCM] = {}

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"

    @classmethod
    def read(cls, text: str | None) -> Keyring:
        """Parse `id:base64,id:base64`, the current key first; `ConfigError` says what to do."""
        keys: dict[str, bytes] = {}
        for part in _parts(text or ""):
            key_id, colon, encoded = part.partition(":")
            if not colon or not _KEY_ID.fullmatch(key_id):
                # Not shown: without its colon it may be the key itself.
                raise ConfigError(f"{SETTING}: write each key as id:base64, the current one first", SETTING)
            if key_id in keys:
                raise ConfigError(f"{SETTING}: the key id {key_id!r} occurs twice; ids never repeat", SETTING)
            keys[key_id] = _decoded(key_id, encoded)
        return cls(keys)

    def __contains__(self, key_id: str) -> bool:
        return key_id in self._keys

    def cipher(self, key_id: str, purpose: str) -> AESGCM:
        """The cipher for one purpose, with a key of its own, so that no key is overused."""
        cipher = self._derived.get((key_id, purpose))
        if cipher is None:
            derived = self._derive(key_id, b"holdfast vault hf1 " + purpose.encode())
            cipher = self._derived[key_id, purpose] = AESGCM(derived)
        return cipher

    @property
    def ids(self) -> list[str]:
        """The ids of all keys, the current one first."""
        return list(self._keys)

    def secrets(self, purpose: str) -> dict[str, bytes]:
        """A secret of 32 bytes for one purpose from each key, by its id; the current one's first."""
        info = b"holdfast secret " + purpose.encode()
        return {key_id: self._derive(key_id, info) for key_id in self._keys}

    def _derive(self, key_id: str, info: bytes) -> bytes:
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(self._keys[key_id])


def new_key(key_id: str) -> str:
    """A new key, as the setting takes it."""
    if not _KEY_ID.fullmatch(key_id):
        raise ConfigError(f"a key id is 1 to 32 of a-z, 0-9 and '-', not {key_id!r}", SETTING)
    return f"{key_id}:{base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES_MIN)).decode()}"


def legacy_cipher(key: str) -> AESGCM:
    """The cipher of values from before the vault: the key's characters, padded with "0", cut at 32."""
    material = key.ljust(_LEGACY_KEY_LENGTH, "0")[:_LEGACY_KEY_LENGTH].encode()
    if not key or len(material) != _LEGACY_KEY_LENGTH:
        raise ConfigError(f"{LEGACY_SETTING}: the legacy key is plain ASCII text, not empty", LEGACY_SETTING)
    return AESGCM(material)


def _parts(text: str) -> Iterable[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _decoded(key_id: str, encoded: str) -> bytes:
    standard = encoded.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{SETTING}: the key {key_id!r} is not base64; {_HOW_TO}", SETTING) from None


def _check(key_id: str, key: bytes) -> None:
    if not _KEY_ID.fullmatch(key_id):
        raise ConfigError(f"a key id is 1 to 32 of a-z, 0-9 and '-', not {key_id!r}", SETTING)
    if len(key) < KEY_BYTES_MIN:
        size = plural(len(key), "byte")
        raise ConfigError(
            f"{SETTING}: the key {key_id!r} is short: {size} instead of {KEY_BYTES_MIN}; {_HOW_TO}", SETTING
        )
    if len(set(key)) < 8:
        raise ConfigError(f"{SETTING}: the key {key_id!r} is not random; {_HOW_TO}", SETTING)
