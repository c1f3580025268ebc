"""What becomes of a calendar's state when somebody asks for a sync, one begins, ends or fails. Pure.

asked ──► due ──► claimed ──► begun ──► settled ──► due again: at once if asked meanwhile,
                                   └──► failed        otherwise when the safety poll says so
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.backoff import BackOff
from holdfast.errors import ReauthRequiredError, RetryLaterError
from holdfast.services.calendar_sync.models import CalendarState, EventResult

NOTED_EVERY_S: Final = 60.0
SKEW_S: Final = 1.0
RESULTS_MAX: Final = 20
ERROR_CHARACTERS_MAX: Final = 500


class SyncPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a calendar is looked at: at most, when nothing calls for it, and after failures."""

    gap_s: float = 1.0
    poll_s: float = 6 * 3_600.0
    lease_s: float = 60.0
    back_off: BackOff = BackOff(first_s=5.0, wait_s_max=3_600.0, jitter=0.5)
    attention_s: float = 3_600.0


def is_held(state: CalendarState, now: datetime) -> bool:
    return state.owner != "" and state.due_at is not None and state.due_at > now


def earliest_start(state: CalendarState, now: datetime, gap_s: float) -> datetime:
    """When the next sync may begin: a while after the last one did, so that a burst is one more sync."""
    if state.began_at is None or state.began_at > now:
        return now
    return max(now, state.began_at + timedelta(seconds=gap_s))


def request_sync(
    state: CalendarState, now: datetime, *, full: bool = False, gap_s: float = 0.0
) -> CalendarState:
    """Look at this calendar; with `full` at everything on it. Whoever is at work looks once more after."""
    due_at = state.due_at
    # After a failure the wait stands: asking must not make anybody ask a provider sooner.
    if not is_held(state, now) and (not state.failures or full or due_at is None):
        due_at = earliest_start(state, now, gap_s)
    state = replace(state, asked=state.asked + 1, due_at=due_at)
    return replace(state, sync_token="", generation=state.generation + 1) if full else state


def record_notification(
    state: CalendarState, now: datetime, *, received_at: datetime, number: int, gap_s: float
) -> CalendarState:
    """A notification came. One of many in a burst changes nothing: what it asks for is asked for, or done."""
    # A sync that began since has seen what this tells of. Clocks of two machines may differ a little.
    skewed = received_at + timedelta(seconds=SKEW_S)
    seen = state.began_at is not None and skewed <= state.began_at <= now
    fresh = state.notified_at is not None and (now - state.notified_at).total_seconds() < NOTED_EVERY_S
    if seen or (fresh and state.asked > state.taken):
        return state
    return replace(request_sync(state, now, gap_s=gap_s), notified_at=now, message_number=number)


def begin_sync(state: CalendarState, now: datetime) -> CalendarState:
    """A sync begins: what is asked from here on asks for another."""
    return replace(state, taken=state.asked, began_at=now)


class SyncOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a sync brought: the place to go on from, and what it did to events."""

    sync_token: str
    results: tuple[EventResult, ...] = ()


def complete_sync(
    state: CalendarState,
    start: CalendarState,
    outcome: SyncOutcome,
    *,
    now: datetime,
    policy: SyncPolicy,
    spread: float,
) -> CalendarState:
    """The sync that found the calendar as `start` has ended well."""
    # Somebody asked for everything anew while it ran: nobody must go on from the place it reached.
    token = outcome.sync_token if state.generation == start.generation else state.sync_token
    again = state.asked > state.taken
    poll_at = now + timedelta(seconds=policy.poll_s * (1 - spread / 10))
    due_at = earliest_start(state, now, policy.gap_s) if again else poll_at
    return replace(
        state, sync_token=token, due_at=due_at, owner="", synced_at=now, syncs=state.syncs + 1,
        standing="fine", failures=0, error="",
        results=[*reversed(outcome.results[-RESULTS_MAX:]), *state.results][:RESULTS_MAX],
    )  # fmt: skip


def fail_sync(
    state: CalendarState, fault: Exception, *, now: datetime, policy: SyncPolicy, spread: float
) -> CalendarState:
    """It did not end well: again after growing, spread waits, or, without credentials, now and then."""
    failures = state.failures + 1
    error = (str(fault) or type(fault).__name__)[:ERROR_CHARACTERS_MAX]
    if isinstance(fault, ReauthRequiredError):
        due_at = now + timedelta(seconds=policy.attention_s)
        return replace(state, standing="attention", due_at=due_at, owner="", failures=failures, error=error)
    wait_s = policy.back_off.wait_s(failures, spread)
    if isinstance(fault, RetryLaterError):
        wait_s = max(wait_s, fault.after_s)
    due_at = now + timedelta(seconds=wait_s)
    return replace(state, standing="failing", due_at=due_at, owner="", failures=failures, error=error)
