"""Watch channels for a declared set of resources, across crashes and renewals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from holdfast.errors import BadQueryError
from holdfast.kit import NO_TENANT
from holdfast.kit.channels import decision, report
from holdfast.kit.channels.decision import ChannelPolicy
from holdfast.kit.channels.ids import NAME_CHARACTERS_MAX, watch_id_of
from holdfast.kit.channels.models import Channel, ChannelFields, ChannelStatus, Watch
from holdfast.kit.channels.port import ChannelProvider
from holdfast.kit.channels.reconciler import Hook, WatchReconciler, epoch_ms, log
from holdfast.kit.channels.report import ChannelHealth, Forced, Listing, Renewal, Renewed
from holdfast.kit.channels.watch_registry import WatchRegistry
from holdfast.kit.worker_loop import WorkerLoop
from holdfast.store import Query, Snapshot, Store, Transaction
from holdfast.webhook_verifier import CHANNEL_TOKEN_BYTES

POLL_S: Final = 60.0
GAP_S: Final = 0.02
PAGE: Final = 500


class Channels(WorkerLoop[Watch]):
    """Keeps one channel open for each wanted resource. Any number of processes may run it.

    `name` begins every channel id and tells this set from others in the same store. The first of `keys`, by
    their ids, signs the tokens by which the inbox verifies notifications (`GoogleChannelVerifier(*keys)`);
    channels whose token another has signed are replaced. `hook` adds writes to the commits that open, stop or
    expire a channel.

    Example:
        keys = vault.secrets(CHANNEL_KEY)
        channels = Channels(store, google, name="calendar-sync", keys=keys, kind=WatchChannel)
        await channels.set_wanted(["alice@hoge.jp", "bob@hoge.jp"])
        await channels.run(stop)
    """

    def __init__(
        self,
        store: Store,
        provider: ChannelProvider,
        *,
        name: str,
        keys: Mapping[str, bytes],
        kind: type[ChannelFields] = Channel,
        life: ChannelPolicy | None = None,
        hook: Hook | None = None,
        owner: str = "",
    ) -> None:
        key_id, key = next(iter(keys.items()))
        if len(key) < CHANNEL_TOKEN_BYTES:
            raise BadQueryError(f"the channel key needs at least {CHANNEL_TOKEN_BYTES} bytes")
        if not name.replace("-", "").isalnum() or not name.isascii() or len(name) > NAME_CHARACTERS_MAX:
            raise BadQueryError(f"the name has 1 to {NAME_CHARACTERS_MAX} letters, digits and hyphens")
        self._life = life or ChannelPolicy()
        if self._life.lease_s <= self._life.call_limit_s:
            raise BadQueryError("the lease must be longer than a provider's answer may take")
        # Twice as many watches as calls at once, so that the provider is never waited for in vain.
        super().__init__(
            store.tenant(store.tenant_id or NO_TENANT), Watch, concurrency=2 * self._life.concurrency,
            lease_s=self._life.lease_s, poll_s=POLL_S, gap_s=GAP_S, owner=owner,
        )  # fmt: skip
        self._name, self._channel = name, kind
        self._registry = WatchRegistry(self._store, kind, name=name, key_id=key_id, life=self._life)
        self._reconciler = WatchReconciler(
            self._store, provider, kind=kind, key_id=key_id, key=key, life=self._life, hook=hook,
            known=self._registry.known,
        )  # fmt: skip

    async def load(self) -> int:
        """Load the active channels into memory, for `has_open` and `find`; return their number."""
        return await self._registry.load()

    def has_open(self, channel_id: str) -> bool:
        """Whether this process knows a channel to be open, without a read."""
        return channel_id in self._registry.known

    async def set_wanted(self, watched_ids: Iterable[str]) -> None:
        """Declare all resources to watch; the next turn opens channels for new ones and stops the others.

        The first call also adopts stored channels that no watch has, and renews those of another key.
        """
        await self._registry.set_wanted(set(watched_ids))

    # -- the loop ---------------------------------------------------------------------------------

    async def turn(self) -> int:
        """Open, renew, stop and repair everything that is due now; return how many watches that took."""
        return await self.work_off()

    async def _act(self, claimed: Snapshot[Watch], until_s: float) -> None:
        await self._reconciler.reconcile(claimed, until_s)

    async def _claim(self, room: int) -> list[Snapshot[Watch]]:
        return await self._store.claim_due(
            Watch, limit=room, lease_s=self._lease_s, owner=self.owner, only_lanes=[self._name]
        )

    # -- what people do ---------------------------------------------------------------------------

    async def renew_expiring(self, threshold_s: float = 86_400.0, *, dry_run: bool = False) -> Renewal:
        """Renew channels that end within `threshold_s`, now; says what became of each."""
        before = epoch_ms(self._clock.now()) + round(threshold_s * 1000)
        query = (
            Query(self._channel).where("status", "==", "active").where("expiration", "<", before).limit(PAGE)
        )
        expiring = [found.doc async for found in self._store.scan(query.order_by("expiration"))]
        if dry_run:
            would = [
                Renewed(channel_id=c.channel_id, watched_id=c.watched_id, old_expiration=c.expiration)
                for c in expiring
            ]
            return Renewal(renewed=would, dry_run=True)
        ids = await self._registry.ids_of([channel.watched_id for channel in expiring])
        ending = {channel.channel_id for channel in expiring}
        await self._registry.change_each(
            ids.values(), lambda w, now: decision.renew_if_expiring(w, ending, now)
        )
        await self.turn()
        after = await self._registry.read(ids)
        now = self._clock.now()
        judged = [report.renewal_outcome(channel, after.get(channel.watched_id), now) for channel in expiring]
        return report.summarize_renewal(judged, dry_run=False)

    async def force(self, reason: str = "", *, ordered_at: datetime | None = None) -> Forced:
        """Replace every channel by a new one, also where credentials were refused; safe to repeat.

        An order that is taken up again after a crash leaves alone what was opened since `ordered_at`.
        """
        log.info("channels are replaced by new ones", name=self._name, reason=reason)
        since = ordered_at or self._clock.now()
        before = {watch.watched_id: watch async for watch in self._registry.all() if watch.wanted}
        await self._registry.change_each(
            [watch.id for watch in before.values()],
            lambda watch, now: decision.request_replacement(watch, now, ordered_at=since),
        )
        await self.turn()
        after = {watch.watched_id: watch async for watch in self._registry.all() if watch.wanted}
        opened = {
            id
            for id, watch in after.items()
            if id in before and (watch.openings > before[id].openings or decision.opened_since(watch, since))
        }
        errors = {id: after[id].error for id in before if id in after and id not in opened}
        replaced = [
            watch.current.channel_id for id, watch in before.items() if id in opened and watch.current
        ]
        left = {
            held.channel_id for watch in after.values() for held in (*watch.leaving, watch.current) if held
        }
        stopped = len(set(replaced) - left)
        return Forced(opened=len(opened), stopped=stopped, failed=len(errors), errors=errors)

    async def retry(self, watched_ids: Iterable[str]) -> None:
        """Try again at the next turn what needed attention or waits after failures, as after a reconnect."""
        ids = await self._registry.ids_of(list(watched_ids))
        await self._registry.change_each(ids.values(), decision.request_renewal)

    async def revive(self, watched_ids: Iterable[str] | None = None) -> None:
        """Try again at the next turn what needed attention, of these or of all; leave the rest as it is."""
        if watched_ids is None:
            ids = [watch.id async for watch in self._registry.all() if watch.status == "attention"]
        else:
            ids = list((await self._registry.ids_of(watched_ids)).values())
        await self._registry.change_each(ids, decision.retry_attention)

    async def stop(self, channel_id: str) -> None:
        """Stop one channel. What is still wanted gets another first, so that nothing goes unseen."""
        await self._store.transact(lambda tx: self.release(channel_id, tx))
        await self.turn()

    async def release(self, channel_id: str, tx: Transaction) -> None:
        """Order one channel stopped, in the caller's commit; the next turn does it."""
        await self._registry.release(channel_id, tx)

    # -- what notifications say -------------------------------------------------------------------

    async def find(self, channel_id: str) -> str | None:
        """What a channel watches, also before it is on record; None when it was never ours."""
        known = self._registry.known.get(channel_id)
        if known is not None:
            return known
        found = await self._store.get(self._channel, channel_id)
        if found is not None:
            return found.doc.watched_id
        watch = await self._store.get(Watch, watch_id_of(channel_id)) if watch_id_of(channel_id) else None
        return watch.doc.watched_id if watch and decision.has_channel(watch.doc, channel_id) else None

    async def record_resource(self, channel_id: str, resource_id: str) -> None:
        """A verified notification named its resource: lets a half-opened channel be stopped."""
        await self._registry.change(
            watch_id_of(channel_id),
            lambda watch, now: decision.record_resource(watch, channel_id, resource_id),
        )

    # -- what people see --------------------------------------------------------------------------

    async def status(
        self, only: ChannelStatus | None = None, *, limit: int = 100, cursor: str | None = None
    ) -> Listing:
        """Channels with the time left to them, soonest end first."""
        query = Query(self._channel) if only is None else Query(self._channel).where("status", "==", only)
        page = await self._store.query(query.order_by("expiration").limit(limit).after(cursor))
        now_ms = epoch_ms(self._clock.now())
        rows = [report.row(channel, now_ms=now_ms, warn_s=self._life.warn_s) for channel in page.docs]
        return Listing(rows, page.cursor)

    async def count_warnings(self) -> int:
        """Count the channels that end within the warning time."""
        before = epoch_ms(self._clock.now()) + round(self._life.warn_s * 1000)
        active = Query(self._channel).where("status", "==", "active")
        return await self._store.count(active.where("expiration", "<", before))

    async def watches(self, watched_ids: Iterable[str]) -> dict[str, Watch]:
        """The watches of these things, by what they watch; none for what was never wanted."""
        return await self._registry.read(await self._registry.ids_of(watched_ids))

    async def health(self) -> ChannelHealth:
        """How channels are, as the store has it; what needs somebody's attention is named."""
        return await report.channel_health(
            self._store, self._channel, name=self._name, last_turn_at=self.last_turn_at,
            last_error=self._reconciler.last_error,
        )  # fmt: skip
