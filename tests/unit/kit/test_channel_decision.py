"""What a watch needs next, and its names, without a store."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import (
    ForbiddenError,
    InvalidError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
)
from holdfast.kit.channels import decision
from holdfast.kit.channels.decision import ChannelPolicy, Cleanup, Idle, Open, Step, Stop, decide
from holdfast.kit.channels.ids import channel_id, format_duration, watch_id_of, watch_ids
from holdfast.kit.channels.models import OpenChannel, Watch

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
LIFE = ChannelPolicy()


def watch(**words: Any) -> Watch:
    said: dict[str, Any] = {"id": "sync-a", "name": "sync", "watched_id": "a"} | words
    return Watch(**said)


def held(id: str = "sync-a-1", *, left: timedelta = 48 * HOUR, retry: timedelta | None = None) -> OpenChannel:
    retry_at = None if retry is None else NOW + retry
    return OpenChannel(channel_id=id, ends_at=NOW + left, resource_id="r", retry_at=retry_at)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (watch(), Open()),
        (watch(retry_at=NOW + HOUR), Idle(NOW + HOUR)),
        (watch(retry_at=NOW), Open()),
        (watch(status="attention"), Idle(None)),
        (watch(current=held(), renew_at=NOW + HOUR), Idle(NOW + HOUR)),
        (watch(current=held(), renew_at=NOW), Open()),
        (watch(current=held(), renew_at=NOW, retry_at=NOW + HOUR), Idle(NOW + HOUR)),
        (watch(current=held(left=HOUR), status="attention"), Idle(NOW + HOUR)),
        (watch(current=held(left=0 * HOUR), renew_at=NOW), Cleanup()),
        (watch(opening=held()), Cleanup()),
        (watch(leaving=[held()], retry_at=NOW + HOUR), Stop((held(),))),
        (watch(leaving=[held()]), Open()),
        (watch(leaving=[held(retry=HOUR)], retry_at=NOW + 2 * HOUR), Idle(NOW + HOUR)),
        (watch(wanted=False, leaving=[held()]), Stop((held(),))),
        (watch(wanted=False), Idle(None)),
    ],
)
def test_the_next_step_follows_from_the_state(state: Watch, step: Step) -> None:
    assert decide(state, NOW) == step


@pytest.mark.parametrize(
    ("fault", "may_be_open"),
    [
        (RetryLaterError("quota"), False),
        (ForbiddenError("not yours"), False),
        (InvalidError("no such calendar"), False),
        (OutcomeUnknownError("link broke"), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
    ],
)
def test_only_a_clear_refusal_means_that_nothing_was_opened(fault: Exception, may_be_open: bool) -> None:
    begun = decision.begin_open(watch(), NOW, LIFE)
    assert begun.opening is not None
    after = decision.fail_open(begun, fault, now=NOW, life=LIFE, spread=0.5)
    assert [one.channel_id for one in after.leaving] == ([begun.opening.channel_id] if may_be_open else [])
    assert after.opening is None
    assert after.retry_at is not None
    assert after.retry_at > NOW


def test_lost_credentials_leave_the_channel_that_still_lives() -> None:
    begun = decision.begin_open(watch(current=held(), renew_at=NOW), NOW, LIFE)
    after = decision.fail_open(begun, ReauthRequiredError("gone"), now=NOW, life=LIFE, spread=0.5)
    assert (after.status, after.current, after.retry_at) == ("attention", held(), None)
    assert decide(decision.update_status(after, NOW), NOW) == Idle(held().ends_at)


def test_a_provider_that_gives_short_lives_is_not_asked_all_the_time() -> None:
    short = OpenChannel(channel_id="sync-a-2", ends_at=NOW + HOUR, resource_id="r")
    after = decision.complete_open(watch(), short, key_id="k", now=NOW, life=LIFE, spread=1.0)
    assert after.renew_at == NOW + HOUR / 2


def test_of_too_many_half_opened_channels_the_soonest_to_end_are_left_to_it() -> None:
    state = watch()
    for _ in range(decision.LEAVING_MAX + 5):
        state = decision.clean_up(decision.begin_open(state, NOW, LIFE), NOW)
    assert len(state.leaving) == decision.LEAVING_MAX
    assert len({one.channel_id for one in state.leaving}) == decision.LEAVING_MAX


class _Steps:
    """Random outcomes of random steps; remembers what may be open."""

    def __init__(self) -> None:
        self.state, self.now = watch(), NOW
        self.may_be_open: dict[str, datetime] = {}
        self.used: set[str] = set()

    def take(self, outcome: int) -> None:
        step = decide(self.state, self.now)
        if isinstance(step, Cleanup):
            self.state = decision.clean_up(self.state, self.now)
        elif isinstance(step, Open):
            self._open(outcome)
        elif isinstance(step, Stop):
            self._stop(step, outcome)
        elif step.until is not None:
            assert step.until > self.now, "rest must end later, or the worker spins"
            self.now = step.until
        self.state = decision.update_status(self.state, self.now)

    def _open(self, outcome: int) -> None:
        self.state = decision.begin_open(self.state, self.now, LIFE)
        opening = self.state.opening
        assert opening is not None
        assert opening.channel_id not in self.used, "an id is used once"
        self.used.add(opening.channel_id)
        faults = [ReauthRequiredError("x"), RetryLaterError("x", after_s=7), TimeoutError()]
        if outcome == 3:  # the process dies here
            self.may_be_open[opening.channel_id] = opening.ends_at
        elif outcome < 3:
            if outcome == 2:
                self.may_be_open[opening.channel_id] = opening.ends_at
            self.state = decision.fail_open(
                self.state, faults[outcome], now=self.now, life=LIFE, spread=0.5
            )  # fmt: skip
        else:
            new = OpenChannel(channel_id=opening.channel_id, ends_at=self.now + 168 * HOUR, resource_id="r")
            self.may_be_open[new.channel_id] = new.ends_at
            self.state = decision.complete_open(
                self.state, new, key_id="k", now=self.now, life=LIFE, spread=0.5
            )

    def _stop(self, step: Stop, outcome: int) -> None:
        for one in step.channels:
            if outcome % 2:
                self.may_be_open.pop(one.channel_id, None)
                self.state = decision.complete_stop(self.state, [one.channel_id])
            else:
                self.state = decision.fail_stop(
                    self.state, one.channel_id, TimeoutError(), now=self.now, life=LIFE, spread=0.5
                )

    def ask(self, what: int) -> None:
        changes = (decision.enable, decision.disable, decision.request_renewal)
        self.state = decision.update_status(changes[what](self.state, self.now), self.now)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 7)), max_size=60))
def test_whatever_may_be_open_is_known_until_it_ends(moves: list[tuple[int, int]]) -> None:
    steps = _Steps()
    for ask, outcome in moves:
        if ask < 3:
            steps.ask(ask)
        steps.take(outcome)
        for id, ends_at in steps.may_be_open.items():
            assert ends_at <= steps.now or decision.has_channel(steps.state, id)


# -- names ----------------------------------------------------------------------------------------


@given(st.text(max_size=100), st.sampled_from(["-", "acme", "gh-org-1"]))
def test_every_address_gives_ids_that_providers_take(address: str, tenant_id: str) -> None:
    for id in watch_ids("x" * 30, tenant_id, address.encode("utf-8", "replace").decode()):
        whole = channel_id(id, 1_767_225_600_000)
        assert re.fullmatch(r"[A-Za-z0-9\-_+/=]{1,64}", whole)
        assert watch_id_of(whole) == id


def test_an_address_that_fits_is_spelled_as_the_format_says() -> None:
    assert watch_ids("calendar-sync", "-", "alice@hoge.jp")[0] == "calendar-sync-alice-hoge-jp"


@given(st.sets(st.emails(), min_size=2, max_size=20))
def test_second_ids_never_meet(addresses: set[str]) -> None:
    assert len({watch_ids("sync", "-", one)[1] for one in addresses}) == len(addresses)
    assert watch_ids("sync", "a", "x@y.z")[1] != watch_ids("sync", "b", "x@y.z")[1]


def test_long_addresses_that_differ_at_their_end_get_first_ids_of_their_own() -> None:
    long = [f"{'x' * 60}{n}@hoge.jp" for n in range(100)]
    assert len({watch_ids("calendar-sync", "-", one)[0] for one in long}) == 100


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0m"), (-5, "0m"), (59, "0m"), (60, "1m"), (3_600, "1h 0m"), (86_400, "1d 0h 0m"),
     (6 * 86_400 + 12 * 3_600 + 34 * 60 + 59, "6d 12h 34m")],
)  # fmt: skip
def test_time_left_is_told_in_days_hours_and_minutes(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
