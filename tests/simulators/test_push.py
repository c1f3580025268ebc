"""Push channels over real HTTP: what is told, in which order, how often, and when no more."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

import pytest

from holdfast.errors import InvalidError
from holdfast.providers.google_calendar import PushChannel
from holdfast.simulators.google import ListChannels, Pushes
from holdfast.simulators.google.channels import SimulatedChannel
from tests.kit.receiver import OK, Serving, answering, serving
from tests.providers.provider_fixture import ALICE, HastyClock, Setting

ACCEPTED = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
FAILING = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"
REFUSING = b"HTTP/1.1 404 Not here\r\ncontent-length: 0\r\n\r\n"


async def _watch(
    setting: Setting, hook: Serving, channel_id: str = "chan-1", *, until: str = ""
) -> PushChannel:
    asked = PushChannel(id=channel_id, address=hook.url(), token="tok=1", expiration=until)
    return await setting.calendar().watch_events("primary", asked)


def _told(hook: Serving) -> list[tuple[str, int]]:
    headers = [request.headers for request in hook.requests]
    return [(one["X-Goog-Resource-State"], int(one["X-Goog-Message-Number"])) for one in headers]


def _channel(setting: Setting) -> SimulatedChannel:
    channels = setting.google.run(ListChannels())
    assert isinstance(channels, list)
    assert len(channels) == 1
    assert isinstance(channels[0], SimulatedChannel)
    return channels[0]


async def test_the_first_message_is_sync_number_one_and_each_change_has_a_greater_number(
    setting: Setting,
) -> None:
    async with serving(answering(OK)) as hook:
        await _watch(setting, hook)
        for _ in range(3):
            setting.event()
        await setting.google.wait_for_pushes()
    states, numbers = zip(*_told(hook), strict=True)
    assert states == ("sync", "exists", "exists", "exists")
    assert numbers[0] == 1
    assert list(numbers) == sorted(set(numbers))


async def test_a_message_is_an_empty_post_with_the_documented_headers(setting: Setting) -> None:
    async with serving(answering(OK)) as hook:
        channel = await _watch(setting, hook)
        await setting.google.wait_for_pushes()
    (request,) = hook.requests
    assert (request.line, request.body) == ("POST /hook?x=1 HTTP/1.1", b"")
    assert request.headers["X-Goog-Channel-ID"] == "chan-1"
    assert request.headers["X-Goog-Channel-Token"] == "tok=1"
    assert request.headers["X-Goog-Resource-ID"] == channel.resource_id
    assert request.headers["X-Goog-Resource-URI"] == channel.resource_uri
    expires = parsedate_to_datetime(request.headers["X-Goog-Channel-Expiration"])
    assert expires.timestamp() * 1000 == channel.expiration_ms


async def test_a_server_error_is_tried_again_with_growing_waits(setting: Setting, hasty: HastyClock) -> None:
    async with serving(answering(FAILING, FAILING, ACCEPTED)) as hook:
        await _watch(setting, hook)
        await setting.google.wait_for_pushes()
    assert _told(hook) == [("sync", 1)] * 3
    assert hasty.slept == [1.0, 2.0]
    assert (_channel(setting).delivered, _channel(setting).failed) == (1, 0)


async def test_a_refusal_is_not_tried_again(setting: Setting, hasty: HastyClock) -> None:
    async with serving(answering(REFUSING)) as hook:
        await _watch(setting, hook)
        await setting.google.wait_for_pushes()
    assert (_told(hook), hasty.slept, _channel(setting).failed) == ([("sync", 1)], [], 1)


async def test_a_receiver_that_stays_away_is_given_up(setting: Setting, hasty: HastyClock) -> None:
    async with serving(answering(OK)) as hook:
        pass
    await _watch(setting, hook)
    await setting.google.wait_for_pushes()
    assert (len(hasty.slept), _channel(setting).failed) == (6, 1)


async def test_a_stopped_channel_is_told_nothing_more(setting: Setting) -> None:
    async with serving(answering(OK)) as hook:
        channel = await _watch(setting, hook)
        await setting.calendar().stop_channel(channel.id, channel.resource_id)
        setting.event()
        await setting.google.wait_for_pushes()
    assert [state for state, _ in _told(hook)] == ["sync"]
    assert _channel(setting).state == "stopped"


async def test_an_expired_channel_is_told_nothing_more(setting: Setting, hasty: HastyClock) -> None:
    async with serving(answering(OK)) as hook:
        await _watch(setting, hook)
        await setting.google.wait_for_pushes()
        hasty.tick(7 * 24 * 3_600)
        setting.event()
        await setting.google.wait_for_pushes()
    assert [state for state, _ in _told(hook)] == ["sync"]
    assert _channel(setting).state == "expired"


async def test_a_channel_may_be_asked_to_live_shorter(setting: Setting) -> None:
    async with serving(answering(OK)) as hook:
        asked = PushChannel(id="short", address=hook.url(), params={"ttl": "60"})
        channel = await setting.calendar().watch_events("primary", asked)
        await setting.google.wait_for_pushes()
    assert channel.expiration_ms == setting.clock.now_us() // 1000 + 60_000


async def test_two_channels_on_one_calendar_are_both_told(setting: Setting) -> None:
    async with serving(answering(OK)) as hook:
        old, new = await _watch(setting, hook, "old"), await _watch(setting, hook, "new")
        setting.event()
        await setting.google.wait_for_pushes()
    told = [request.headers["X-Goog-Channel-ID"] for request in hook.requests]
    assert sorted(told) == ["new", "new", "old", "old"]
    assert old.resource_id == new.resource_id


async def test_a_push_can_be_dropped_doubled_or_late(setting: Setting, hasty: HastyClock) -> None:
    async with serving(answering(OK)) as hook:
        await _watch(setting, hook)
        await setting.google.wait_for_pushes()
        setting.google.run(Pushes(act="drop"))
        setting.google.run(Pushes(act="double"))
        setting.google.run(Pushes(act="delay", delay_s=30))
        for _ in range(3):
            setting.event()
        await setting.google.wait_for_pushes()
    numbers = [number for state, number in _told(hook) if state == "exists"]
    assert len(numbers) == 3
    assert numbers[0] == numbers[1] < numbers[2]
    assert hasty.slept == [30]


@pytest.mark.parametrize("until", ["1000", "soon"])
async def test_a_life_that_is_over_before_it_begins_is_refused(setting: Setting, until: str) -> None:
    async with serving(answering(OK)) as hook:
        with pytest.raises(InvalidError):
            await _watch(setting, hook, until=until)
    assert hook.requests == []


async def test_somebody_elses_change_on_a_shared_event_is_told_too(setting: Setting) -> None:
    async with serving(answering(OK)) as hook:
        await _watch(setting, hook)
        setting.event("bob@hoge.jp", attendees=[{"email": ALICE}])
        setting.event("bob@hoge.jp")
        await setting.google.wait_for_pushes()
    assert [state for state, _ in _told(hook)] == ["sync", "exists"]
