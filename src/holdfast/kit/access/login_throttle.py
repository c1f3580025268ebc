"""How often somebody may try to sign in: counted before the try, for the name and for the address."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.errors import TooManyRequestsError
from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, Retention, document
from holdfast.store import Store, Transaction, delete, put

FORGOTTEN_S: Final = 900.0


class ThrottlePolicy(msgspec.Struct, frozen=True):
    """So many tries are free; each further one waits twice as long, up to a limit.

    The limit is low for a name, because anybody can make its owner wait.
    """

    free: int
    wait_s_max: float


BY_NAME: Final = ThrottlePolicy(free=5, wait_s_max=60.0)
BY_ADDRESS: Final = ThrottlePolicy(free=20, wait_s_max=FORGOTTEN_S)


@document(
    "holdfast_sign_in_tries/{id}",
    id=ProvidedId(pattern=r"[0-9a-f]{64}"),
    tenant="tenant_id",
    retention=Retention("last_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class LoginAttempts(Document, rename="camel"):
    """Tries under one name or from one address, since the last one that succeeded or was long ago."""

    id: str
    tenant_id: str = NO_TENANT
    count: int = 0
    last_at: datetime


def wait_s(tries: LoginAttempts | None, patience: ThrottlePolicy, now: datetime) -> float:
    """How long the next try must wait; 0 when it may be made now. Pure."""
    if tries is None or tries.count < patience.free or now >= _forgotten_at(tries):
        return 0.0
    whole = min(patience.wait_s_max, 2.0 ** min(30, tries.count - patience.free))
    return max(0.0, (tries.last_at + timedelta(seconds=whole) - now).total_seconds())


def _forgotten_at(tries: LoginAttempts) -> datetime:
    return tries.last_at + timedelta(seconds=FORGOTTEN_S)


class LoginThrottle:
    """Admits tries, in all processes together.

    Example: `await tries.admit("ann", "203.0.113.7")` raises `TooManyRequestsError` after too many
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store.privileged(), store.clock

    async def admit(self, name: str, address: str) -> None:
        """Count a try before it is made, so that many at once can't pass; raises when it must wait."""

        async def act(tx: Transaction) -> None:
            now = self._clock.now()
            for key, patience in ((key_of("name", name), BY_NAME), (key_of("address", address), BY_ADDRESS)):
                found = await tx.get(LoginAttempts, key)
                known = found.doc if found else None
                left_s = wait_s(known, patience, now)
                if left_s > 0:
                    raise TooManyRequestsError("too many tries; wait before the next one", after_s=left_s)
                count = known.count if known and now < _forgotten_at(known) else 0
                tx.write(put(LoginAttempts(id=key, count=count + 1, last_at=now)))

        await self._store.transact(act, attempts=50)

    async def reset(self, name: str) -> None:
        """Forget a name's tries once its owner is in. An address keeps its: an own name would clear it."""
        await self._store.commit(delete(LoginAttempts, key_of("name", name)))


def key_of(kind: str, value: str) -> str:
    """The id under which a `name`'s or an `address`'s tries are counted; what was typed is not kept."""
    return hashlib.sha256(f"{kind}\x00{value}".encode(errors="surrogatepass")).hexdigest()
