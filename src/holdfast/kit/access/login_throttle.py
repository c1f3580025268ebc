"""Login throttling: attempts are counted before they are made, by name and by address."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from holdfast.kit.rate_limit import SlidingWindow, WindowQuota
from holdfast.kit.rate_limit.sliding_window import ATTEMPTS
from holdfast.store import Store, Transaction

# The period is short for a name, because anybody can make its owner wait.
BY_NAME: Final = WindowQuota(name="sign-in by name", count=5, period_s=300)
BY_ADDRESS: Final = WindowQuota(name="sign-in by address", count=20, period_s=900)


class LoginAttempt(msgspec.Struct, frozen=True):
    """An attempt that was admitted."""

    name: str
    address: str
    at: datetime


class LoginThrottle:
    """Admits login attempts, in all processes together.

    Example:
        attempt = await throttle.admit("ann", "203.0.113.7")  # TooManyRequestsError after too many
        await throttle.succeed(attempt)
    """

    def __init__(self, store: Store) -> None:
        self._store = store.privileged()
        self._by_name, self._by_address = SlidingWindow(store, BY_NAME), SlidingWindow(store, BY_ADDRESS)

    async def admit(self, name: str, address: str) -> LoginAttempt:
        """Count an attempt before it is made, so that concurrent ones can't pass; raises if it must wait."""

        async def act(tx: Transaction) -> LoginAttempt:
            await self._by_name.admit(name, tx)
            return LoginAttempt(name, address, await self._by_address.admit(address, tx))

        return await self._store.transact(act, attempts=ATTEMPTS)

    async def succeed(self, attempt: LoginAttempt) -> None:
        """Forget a name's attempts; its address gets this one back, for the others may be guesses."""
        await self._by_name.clear(attempt.name)
        await self._by_address.give_back(attempt.address, attempt.at)
