"""Caring for one watch: keep the intent, ask the provider, settle, step by step until nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.clock import to_us
from holdfast.errors import LeaseLostError, NotFoundError, ReauthRequiredError
from holdfast.kit import NO_TENANT
from holdfast.kit.channels import decision
from holdfast.kit.channels.decision import ChannelPolicy, Idle, Open, Stop, decide
from holdfast.kit.channels.models import ChannelFields, ChannelStatus, OpenChannel, Watch
from holdfast.kit.channels.port import ChannelProvider
from holdfast.model import schema_of
from holdfast.store import Snapshot, Store, Transaction, create, delete, patch, put
from holdfast.webhook_verifier import channel_token

log = structlog.get_logger("holdfast.channels")

Act = Literal["opened", "stopped", "expired", "attention"]


class ChannelTransition(msgspec.Struct, frozen=True, kw_only=True):
    """Something that became of a channel, or of a watch that needs somebody's attention."""

    act: Act
    watched_id: str
    channel_id: str = ""
    reason: str = ""


Hook = Callable[[Transaction, Sequence[ChannelTransition]], Awaitable[None]]
Change = Callable[[Watch], Watch]


class WatchLease(msgspec.Struct, kw_only=True):
    """This process's turn at a watch: safe by the fencing number, timely by its own monotonic time."""

    id: str
    fence: int
    owner: str
    until_s: float


class WatchReconciler:
    """Does for claimed watches what they need. `known` is kept true: channel id to what it watches."""

    def __init__(
        self,
        store: Store,
        provider: ChannelProvider,
        *,
        kind: type[ChannelFields],
        key: bytes,
        life: ChannelPolicy,
        hook: Hook | None,
        known: dict[str, str],
    ) -> None:
        self._store, self._clock = store, store.clock
        self._provider, self._kind, self._key = provider, kind, key
        self._life, self._hook, self._known = life, hook, known
        # Counts calls, not watches: while one's step is being kept, another's call is under way.
        self._calls = asyncio.Semaphore(life.concurrency)
        self.last_error = ""

    async def reconcile(self, claimed: Snapshot[Watch], until_s: float) -> None:
        """Step by step until there is nothing to do; a fault leaves the rest to whoever claims next."""
        watch = claimed.doc
        hold = WatchLease(id=watch.id, fence=watch.fence, owner=watch.owner, until_s=until_s)
        try:
            while watch.owner:
                watch = await self._take(decide(watch, self._clock.now()), watch, hold)
        except LeaseLostError:
            log.warning("watch was taken over", watch=watch.id)
        except Exception as fault:
            self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
            log.warning("watch left to be taken up again", watch=watch.id, error=repr(fault))

    async def _take(self, step: decision.Step, watch: Watch, hold: WatchLease) -> Watch:
        if isinstance(step, Open):
            return await self._open(hold)
        if isinstance(step, Stop):
            return await self._stop(watch, hold, step.channels)
        if isinstance(step, Idle):
            return await self._write(hold, lambda fresh: fresh)
        return await self._tidy(watch, hold)

    async def _tidy(self, watch: Watch, hold: WatchLease) -> Watch:
        now = self._clock.now()
        ended = watch.current if decision.is_expired(watch, now) else None
        news = [_news("expired", watch, ended)] if ended is not None else []
        return await self._write(hold, lambda fresh: decision.clean_up(fresh, now), news=news)

    async def _open(self, hold: WatchLease) -> Watch:
        began_s = self._clock.monotonic()
        # Keep first: once this is kept, whatever the provider opens under the id is never forgotten.
        watch = await self._write(
            hold, lambda fresh: decision.begin_open(fresh, self._clock.now(), self._life)
        )
        opening = watch.opening
        assert opening is not None
        try:
            held = await self._ask_to_open(watch.watched_id, opening.channel_id, hold)
        except LeaseLostError:
            raise
        except Exception as fault:
            return await self._not_opened(watch, hold, fault)
        took_ms = round((self._clock.monotonic() - began_s) * 1000)
        spread = random.random()

        def change(fresh: Watch) -> Watch:
            now = self._clock.now()
            fresh = decision.complete_open(fresh, held, now=now, life=self._life, spread=spread)
            return replace(fresh, took_ms=took_ms)

        try:
            return await self._write(hold, change, news=[_news("opened", watch, held)], new=held)
        except LeaseLostError:
            # Whoever took over knows the id and not its resource: nobody stops it better than we do.
            await self._ask_to_stop(watch, held)
            raise

    async def _ask_to_open(self, watched_id: str, channel_id: str, hold: WatchLease) -> OpenChannel:
        token = channel_token(self._key, channel_id)
        async with self._calls:
            self._ensure(hold)
            async with asyncio.timeout(self._life.call_limit_s):
                opened = await self._provider.open(
                    watched_id, channel_id=channel_id, token=token, ttl_s=self._life.ttl_s
                )
        if opened.expires_at <= self._clock.now():
            raise ValueError("the provider gave a channel that has ended already")
        return OpenChannel(channel_id=channel_id, resource_id=opened.resource_id, ends_at=opened.expires_at)

    async def _not_opened(self, watch: Watch, hold: WatchLease, fault: Exception) -> Watch:
        log.warning("channel not opened", watched=watch.watched_id, error=repr(fault))
        self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
        now, spread = self._clock.now(), random.random()
        lost = isinstance(fault, ReauthRequiredError)
        news = [_news("attention", watch, None, reason=decision.error_text(fault))] if lost else []
        return await self._write(
            hold,
            lambda fresh: decision.fail_open(fresh, fault, now=now, life=self._life, spread=spread),
            news=news,
        )

    async def _stop(self, watch: Watch, hold: WatchLease, channels: Sequence[OpenChannel]) -> Watch:
        self._ensure(hold)
        faults = await asyncio.gather(*(self._ask_to_stop(watch, held) for held in channels))
        results = list(zip(channels, faults, strict=True))
        now, spread = self._clock.now(), random.random()
        gone = [held for held, fault in results if fault is None]

        def change(fresh: Watch) -> Watch:
            fresh = decision.complete_stop(fresh, [held.channel_id for held in gone])
            for held, fault in results:
                if fault is not None:
                    fresh = decision.fail_stop(
                        fresh, held.channel_id, fault, now=now, life=self._life, spread=spread
                    )
            return fresh

        news = [_news("expired" if held.ends_at <= now else "stopped", watch, held) for held in gone]
        return await self._write(hold, change, news=news)

    async def _ask_to_stop(self, watch: Watch, held: OpenChannel) -> Exception | None:
        """None once the channel is open no longer, otherwise what went wrong."""
        if held.ends_at <= self._clock.now():
            return None
        resource_id = held.resource_id or watch.resource_id
        try:
            async with self._calls, asyncio.timeout(self._life.call_limit_s):
                await self._provider.stop(
                    watch.watched_id, channel_id=held.channel_id, resource_id=resource_id
                )
        except NotFoundError:
            return None
        except Exception as fault:
            log.warning("channel not stopped", channel=held.channel_id, error=repr(fault))
            self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
            return fault
        return None

    def _ensure(self, hold: WatchLease) -> None:
        """A process that was paused for long must not ask a provider for what another is doing now."""
        if self._clock.monotonic() + self._life.call_limit_s > hold.until_s:
            raise LeaseLostError("too little is left of the lease to ask the provider under it")

    # -- keeping ----------------------------------------------------------------------------------

    async def _write(
        self,
        hold: WatchLease,
        change: Change,
        *,
        news: Sequence[ChannelTransition] = (),
        new: OpenChannel | None = None,
    ) -> Watch:
        """Settle a step: the watch, its channels' documents and the hook's writes, or none of them."""
        sent_s = self._clock.monotonic()

        async def act(tx: Transaction) -> Watch:
            found = await tx.get(Watch, hold.id)
            if found is None or found.doc.fence != hold.fence:
                raise LeaseLostError(f"the watch {hold.id!r} is another's now")
            now = self._clock.now()
            watch = decision.update_status(change(found.doc), now)
            step = decide(watch, now)
            if isinstance(step, Idle):
                watch = replace(watch, due_at=step.until, owner="")
            else:
                watch = replace(watch, due_at=now + timedelta(seconds=self._life.lease_s), owner=hold.owner)
            tx.write(put(watch))
            if new is not None:
                tx.write(create(self._document(watch, new, now)))
            for one in news:
                await self._close(tx, one, now)
            if self._hook is not None and news:
                await self._hook(tx, news)
            return watch

        watch = await self._store.transact(act)
        hold.until_s = sent_s + self._life.lease_s
        self._remember(news)
        return watch

    def _document(self, watch: Watch, held: OpenChannel, now: datetime) -> ChannelFields:
        tenant = schema_of(self._kind).tenant
        whose: dict[str, Any] = {} if tenant is None else {tenant.path: self._store.tenant_id or NO_TENANT}
        return self._kind(
            channel_id=held.channel_id, resource_id=held.resource_id, watched_id=watch.watched_id,
            expiration=epoch_ms(held.ends_at), registered_at=epoch_ms(now), last_updated_at=epoch_ms(now),
            **whose,
        )  # fmt: skip

    async def _close(self, tx: Transaction, news: ChannelTransition, now: datetime) -> None:
        if news.act not in ("stopped", "expired"):
            return
        if news.act == "stopped" and not self._life.keep_stopped:
            tx.write(delete(self._kind, news.channel_id))
            return
        found = await tx.get(self._kind, news.channel_id)
        status: ChannelStatus = "stopped" if news.act == "stopped" else "expired"
        if found is None or found.doc.status in (status, "stopped"):
            return
        changes = {"status": status, "last_updated_at": epoch_ms(now)}
        tx.write(patch(self._kind, news.channel_id, changes=changes))

    def _remember(self, news: Sequence[ChannelTransition]) -> None:
        for one in news:
            if one.act == "opened":
                self._known[one.channel_id] = one.watched_id
            elif one.channel_id:
                self._known.pop(one.channel_id, None)


def _news(act: Act, watch: Watch, held: OpenChannel | None, *, reason: str = "") -> ChannelTransition:
    channel_id = "" if held is None else held.channel_id
    return ChannelTransition(act=act, watched_id=watch.watched_id, channel_id=channel_id, reason=reason)


def epoch_ms(at: datetime) -> int:
    return to_us(at) // 1000
