"""What a provider of grants must do, and what a grant tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Grant(Protocol):
    """What a provider answers: tokens, what they are good for, and whose they are.

    `refresh_token` is empty where the one before stays good, or where there is none; `expires_in_s` is None
    for a token without an end. `account` is the provider's own lasting id of the person, `name` what people
    call it; a refresh may leave both, and `scopes`, empty.
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
    """Asks people for grants and keeps them working. No method is called inside a transaction.

    Raise `ReauthRequiredError` when a grant or a code is not good any more, `RetryLaterError` (with
    `after_s`) when the provider can't say now.
    """

    def authorize_url(
        self, *, state: str, challenge: str, redirect_uri: str, scopes: Sequence[str], hint: str
    ) -> str:
        """Where the person is sent; `challenge` is the PKCE challenge (S256), `hint` whom to suggest."""
        ...

    async def exchange(self, code: str, *, verifier: str, redirect_uri: str) -> Grant:
        """The grant for the code that the person brought back."""
        ...

    async def refresh(self, refresh_token: str) -> Grant:
        """A new access token, and a new refresh token where the provider changes it."""
        ...

    async def revoke(self, token: str) -> None:
        """End the grant this token belongs to; fine when it has ended already."""
        ...
