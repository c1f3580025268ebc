"""Transitions of a calendar's sync state: requested, begun, completed, failed. Pure.

requested ──► due ──► claimed ──► begun ──► completed ──► due again: at once if requested meanwhile,
                                       └──► failed          otherwise when the safety poll says so
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.backoff import BackOff
from holdfast.errors import ReauthRequiredError, RetryLaterError
from holdfast.services.calendar_sync.models import CalendarState, EventResult, SyncStatus, UserMapping

NOTED_EVERY_S: Final = 60.0
SKEW_S: Final = 1.0
ATTENTION_GAP_S: Final = 30.0
UNREACHABLE_DAYS_MAX: Final = 30
RESULTS_MAX: Final = 20
ERROR_CHARACTERS_MAX: Final = 500


class SyncPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often a calendar is synced: at most, without any request, and after failures."""

    gap_s: float = 1.0
    poll_s: float = 6 * 3_600.0
    lease_s: float = 60.0
    back_off: BackOff = BackOff(first_s=5.0, wait_s_max=3_600.0, jitter=0.5)
    attention_s: float = 30.0
    attention_s_max: float = 3_600.0
    attention_spacing_s: float = 1.5

    def attention_wait_s(self, waiting: int, *, first: bool = False) -> float:
        """How long a calendar without credentials waits: the more there are, the longer, so that together
        they ask Google at a steady rate; after its first failure, not for long."""
        least_s = self.back_off.first_s if first else self.attention_s
        return min(max(least_s, waiting * self.attention_spacing_s), self.attention_s_max)


def is_held(state: CalendarState, now: datetime) -> bool:
    return state.owner != "" and state.due_at is not None and state.due_at > now


def earliest_start(state: CalendarState, now: datetime, gap_s: float) -> datetime:
    """Return when the next sync may begin: some time after the last one did, so that a burst is one sync."""
    if state.began_at is None or state.began_at > now:
        return now
    return max(now, state.began_at + timedelta(seconds=gap_s))


def request_sync(
    state: CalendarState, now: datetime, *, full: bool = False, gap_s: float = 0.0
) -> CalendarState:
    """Request a sync, with `full` of everything on the calendar; a sync under way is followed by another."""
    due_at = state.due_at
    # After a failure the back-off stays: a request must not make anybody call a provider sooner.
    if not is_held(state, now):
        if not state.failures or full or due_at is None:
            due_at = earliest_start(state, now, gap_s)
        elif state.status == "attention":
            due_at = min(due_at, earliest_start(state, now, ATTENTION_GAP_S))
    state = replace(state, asked=state.asked + 1, due_at=due_at)
    return replace(state, sync_token="", generation=state.generation + 1) if full else state


def retry_attention(state: CalendarState, now: datetime) -> CalendarState:
    """Make a calendar that waits for credentials due now; one that is being synced, soon after it failed."""
    if state.status not in ("attention", "unreachable"):
        return state
    if is_held(state, now):
        return replace(state, failures=0)
    return replace(state, due_at=now) if state.due_at is None or state.due_at > now else state


def follow_mapping(
    state: CalendarState | None, mapping: UserMapping | None, *, calendar_id: str, now: datetime
) -> CalendarState | None:
    """Return the state with a full sync requested if its mapping has changed, None if it has not."""
    if mapping is None:
        if state is None or state.unmapped_at is not None:
            return None
        return request_sync(replace(state, unmapped_at=now), now, full=True)
    secondaries = mapping.secondary_emails
    if state is None:
        return CalendarState(calendar_id=calendar_id, asked=1, due_at=now, secondaries=secondaries)
    if state.secondaries == secondaries and state.unmapped_at is None:
        return None
    former = [one for one in dict.fromkeys(all_secondaries(state)) if one not in secondaries]
    after = replace(state, secondaries=secondaries, former_secondaries=former, unmapped_at=None)
    return request_sync(after, now, full=True)


def all_secondaries(state: CalendarState) -> list[str]:
    """Return the addresses that this calendar's mappings, the present and earlier ones, may have added."""
    return [*state.secondaries, *state.former_secondaries]


def await_organizer(
    state: CalendarState | None, organizer: str, *, now: datetime, error: str, policy: SyncPolicy
) -> CalendarState | None:
    """Return the state of an organizer without credentials, whose calendar is to be read in full once they
    work again; None if that is requested already."""
    if state is None:
        return CalendarState(
            calendar_id=organizer, asked=1, due_at=now + timedelta(seconds=policy.attention_s), failures=1,
            status="unreachable", unmapped_at=now, error=error[:ERROR_CHARACTERS_MAX],
        )  # fmt: skip
    pending = not state.sync_token and state.asked > state.taken
    return None if pending else request_sync(state, now, full=True)


def record_notification(
    state: CalendarState, now: datetime, *, received_at: datetime, number: int, gap_s: float
) -> CalendarState:
    """Request a sync for a notification, unless one that covers it is requested or was done."""
    # A sync that began since has seen the change. Clocks of two machines may differ a little.
    skewed = received_at + timedelta(seconds=SKEW_S)
    seen = state.began_at is not None and skewed <= state.began_at <= now
    fresh = state.notified_at is not None and (now - state.notified_at).total_seconds() < NOTED_EVERY_S
    if seen or (fresh and state.asked > state.taken):
        return state
    return replace(request_sync(state, now, gap_s=gap_s), notified_at=now, message_number=number)


def begin_sync(state: CalendarState, now: datetime) -> CalendarState:
    """Begin a sync: requests from here on cause another."""
    return replace(state, taken=state.asked, began_at=now)


class SyncOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a sync: the next sync token, and what it did to events."""

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
) -> CalendarState | None:
    """Complete the sync that began with `start`; None for a calendar no longer mapped, which is deleted."""
    # A full sync was requested while it ran: the next must not go on from the place this one reached.
    if state.generation == start.generation:
        state = replace(state, sync_token=outcome.sync_token, former_secondaries=[])
    again = state.asked > state.taken
    if state.unmapped_at is not None and not again:
        return None
    poll_at = now + timedelta(seconds=policy.poll_s * (1 - spread / 10))
    due_at = earliest_start(state, now, policy.gap_s) if again else poll_at
    return replace(
        state, due_at=due_at, owner="", synced_at=now, syncs=state.syncs + 1,
        status="fine", failures=0, error="",
        results=[*reversed(outcome.results[-RESULTS_MAX:]), *state.results][:RESULTS_MAX],
    )  # fmt: skip


def fail_sync(
    state: CalendarState,
    fault: Exception,
    *,
    now: datetime,
    policy: SyncPolicy,
    spread: float,
    waiting: int = 0,
) -> CalendarState | None:
    """Retry after growing, spread waits; without credentials as `waiting` others allow, and, for a calendar
    that is not mapped, not for ever."""
    failures = state.failures + 1
    error = (str(fault) or type(fault).__name__)[:ERROR_CHARACTERS_MAX]
    if isinstance(fault, ReauthRequiredError):
        if state.unmapped_at is not None and now - state.unmapped_at > timedelta(days=UNREACHABLE_DAYS_MAX):
            return None
        wait_s = policy.attention_wait_s(waiting, first=failures == 1)
        due_at = now + timedelta(seconds=wait_s * (1 - spread / 10))
        status: SyncStatus = "attention" if state.unmapped_at is None else "unreachable"
        return replace(state, status=status, due_at=due_at, owner="", failures=failures, error=error)
    wait_s = policy.back_off.wait_s(failures, spread)
    if isinstance(fault, RetryLaterError):
        wait_s = max(wait_s, fault.after_s)
    due_at = now + timedelta(seconds=wait_s)
    return replace(state, status="failing", due_at=due_at, owner="", failures=failures, error=error)
