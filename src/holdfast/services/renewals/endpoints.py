"""Where each property's events go: set, look at, pause, rotate the secret."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.errors import InvalidError, NotFoundError
from holdfast.kit.outbox import Endpoint, Endpoints, EndpointSecrets, Rate, RetryPolicy, new_secret
from holdfast.kit.outbox.models import EndpointStatus
from holdfast.kit.vault import Vault
from holdfast.net import SendFailure, read_url
from holdfast.services.renewals.models import EVENT_TYPE, OUTBOX_MODELS, Property, RmsEndpoint
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.store import Query, Store, Transaction, create, put

RATE_MAX: Final = 100_000
REASON_MAX: Final = 500
Act = Literal["pause", "resume", "disable", "enable"]


class EndpointRequest(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """Where events go, and how gently."""

    url: Annotated[str, Meta(min_length=8, max_length=2_000)]
    concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 10
    rate_per_s: Annotated[float, Meta(gt=0, le=RATE_MAX)] | None = None


class EndpointResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An endpoint; `secret` is shown once, when it is made."""

    property_id: str
    url: str
    status: EndpointStatus
    reason: str
    concurrency: int
    rate_per_s: float | None
    secrets: int
    created_at: datetime
    secret: str | None = None


class RmsEndpoints:
    """The endpoints of one portfolio, each with its property's id.

    Example: `shown = await RmsEndpoints(store, vault).set("property-7", EndpointOrder(url="https://…"))`
    """

    def __init__(self, store: Store, vault: Vault) -> None:
        self._store, self._secrets = store, EndpointSecrets(vault)
        self._switch = Endpoints(store, models=OUTBOX_MODELS)

    async def get(self, property_id: str) -> RmsEndpoint:
        return (await get_or_404(self._store, RmsEndpoint, property_id, what="RMS endpoint of property")).doc

    async def all(self, *, limit: int, cursor: str | None) -> tuple[list[EndpointResponse], str | None]:
        page = await self._store.query(Query(RmsEndpoint).order_by("-created_at").limit(limit).after(cursor))
        return [shown(one) for one in page.docs], page.cursor

    async def set(
        self, property_id: str, order: EndpointRequest, *, tx: Transaction | None = None
    ) -> EndpointResponse:
        """Make the endpoint with a fresh secret, or change where and how it sends; in the caller's
        transaction, if given."""
        if tx is None:
            return await self._store.transact(lambda own: self.set(property_id, order, tx=own))
        rate = check_order(order)
        await get_or_404(self._store, Property, property_id, what="property")
        there = await tx.get(RmsEndpoint, property_id)
        if there is None:
            return self._made(tx, property_id, order, rate=rate)
        kept = there.doc
        kept.url, kept.concurrency, kept.rate = order.url, order.concurrency, rate
        tx.write(put(kept))
        return shown(kept)

    def _made(
        self, tx: Transaction, property_id: str, order: EndpointRequest, *, rate: Rate | None
    ) -> EndpointResponse:
        made = RmsEndpoint(
            id=property_id, tenant_id=self._store.tenant_id or "-", url=order.url, rate=rate,
            created_at=self._store.clock.now(), event_types=[EVENT_TYPE], concurrency=order.concurrency,
            retry=RetryPolicy(),
        )  # fmt: skip
        secret = new_secret()
        made.secrets = [self._secrets.seal(made, secret)]
        tx.write(create(made))
        return shown(made, secret)

    async def rotate(self, property_id: str, tx: Transaction) -> EndpointResponse:
        """A fresh secret; messages are signed with the old one too until the overlap ends."""
        there = await tx.get(RmsEndpoint, (await self.get(property_id)).id)
        assert there is not None
        secret, kept = new_secret(), there.doc
        kept.secrets = self._secrets.rotated(kept, secret, now=self._store.clock.now())
        tx.write(put(kept))
        return shown(kept, secret)

    async def act(self, property_id: str, act: Act, *, reason: str, by: str) -> tuple[EndpointResponse, bool]:
        """Pause, resume, disable or enable it; says so in the endpoint's notices. And whether that changed
        anything."""
        if len(reason) > REASON_MAX:
            raise InvalidError(f"a reason has at most {REASON_MAX} characters", "reason")
        await self.get(property_id)
        changed: bool = await getattr(self._switch, act)(property_id, reason=reason, by=by)
        return shown(await self.get(property_id)), changed


async def require_property(tx: Transaction, endpoint: Endpoint) -> None:
    """Raise NotFoundError for an endpoint whose id is no property's."""
    if await tx.get(Property, endpoint.id) is None:
        raise NotFoundError(f"no property {endpoint.id!r}; an endpoint has the id of its property")


def check_order(order: EndpointRequest) -> Rate | None:
    """The order's rate; `InvalidError` for what could never be sent to, or never that fast."""
    try:
        read_url(order.url)
    except SendFailure as failure:
        raise InvalidError(failure.message, "url") from None
    if order.rate_per_s is None:
        return None
    # The command line knows numbers that are none.
    if not 0 < order.rate_per_s <= RATE_MAX:
        raise InvalidError(f"a rate is more than 0 and at most {RATE_MAX:,} a second", "ratePerS")
    return Rate(order.rate_per_s, max(1, int(order.rate_per_s)))


def shown(endpoint: RmsEndpoint, secret: str | None = None) -> EndpointResponse:
    return EndpointResponse(
        property_id=endpoint.id, url=endpoint.url, status=endpoint.status, reason=endpoint.reason,
        concurrency=endpoint.concurrency, secrets=len(endpoint.secrets), created_at=endpoint.created_at,
        rate_per_s=None if endpoint.rate is None else endpoint.rate.per_s, secret=secret,
    )  # fmt: skip
