"""Secrets at rest: sealed with AES-256-GCM, bound to their row, under keys that can be rotated.

    vault = Vault.from_settings(os.environ.get("HOLDFAST_KEYS"))
    tokens = vault.field(Connection, "refresh_token")
    sealed = tokens.seal("1//0g…", connection.id)      # hf1.2026-03.x7Kd…
    tokens.open(sealed, connection.id).reveal()

A sealed text opens only in the collection, document and field it was sealed for. `rotate` re-encrypts a whole
collection under the current key while others go on writing.
"""

from holdfast.kit.vault.keys import DerivedKey, KeyRegister, Keyring, new_key
from holdfast.kit.vault.models import Rotation
from holdfast.kit.vault.rotation import count_by_key, rotate
from holdfast.kit.vault.secret import Secret
from holdfast.kit.vault.vault import SealedField, Vault

__all__ = [
    "DerivedKey",
    "KeyRegister",
    "Keyring",
    "Rotation",
    "SealedField",
    "Secret",
    "Vault",
    "count_by_key",
    "new_key",
    "rotate",
]
