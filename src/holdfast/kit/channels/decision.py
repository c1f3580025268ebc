"""What a watch needs next, and what it becomes after each step. Pure.

    claim ─► Tidy ─► Open: begun ─► provider ─► opened | failed ─► Stop: provider ─► stopped ─► Rest
                            └ begun and never ended is `opening`: the next worker puts it to `leaving`

Opening comes before stopping, so a renewal overlaps and never leaves a gap.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError, OutcomeUnknownError, ReauthRequiredError, RetryLaterError
from holdfast.kit.channels.ids import channel_id
from holdfast.kit.channels.models import OpenChannel, Watch

ERROR_CHARACTERS_MAX: Final = 500
LEAVING_MAX: Final = 50


class ChannelPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How channels live: how long, when they are renewed, how gently a provider is asked."""

    ttl_s: float = 7 * 86_400.0
    renew_before_s: float = 86_400.0
    concurrency: int = 16
    lease_s: float = 90.0
    call_limit_s: float = 30.0
    back_off: BackOff = BackOff(first_s=5.0, wait_s_max=3_600.0, jitter=0.5)
    keep_stopped: bool = False
    warn_s: float = 86_400.0


class Cleanup(msgspec.Struct, frozen=True):
    """Put down what time or a crash has done: a channel that ended, an opening nobody finished."""


class Open(msgspec.Struct, frozen=True):
    """Open a channel."""


class Stop(msgspec.Struct, frozen=True):
    """Stop these channels."""

    channels: tuple[OpenChannel, ...]


class Idle(msgspec.Struct, frozen=True):
    """Nothing to do before this moment; None: never, unless asked."""

    until: datetime | None


Step = Cleanup | Open | Stop | Idle


def decide(watch: Watch, now: datetime) -> Step:
    """The next step of whoever holds the watch."""
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
    """When a channel should be opened; `now` when it is time, None when none is wanted."""
    if not watch.wanted or watch.status == "attention":
        return None
    at = watch.renew_at if watch.current is not None and watch.renew_at is not None else now
    if watch.retry_at is not None:
        at = max(at, watch.retry_at)
    return max(at, now)


# -- what a watch becomes -------------------------------------------------------------------------


def update_status(watch: Watch, now: datetime) -> Watch:
    """The watch with its status as its parts have it; an unwanted one lets its channel go."""
    if not watch.wanted and watch.current is not None:
        watch = _let_go(watch)
    status = watch.status
    if not watch.wanted:
        status = "ending" if watch.leaving or watch.opening else "ended"
    elif status != "attention":
        status = "watched" if watch.current is not None else "opening"
    ended_at = (watch.ended_at or now) if status == "ended" else None
    return replace(watch, status=status, ended_at=ended_at)


def _let_go(watch: Watch) -> Watch:
    assert watch.current is not None
    return replace(watch, current=None, renew_at=None, leaving=[*watch.leaving, watch.current])


def clean_up(watch: Watch, now: datetime) -> Watch:
    if watch.opening is not None:
        watch = replace(watch, opening=None, leaving=_with(watch.leaving, watch.opening))
    if is_expired(watch, now):
        watch = replace(watch, current=None, renew_at=None)
    return watch


def _with(leaving: list[OpenChannel], held: OpenChannel) -> list[OpenChannel]:
    """A half-opened channel joins those to be stopped; of too many, the soonest to end is left to it."""
    return sorted([*leaving, held], key=lambda one: one.ends_at)[-LEAVING_MAX:]


def begin_open(watch: Watch, now: datetime, life: ChannelPolicy) -> Watch:
    """The intent to open, under an id never used before: to be kept before the provider is asked."""
    stamp_ms = max(int(now.timestamp() * 1000), watch.stamp_ms + 1)
    # The provider's clock may be ahead of ours, and the call may take its time.
    ends_at = now + timedelta(seconds=life.ttl_s + life.call_limit_s + 3_600)
    opening = OpenChannel(channel_id=channel_id(watch.id, stamp_ms), ends_at=ends_at)
    return replace(watch, opening=opening, stamp_ms=stamp_ms)


def complete_open(
    watch: Watch, held: OpenChannel, *, now: datetime, life: ChannelPolicy, spread: float
) -> Watch:
    """The new channel is the current one; the old one and half-opened ones may now be stopped."""
    if watch.current is not None:
        watch = _let_go(watch)
    life_s = (held.ends_at - now).total_seconds()
    margin_s = min(life.renew_before_s * (1 + spread / 10), life_s / 2)
    leaving = [one if one.resource_id else replace(one, retry_at=None) for one in watch.leaving]
    return replace(
        watch, current=held, opening=None, leaving=leaving, resource_id=held.resource_id,
        renew_at=held.ends_at - timedelta(seconds=margin_s), opened_at=now, openings=watch.openings + 1,
        failures=0, retry_at=None, error="",
    )  # fmt: skip


def fail_open(watch: Watch, fault: Exception, *, now: datetime, life: ChannelPolicy, spread: float) -> Watch:
    """The provider did not open: try again later, or, without credentials, not before somebody acts."""
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
    """Doubling waits, spread over their upper half, and never shorter than the provider asked for."""
    wait_s = life.back_off.wait_s(tries, spread)
    return max(wait_s, fault.after_s) if isinstance(fault, RetryLaterError) else wait_s


def complete_stop(watch: Watch, gone: Iterable[str]) -> Watch:
    """These channels are open no longer."""
    ids = set(gone)
    return replace(watch, leaving=[held for held in watch.leaving if held.channel_id not in ids])


def fail_stop(
    watch: Watch, id: str, fault: Exception, *, now: datetime, life: ChannelPolicy, spread: float
) -> Watch:
    """This channel could not be stopped: try again later, until it ends by itself."""

    def later(held: OpenChannel) -> OpenChannel:
        wait_s = retry_delay_s(fault, held.tries + 1, life=life, spread=spread)
        retry_at = min(now + timedelta(seconds=wait_s), max(held.ends_at, now))
        return replace(held, tries=held.tries + 1, retry_at=retry_at)

    leaving = [later(held) if held.channel_id == id else held for held in watch.leaving]
    needs_people = isinstance(fault, ReauthRequiredError) and watch.wanted
    status = "attention" if needs_people else watch.status
    return replace(watch, leaving=leaving, status=status, error=error_text(fault))


def error_text(fault: Exception) -> str:
    return (str(fault) or type(fault).__name__)[:ERROR_CHARACTERS_MAX]


# -- what people ask ------------------------------------------------------------------------------


def enable(watch: Watch, now: datetime) -> Watch:
    """Watch it, from now on; one that ended begins anew."""
    if watch.wanted:
        return watch
    return replace(watch, wanted=True, failures=0, retry_at=None, error="")


def disable(watch: Watch, now: datetime) -> Watch:
    return replace(watch, wanted=False, failures=0, retry_at=None)


def request_renewal(watch: Watch, now: datetime) -> Watch:
    """Renew at the next turn; what waited after failures, or for people, is tried again."""
    status = "opening" if watch.status == "attention" else watch.status
    return replace(watch, renew_at=now, retry_at=None, status=status)


def request_replacement(watch: Watch, now: datetime, *, ordered_at: datetime) -> Watch:
    """Renew at the next turn, unless that was done since the order was given."""
    return watch if opened_since(watch, ordered_at) else request_renewal(watch, now)


def opened_since(watch: Watch, at: datetime) -> bool:
    return watch.status == "watched" and watch.opened_at is not None and watch.opened_at > at


def retry_attention(watch: Watch, now: datetime) -> Watch:
    """Credentials work again: what needed somebody's attention is tried at the next turn."""
    return request_renewal(watch, now) if watch.status == "attention" else watch


def renew_if_expiring(watch: Watch, ending: Container[str], now: datetime) -> Watch:
    """Renew at the next turn, unless another process has done so since the channel was found to end."""
    if watch.current is None or watch.current.channel_id not in ending:
        return watch
    return replace(watch, renew_at=now)


def release_channel(watch: Watch, id: str, found: OpenChannel | None) -> Watch:
    """Let one channel go: the current one, one already leaving, or one found on record only."""
    if watch.current is not None and watch.current.channel_id == id:
        return _let_go(watch)
    if found is not None and not has_channel(watch, id):
        return replace(watch, leaving=[*watch.leaving, found])
    leaving = [replace(held, retry_at=None) if held.channel_id == id else held for held in watch.leaving]
    return replace(watch, leaving=leaving)


def has_channel(watch: Watch, id: str) -> bool:
    """Whether a channel is, or may be, open under this watch."""
    held = [watch.current, watch.opening, *watch.leaving]
    return any(one is not None and one.channel_id == id for one in held)


def adopt_channel(watch: Watch, found: OpenChannel, *, life: ChannelPolicy) -> Watch:
    """Take in a channel that is on record and that no watch knows."""
    if has_channel(watch, found.channel_id):
        return watch
    if watch.current is not None or not watch.wanted:
        return replace(watch, leaving=[*watch.leaving, found])
    renew_at = found.ends_at - timedelta(seconds=life.renew_before_s)
    return replace(watch, current=found, renew_at=renew_at, resource_id=found.resource_id)


def record_resource(watch: Watch, id: str, resource_id: str) -> Watch:
    """A notification named a half-opened channel's resource: now it can be stopped."""

    def named(held: OpenChannel) -> OpenChannel:
        mine = held.channel_id == id and not held.resource_id
        return replace(held, resource_id=resource_id, retry_at=None) if mine else held

    opening = None if watch.opening is None else named(watch.opening)
    return replace(watch, opening=opening, leaving=[named(held) for held in watch.leaving])
