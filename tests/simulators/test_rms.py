"""A receiver that behaves as badly as it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import aiohttp
import pytest
from standardwebhooks import Webhook

from holdfast.simulators.rms import Behave, InjectedFault, RmsSimulator, ShowCounts
from tests.providers.provider_fixture import HastyClock

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = '{"event":"renewal.risk_flagged"}'


@pytest.fixture
async def rms(hasty: HastyClock) -> AsyncIterator[RmsSimulator]:
    async with RmsSimulator(clock=hasty) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


class Sender:
    def __init__(self, session: aiohttp.ClientSession, rms: RmsSimulator) -> None:
        self._session = session
        self._rms = rms

    async def send(self, message_id: str, body: str = BODY, **headers: str) -> tuple[int, str | None]:
        sent = {"webhook-id": message_id} | {name.replace("_", "-"): text for name, text in headers.items()}
        url = self._rms.webhook_url("property-7")
        async with self._session.post(url, data=body, headers=sent) as response:
            return response.status, response.headers.get("Retry-After")

    async def control(self, command: str, **body: Any) -> Any:
        async with self._session.post(f"{self._rms.url}/_control/{command}", json=body) as response:
            return await response.json()


@pytest.fixture
def sender(session: aiohttp.ClientSession, rms: RmsSimulator) -> Sender:
    return Sender(session, rms)


async def test_what_came_in_is_kept_and_counted_and_a_repeat_is_seen(
    rms: RmsSimulator, sender: Sender
) -> None:
    assert [await sender.send(one) for one in ("evt-1", "evt-2", "evt-1")] == [(200, None)] * 3
    received = await sender.control("received")
    assert [(one["messageId"], one["repeated"]) for one in received] == [
        ("evt-1", False),
        ("evt-2", False),
        ("evt-1", True),
    ]
    assert (received[0]["path"], received[0]["body"]) == ("/webhooks/property-7", BODY)
    assert rms.run(ShowCounts()) == {"received": 3, "accepted": 2, "repeated": 1, "statuses": {"200": 3}}


async def test_a_share_of_the_messages_fails(rms: RmsSimulator, sender: Sender) -> None:
    await sender.control("behave", failureRate=0.3)
    for number in range(100):
        await sender.send(f"evt-{number}")
    failed = rms.state.statuses[503]
    assert 15 <= failed <= 45
    assert len(rms.state.accepted) == 100 - failed


@pytest.mark.parametrize(("status", "asked"), [(429, "7"), (503, "7"), (410, None), (400, None)])
async def test_the_next_messages_are_answered_as_planned(
    rms: RmsSimulator, sender: Sender, status: int, asked: str | None
) -> None:
    rms.inject(InjectedFault(count=2, status=status, retry_after_s=7))
    answers = [await sender.send("evt-1") for _ in range(3)]
    assert answers == [(status, asked), (status, asked), (200, None)]
    assert len(rms.state.received) == 1


async def test_an_answer_can_be_lost_after_the_message_was_taken(rms: RmsSimulator, sender: Sender) -> None:
    rms.inject(InjectedFault(cut=True, late=True))
    with pytest.raises(aiohttp.ClientError):
        await sender.send("evt-1")
    await sender.send("evt-1")
    assert rms.state.counts()["repeated"] == 1


async def test_a_link_can_be_reset_before_the_message_is_taken(rms: RmsSimulator, sender: Sender) -> None:
    rms.inject(InjectedFault(cut=True))
    with pytest.raises(aiohttp.ClientError):
        await sender.send("evt-1")
    assert rms.state.counts()["received"] == 0


async def test_it_can_hang_and_be_left(rms: RmsSimulator, session: aiohttp.ClientSession) -> None:
    rms.inject(InjectedFault(hang=True))
    with pytest.raises(TimeoutError):
        await session.post(rms.webhook_url("p"), data=BODY, timeout=aiohttp.ClientTimeout(total=0.1))
    assert rms.state.counts()["received"] == 0


async def test_it_can_be_slow(rms: RmsSimulator, sender: Sender, hasty: HastyClock) -> None:
    rms.run(Behave(delay_s=4))
    assert await sender.send("evt-1") == (200, None)
    assert hasty.slept == [4]


def _signed(at: datetime, body: str = BODY) -> dict[str, str]:
    signature = Webhook(SECRET).sign("evt-1", at, body)
    return {"webhook_timestamp": str(int(at.timestamp())), "webhook_signature": signature}


async def test_a_message_signed_by_the_standard_library_is_taken(
    rms: RmsSimulator, sender: Sender, hasty: HastyClock
) -> None:
    rms.run(Behave(secret=SECRET))
    assert await sender.send("evt-1", **_signed(hasty.now())) == (200, None)


async def test_while_a_secret_changes_either_is_taken(
    rms: RmsSimulator, sender: Sender, hasty: HastyClock
) -> None:
    rms.run(Behave(secret=f"whsec_{'A' * 32} {SECRET}"))
    assert await sender.send("evt-1", **_signed(hasty.now())) == (200, None)


async def test_a_message_that_is_not_proved_is_refused_and_kept_with_the_reason(
    rms: RmsSimulator, sender: Sender, hasty: HastyClock
) -> None:
    rms.run(Behave(secret=SECRET))
    good = _signed(hasty.now())
    old = _signed(datetime.fromisoformat("2025-12-31T00:00:00Z"))
    assert (await sender.send("evt-1"))[0] == 401
    assert (await sender.send("evt-1", body="{}", **good))[0] == 401
    assert (await sender.send("evt-1", **old))[0] == 401
    assert (await sender.send("evt-1", **good, x_webhook_signature="sha256=00"))[0] == 401
    assert [one.fault for one in rms.state.received] == [
        "webhook-id or webhook-timestamp is missing",
        "webhook-signature matches no secret",
        "webhook-timestamp is too far from now",
        "x-webhook-signature does not match the body",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"failureRate": 2}, {"failureStatus": 99}, {"failureStatus": 1000}, {"delayS": -1},
        {"retryAfterS": -1}, {"secret": "whsec_no base64!"},
    ],
    ids=["rate", "no status", "beyond statuses", "back in time", "before now", "secret"],
)  # fmt: skip
async def test_a_behaviour_that_nobody_could_have_is_refused(
    rms: RmsSimulator, sender: Sender, wrong: dict[str, Any]
) -> None:
    assert (await sender.control("behave", **wrong))["error"]
    assert rms.state.behaviour == Behave()
    assert await sender.send("evt-1") == (200, None)


async def test_a_reset_forgets_what_came_and_how_to_behave(rms: RmsSimulator, sender: Sender) -> None:
    rms.run(Behave(failure_rate=1.0))
    rms.inject(InjectedFault(status=500, count=9))
    await sender.send("evt-1")
    await sender.control("reset")
    assert await sender.send("evt-1") == (200, None)
    assert rms.state.counts()["received"] == 1
