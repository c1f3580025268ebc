"""Reconciles one watch with the provider: store the intent, call, settle, until nothing is left to do."""

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
    """A state change of a channel, or of a watch that needs attention."""

    act: Act
    watched_id: str
    channel_id: str = ""
    reason: str = ""


Hook = Callable[[Transaction, Sequence[ChannelTransition]], Awaitable[None]]
Change = Callable[[Watch], Watch]


class WatchLease(msgspec.Struct, kw_only=True):
    """A claim of a watch: safe by the fencing number, timely by this process's monotonic clock."""

    id: str
    fence: int
    owner: str
    until_s: float


class WatchReconciler:
    """Takes the due steps of claimed watches. Maintains `known`: channel id to watched id."""

    def __init__(
        self,
        store: Store,
        provider: ChannelProvider,
        *,
        kind: type[ChannelFields],
        key_id: str,
        key: bytes,
        life: ChannelPolicy,
        hook: Hook | None,
        known: dict[str, str],
    ) -> None:
        self._store, self._clock = store, store.clock
        self._provider, self._kind, self._key_id, self._key = provider, kind, key_id, key
        self._life, self._hook, self._known = life, hook, known
        # Limits calls, not watches: while one watch commits a step, another may call.
        self._calls = asyncio.Semaphore(life.concurrency)
        self.last_error = ""

    async def reconcile(self, claimed: Snapshot[Watch], until_s: float) -> None:
        """Step until there is nothing to do; after an error the next claimant continues."""
        watch = claimed.doc
        lease = WatchLease(id=watch.id, fence=watch.fence, owner=watch.owner, until_s=until_s)
        try:
            while watch.owner:
                watch = await self._run_step(decide(watch, self._clock.now()), watch, lease)
        except LeaseLostError:
            log.warning("watch taken over", watch=watch.id)
        except Exception as fault:
            self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
            log.warning("watch step failed; the next claimant continues", watch=watch.id, error=repr(fault))

    async def _run_step(self, step: decision.Step, watch: Watch, lease: WatchLease) -> Watch:
        if isinstance(step, Open):
            return await self._open(lease)
        if isinstance(step, Stop):
            return await self._stop(watch, lease, step.channels)
        if isinstance(step, Idle):
            return await self._write(lease, lambda watch: watch)
        return await self._clean_up(watch, lease)

    async def _clean_up(self, watch: Watch, lease: WatchLease) -> Watch:
        now = self._clock.now()
        ended = watch.current if decision.is_expired(watch, now) else None
        transitions = [_transition("expired", watch, ended)] if ended is not None else []
        return await self._write(lease, lambda watch: decision.clean_up(watch, now), transitions=transitions)

    async def _open(self, lease: WatchLease) -> Watch:
        began_s = self._clock.monotonic()
        # Store first: once this is stored, a channel that the provider opens under the id is never lost.
        watch = await self._write(
            lease, lambda watch: decision.begin_open(watch, self._clock.now(), self._life)
        )
        opening = watch.opening
        assert opening is not None
        try:
            channel = await self._call_open(watch.watched_id, opening.channel_id, lease)
        except LeaseLostError:
            raise
        except Exception as fault:
            return await self._record_failure(watch, lease, fault)
        took_ms = round((self._clock.monotonic() - began_s) * 1000)
        spread = random.random()

        def change(watch: Watch) -> Watch:
            now = self._clock.now()
            watch = decision.complete_open(
                watch, channel, key_id=self._key_id, now=now, life=self._life, spread=spread
            )
            return replace(watch, took_ms=took_ms)

        try:
            return await self._write(
                lease, change, transitions=[_transition("opened", watch, channel)], opened_channel=channel
            )
        except LeaseLostError:
            # The new holder knows the id, but not its resource: only this process can stop it.
            await self._call_stop(watch, channel)
            raise

    async def _call_open(self, watched_id: str, channel_id: str, lease: WatchLease) -> OpenChannel:
        token = channel_token(self._key, channel_id)
        async with self._calls:
            self._check_lease(lease)
            async with asyncio.timeout(self._life.call_limit_s):
                opened = await self._provider.open(
                    watched_id, channel_id=channel_id, token=token, ttl_s=self._life.ttl_s
                )
        if opened.expires_at <= self._clock.now():
            raise ValueError("the provider returned a channel that has already expired")
        return OpenChannel(channel_id=channel_id, resource_id=opened.resource_id, ends_at=opened.expires_at)

    async def _record_failure(self, watch: Watch, lease: WatchLease, fault: Exception) -> Watch:
        log.warning("channel not opened", watched=watch.watched_id, error=repr(fault))
        self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
        now, spread = self._clock.now(), random.random()
        reauth = isinstance(fault, ReauthRequiredError)
        transitions = (
            [_transition("attention", watch, None, reason=decision.error_text(fault))] if reauth else []
        )
        return await self._write(
            lease,
            lambda watch: decision.fail_open(watch, fault, now=now, life=self._life, spread=spread),
            transitions=transitions,
        )

    async def _stop(self, watch: Watch, lease: WatchLease, channels: Sequence[OpenChannel]) -> Watch:
        self._check_lease(lease)
        faults = await asyncio.gather(*(self._call_stop(watch, channel) for channel in channels))
        results = list(zip(channels, faults, strict=True))
        now, spread = self._clock.now(), random.random()
        stopped = [channel for channel, fault in results if fault is None]

        def change(watch: Watch) -> Watch:
            watch = decision.complete_stop(watch, [channel.channel_id for channel in stopped])
            for channel, fault in results:
                if fault is not None:
                    watch = decision.fail_stop(
                        watch, channel.channel_id, fault, now=now, life=self._life, spread=spread
                    )
            return watch

        transitions = [
            _transition("expired" if channel.ends_at <= now else "stopped", watch, channel)
            for channel in stopped
        ]
        return await self._write(lease, change, transitions=transitions)

    async def _call_stop(self, watch: Watch, channel: OpenChannel) -> Exception | None:
        """None once the channel is closed, otherwise the error."""
        if channel.ends_at <= self._clock.now():
            return None
        resource_id = channel.resource_id or watch.resource_id
        try:
            async with self._calls, asyncio.timeout(self._life.call_limit_s):
                await self._provider.stop(
                    watch.watched_id, channel_id=channel.channel_id, resource_id=resource_id
                )
        except NotFoundError:
            return None
        except Exception as fault:
            log.warning("channel not stopped", channel=channel.channel_id, error=repr(fault))
            self.last_error = f"{watch.watched_id}: {decision.error_text(fault)}"
            return fault
        return None

    def _check_lease(self, lease: WatchLease) -> None:
        """A process that was paused for long must not call the provider while another holds the watch."""
        if self._clock.monotonic() + self._life.call_limit_s > lease.until_s:
            raise LeaseLostError("too little of the lease is left for a provider call")

    async def _write(
        self,
        lease: WatchLease,
        change: Change,
        *,
        transitions: Sequence[ChannelTransition] = (),
        opened_channel: OpenChannel | None = None,
    ) -> Watch:
        """Commit a step: the watch, its channels' documents and the hook's writes."""
        sent_s = self._clock.monotonic()

        async def act(tx: Transaction) -> Watch:
            stored = await tx.get(Watch, lease.id)
            if stored is None or stored.doc.fence != lease.fence:
                raise LeaseLostError(f"the watch {lease.id!r} was taken over")
            now = self._clock.now()
            watch = decision.update_status(change(stored.doc), now)
            step = decide(watch, now)
            if isinstance(step, Idle):
                watch = replace(watch, due_at=step.until, owner="")
            else:
                watch = replace(watch, due_at=now + timedelta(seconds=self._life.lease_s), owner=lease.owner)
            tx.write(put(watch))
            if opened_channel is not None:
                tx.write(create(self._document(watch, opened_channel, now)))
            for one in transitions:
                await self._close_document(tx, one, now)
            if self._hook is not None and transitions:
                await self._hook(tx, transitions)
            return watch

        watch = await self._store.transact(act)
        lease.until_s = sent_s + self._life.lease_s
        self._update_known(transitions)
        return watch

    def _document(self, watch: Watch, channel: OpenChannel, now: datetime) -> ChannelFields:
        tenant = schema_of(self._kind).tenant
        tenant_field: dict[str, Any] = (
            {} if tenant is None else {tenant.path: self._store.tenant_id or NO_TENANT}
        )
        return self._kind(
            channel_id=channel.channel_id, resource_id=channel.resource_id, watched_id=watch.watched_id,
            expiration=epoch_ms(channel.ends_at), registered_at=epoch_ms(now), last_updated_at=epoch_ms(now),
            **tenant_field,
        )  # fmt: skip

    async def _close_document(self, tx: Transaction, transition: ChannelTransition, now: datetime) -> None:
        if transition.act not in ("stopped", "expired"):
            return
        if transition.act == "stopped" and not self._life.keep_stopped:
            tx.write(delete(self._kind, transition.channel_id))
            return
        stored = await tx.get(self._kind, transition.channel_id)
        status: ChannelStatus = "stopped" if transition.act == "stopped" else "expired"
        if stored is None or stored.doc.status in (status, "stopped"):
            return
        changes = {"status": status, "last_updated_at": epoch_ms(now)}
        tx.write(patch(self._kind, transition.channel_id, changes=changes))

    def _update_known(self, transitions: Sequence[ChannelTransition]) -> None:
        for one in transitions:
            if one.act == "opened":
                self._known[one.channel_id] = one.watched_id
            elif one.channel_id:
                self._known.pop(one.channel_id, None)


def _transition(
    act: Act, watch: Watch, channel: OpenChannel | None, *, reason: str = ""
) -> ChannelTransition:
    channel_id = "" if channel is None else channel.channel_id
    return ChannelTransition(act=act, watched_id=watch.watched_id, channel_id=channel_id, reason=reason)


def epoch_ms(at: datetime) -> int:
    return to_us(at) // 1000
