"""Login throttling: attempts are counted before they are made, by name and by address."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.errors import TooManyRequestsError
from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, delete, put

WINDOW_S: Final = 900.0


class ThrottlePolicy(msgspec.Struct, frozen=True):
    """So many attempts are free; each further one waits twice as long, up to a limit.

    The limit is low for a name, because anybody can make its owner wait.
    """

    free: int
    wait_s_max: float


BY_NAME: Final = ThrottlePolicy(free=5, wait_s_max=60.0)
BY_ADDRESS: Final = ThrottlePolicy(free=20, wait_s_max=WINDOW_S)


@document(
    "holdfast_sign_in_tries/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    retention=Retention("last_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class LoginAttempts(Document, rename="camel"):
    """Attempts under one name or from one address, since the last success or the last pause."""

    id: str
    tenant_id: str = NO_TENANT
    count: int = 0
    last_at: datetime


def wait_s(attempts: LoginAttempts | None, policy: ThrottlePolicy, now: datetime) -> float:
    """Seconds until the next attempt is allowed; 0 when it is now. Pure."""
    if attempts is None or attempts.count < policy.free or now >= _expires_at(attempts):
        return 0.0
    delay_s = min(policy.wait_s_max, 2.0 ** min(30, attempts.count - policy.free))
    return max(0.0, (attempts.last_at + timedelta(seconds=delay_s) - now).total_seconds())


def _expires_at(attempts: LoginAttempts) -> datetime:
    return attempts.last_at + timedelta(seconds=WINDOW_S)


class LoginThrottle:
    """Admits login attempts, in all processes together.

    Example: `await throttle.admit("ann", "203.0.113.7")` raises `TooManyRequestsError` after too many
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store.privileged(), store.clock

    async def admit(self, name: str, address: str) -> None:
        """Count an attempt before it is made, so that concurrent ones can't pass; raises if it must wait."""

        async def act(tx: Transaction) -> None:
            now = self._clock.now()
            for key, policy in ((key_of("name", name), BY_NAME), (key_of("address", address), BY_ADDRESS)):
                snapshot = await tx.get(LoginAttempts, key)
                stored = snapshot.doc if snapshot else None
                remaining_s = wait_s(stored, policy, now)
                if remaining_s > 0:
                    raise TooManyRequestsError(
                        "too many login attempts; wait before the next one", after_s=remaining_s
                    )
                count = stored.count if stored and now < _expires_at(stored) else 0
                tx.write(put(LoginAttempts(id=key, count=count + 1, last_at=now)))

        await self._store.transact(act, attempts=50)

    async def reset(self, name: str) -> None:
        """Forget a name's attempts after a login. An address keeps its own: one's own name would clear it."""
        await self._store.commit(delete(LoginAttempts, key_of("name", name)))


def key_of(kind: str, value: str) -> str:
    """The id of a `name`'s or an `address`'s attempts: a hash, so that what was typed is not stored."""
    return hashlib.sha256(f"{kind}\x00{value}".encode(errors="surrogatepass")).hexdigest()
