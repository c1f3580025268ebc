"""The next step of a watch, and its state after each step. Pure.

    claim ─► Cleanup ─► Open: begin_open ─► provider ─► complete_open | fail_open ─► Stop ─► Idle
                              └ begun and never completed is `opening`: the next worker moves it to `leaving`

Opening comes before stopping, so a renewal overlaps and leaves no gap.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast import outside_text
from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError, OutcomeUnknownError, ReauthRequiredError, RetryLaterError
from holdfast.kit.channels.ids import channel_id
from holdfast.kit.channels.models import OpenChannel, Watch

ERROR_CHARACTERS_MAX: Final = 500
LEAVING_MAX: Final = 50


class ChannelPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Lifetime, renewal and retry settings of channels."""

    ttl_s: float = 7 * 86_400.0
    renew_before_s: float = 86_400.0
    concurrency: int = 16
    lease_s: float = 90.0
    call_limit_s: float = 30.0
    back_off: BackOff = BackOff(first_s=5.0, wait_s_max=3_600.0, jitter=0.5)
    keep_stopped: bool = False
    warn_s: float = 86_400.0


class Cleanup(msgspec.Struct, frozen=True):
    """Record what time or a crash did: a channel that expired, an opening that nobody completed."""


class Open(msgspec.Struct, frozen=True):
    """Open a channel."""


class Stop(msgspec.Struct, frozen=True):
    """Stop these channels."""

    channels: tuple[OpenChannel, ...]


class Idle(msgspec.Struct, frozen=True):
    """Nothing to do before this moment; None: not before something changes."""

    until: datetime | None


Step = Cleanup | Open | Stop | Idle


def decide(watch: Watch, now: datetime) -> Step:
    """The next step for the holder of the watch."""
    if watch.opening is not None or is_expired(watch, now):
        return Cleanup()
    if _opens_at(watch, now) == now:
        return Open()
    ready = tuple(held for held in watch.leaving if held.retry_at is None or held.retry_at <= now)
    if ready:
        return Stop(ready)
    times = [held.retry_at for held in watch.leaving if held.retry_at is not None]
    times += [at for at in (_opens_at(watch, now),) if at is not None]
    times += [watch.current.ends_at] if watch.current is not None else []
    return Idle(min(times, default=None))


def is_expired(watch: Watch, now: datetime) -> bool:
    return watch.current is not None and watch.current.ends_at <= now


def _opens_at(watch: Watch, now: datetime) -> datetime | None:
    """When a channel should be opened; `now` when it is time, None when it should not."""
    if not watch.wanted or watch.status == "attention":
        return None
    at = watch.renew_at if watch.current is not None and watch.renew_at is not None else now
    if watch.retry_at is not None:
        at = max(at, watch.retry_at)
    return max(at, now)


def update_status(watch: Watch, now: datetime) -> Watch:
    """The watch with its status derived from its parts; one that is not wanted releases its channel."""
    if not watch.wanted and watch.current is not None:
        watch = _release_current(watch)
    status = watch.status
    if not watch.wanted:
        status = "ending" if watch.leaving or watch.opening else "ended"
    elif status != "attention":
        status = "watched" if watch.current is not None else "opening"
    ended_at = (watch.ended_at or now) if status == "ended" else None
    key_id = watch.key_id if watch.current is not None else ""
    return replace(watch, status=status, ended_at=ended_at, key_id=key_id)


def _release_current(watch: Watch) -> Watch:
    assert watch.current is not None
    return replace(watch, current=None, renew_at=None, leaving=[*watch.leaving, watch.current])


def clean_up(watch: Watch, now: datetime) -> Watch:
    if watch.opening is not None:
        watch = replace(watch, opening=None, leaving=_add_leaving(watch.leaving, watch.opening))
    if is_expired(watch, now):
        watch = replace(watch, current=None, renew_at=None)
    return watch


def _add_leaving(leaving: list[OpenChannel], held: OpenChannel) -> list[OpenChannel]:
    """Add a half-opened channel to those to be stopped; of too many, the first to expire is dropped."""
    return sorted([*leaving, held], key=lambda one: one.ends_at)[-LEAVING_MAX:]


def begin_open(watch: Watch, now: datetime, life: ChannelPolicy) -> Watch:
    """The intent to open, under a new id: stored before the provider is asked."""
    stamp_ms = max(int(now.timestamp() * 1000), watch.stamp_ms + 1)
    # The provider's clock may be ahead of ours, and the call takes time.
    ends_at = now + timedelta(seconds=life.ttl_s + life.call_limit_s + 3_600)
    opening = OpenChannel(channel_id=channel_id(watch.id, stamp_ms), ends_at=ends_at)
    return replace(watch, opening=opening, stamp_ms=stamp_ms)


def complete_open(
    watch: Watch, held: OpenChannel, *, key_id: str, now: datetime, life: ChannelPolicy, spread: float
) -> Watch:
    """The new channel becomes current; the old one and half-opened ones may now be stopped."""
    if watch.current is not None:
        watch = _release_current(watch)
    life_s = (held.ends_at - now).total_seconds()
    margin_s = min(life.renew_before_s * (1 + spread / 10), life_s / 2)
    leaving = [one if one.resource_id else replace(one, retry_at=None) for one in watch.leaving]
    return replace(
        watch, current=held, opening=None, leaving=leaving, resource_id=held.resource_id,
        renew_at=held.ends_at - timedelta(seconds=margin_s), opened_at=now, openings=watch.openings + 1,
        key_id=key_id, failures=0, retry_at=None, error="",
    )  # fmt: skip


def fail_open(watch: Watch, fault: Exception, *, now: datetime, life: ChannelPolicy, spread: float) -> Watch:
    """The provider did not open: retry later, or, without credentials, not before somebody acts."""
    watch = clean_up(watch, now) if may_be_open(fault) else replace(watch, opening=None)
    failures = watch.failures + 1
    if isinstance(fault, ReauthRequiredError):
        return replace(watch, status="attention", failures=failures, error=error_text(fault), retry_at=None)
    wait_s = retry_delay_s(fault, failures, life=life, spread=spread)
    return replace(
        watch, failures=failures, error=error_text(fault), retry_at=now + timedelta(seconds=wait_s)
    )


def may_be_open(fault: Exception) -> bool:
    """Whether the provider may have opened the channel all the same: after anything but a clear refusal."""
    return isinstance(fault, OutcomeUnknownError) or not isinstance(fault, HoldfastError)


def retry_delay_s(fault: Exception, tries: int, *, life: ChannelPolicy, spread: float) -> float:
    """Exponential back-off with jitter, never shorter than the provider asked for."""
    wait_s = life.back_off.wait_s(tries, spread)
    return max(wait_s, fault.after_s) if isinstance(fault, RetryLaterError) else wait_s


def complete_stop(watch: Watch, ids_stopped: Iterable[str]) -> Watch:
    """Remove channels that are stopped."""
    ids = set(ids_stopped)
    return replace(watch, leaving=[held for held in watch.leaving if held.channel_id not in ids])


def fail_stop(
    watch: Watch, id: str, fault: Exception, *, now: datetime, life: ChannelPolicy, spread: float
) -> Watch:
    """Retry stopping this channel later, until it expires by itself."""

    def retry_later(held: OpenChannel) -> OpenChannel:
        wait_s = retry_delay_s(fault, held.tries + 1, life=life, spread=spread)
        retry_at = min(now + timedelta(seconds=wait_s), max(held.ends_at, now))
        return replace(held, tries=held.tries + 1, retry_at=retry_at)

    leaving = [retry_later(held) if held.channel_id == id else held for held in watch.leaving]
    needs_people = isinstance(fault, ReauthRequiredError) and watch.wanted
    status = "attention" if needs_people else watch.status
    return replace(watch, leaving=leaving, status=status, error=error_text(fault))


def error_text(fault: Exception) -> str:
    return outside_text.error_text(fault, characters_max=ERROR_CHARACTERS_MAX)


def enable(watch: Watch, now: datetime) -> Watch:
    """Watch it from now on; one that ended starts again."""
    if watch.wanted:
        return watch
    return replace(watch, wanted=True, failures=0, retry_at=None, error="")


def disable(watch: Watch, now: datetime) -> Watch:
    return replace(watch, wanted=False, failures=0, retry_at=None)


def request_renewal(watch: Watch, now: datetime) -> Watch:
    """Renew at the next turn, whatever it waits for."""
    status = "opening" if watch.status == "attention" else watch.status
    return replace(watch, renew_at=now, retry_at=None, status=status)


def request_replacement(watch: Watch, now: datetime, *, ordered_at: datetime) -> Watch:
    """Renew at the next turn, unless that was done since the order was given."""
    return watch if opened_since(watch, ordered_at) else request_renewal(watch, now)


def opened_since(watch: Watch, at: datetime) -> bool:
    return watch.status == "watched" and watch.opened_at is not None and watch.opened_at > at


def retry_attention(watch: Watch, now: datetime) -> Watch:
    """Credentials work again: retry a watch that needed attention."""
    return request_renewal(watch, now) if watch.status == "attention" else watch


def renew_if_expiring(watch: Watch, ending: Container[str], now: datetime) -> Watch:
    """Renew at the next turn, unless the expiring channel was replaced meanwhile."""
    if watch.current is None or watch.current.channel_id not in ending:
        return watch
    return replace(watch, renew_at=now)


def renew_if_old_key(watch: Watch, now: datetime, *, key_id: str) -> Watch:
    """Renew at the next turn, where another key has signed the token of the current channel."""
    return watch if watch.current is None or watch.key_id == key_id else replace(watch, renew_at=now)


def release_channel(watch: Watch, id: str, found: OpenChannel | None) -> Watch:
    """Release one channel: the current one, one already leaving, or one found stored only."""
    if watch.current is not None and watch.current.channel_id == id:
        return _release_current(watch)
    if found is not None and not has_channel(watch, id):
        return replace(watch, leaving=[*watch.leaving, found])
    leaving = [replace(held, retry_at=None) if held.channel_id == id else held for held in watch.leaving]
    return replace(watch, leaving=leaving)


def has_channel(watch: Watch, id: str) -> bool:
    """Whether a channel is, or may be, open under this watch."""
    held = [watch.current, watch.opening, *watch.leaving]
    return any(one is not None and one.channel_id == id for one in held)


def adopt_channel(watch: Watch, found: OpenChannel, *, life: ChannelPolicy) -> Watch:
    """Adopt a stored channel that no watch has."""
    if has_channel(watch, found.channel_id):
        return watch
    if watch.current is not None or not watch.wanted:
        return replace(watch, leaving=[*watch.leaving, found])
    renew_at = found.ends_at - timedelta(seconds=life.renew_before_s)
    return replace(watch, current=found, renew_at=renew_at, resource_id=found.resource_id)


def record_resource(watch: Watch, id: str, resource_id: str) -> Watch:
    """Record the resource of a half-opened channel, named by a notification: now it can be stopped."""

    def with_resource(held: OpenChannel) -> OpenChannel:
        matches = held.channel_id == id and not held.resource_id
        return replace(held, resource_id=resource_id, retry_at=None) if matches else held

    opening = None if watch.opening is None else with_resource(watch.opening)
    return replace(watch, opening=opening, leaving=[with_resource(held) for held in watch.leaving])
