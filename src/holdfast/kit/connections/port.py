"""The port of an OAuth provider."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Grant(Protocol):
    """A provider's answer: tokens, their scopes, and the account.

    `refresh_token` is empty where the previous one stays valid, or where there is none; `expires_in_s` is
    None for a token without expiry. `account` is the provider's permanent id of the person, `name` is for
    people; a refresh may leave both, and `scopes`, empty.
    """

    @property
    def access_token(self) -> str: ...
    @property
    def refresh_token(self) -> str: ...
    @property
    def expires_in_s(self) -> float | None: ...
    @property
    def scopes(self) -> Sequence[str]: ...
    @property
    def account(self) -> str: ...
    @property
    def name(self) -> str: ...


class OAuthProvider(Protocol):
    """Requests, refreshes and revokes grants. No method is called inside a transaction.

    Raise `ReauthRequiredError` when a grant or a code is not valid any more, `RetryLaterError` (with
    `after_s`) when the provider is unavailable.
    """

    def authorize_url(
        self, *, state: str, challenge: str, redirect_uri: str, scopes: Sequence[str], hint: str
    ) -> str:
        """The URL to send the person to; `challenge` is the PKCE challenge (S256), `hint` whom to suggest."""
        ...

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> Grant:
        """The grant for the code of the callback."""
        ...

    async def refresh(self, refresh_token: str) -> Grant:
        """A new access token, and a new refresh token where the provider rotates it."""
        ...

    async def revoke(self, token: str) -> None:
        """End the grant of this token; idempotent."""
        ...
