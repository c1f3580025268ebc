"""What administrators and their schedulers ask for: who may, what is done, what is told when some fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.kit.audit import Audit, AuditEvent
from holdfast.simulators.google import InjectedFault, RevokeAccess
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.http.issuer import StandIn, issuing
from tests.services.calendar_sync.harness import (
    ACTS,
    ALICE,
    ALICE2,
    BOB,
    BOB2,
    CAROL,
    CAROL2,
    Harness,
    calendar_harness,
)

DAY = 86_400

ROUTES = [("GET", "/admin/channel-status"), *(("POST", f"/admin/{act}") for act in ACTS)]


async def _trail(harness: Harness) -> list[AuditEvent]:
    page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("sequence"))
    assert (await Audit(harness.runtime.store, tenant_id="-").verify()).intact
    return page.docs


async def _act(harness: Harness, act: str, token: str, **body: Any) -> Any:
    status, answer, _ = await harness.ask("POST", f"/admin/{act}", token=token, json=body)
    assert status == 200, answer
    return answer


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[StandIn]:
    async with issuing(clock) as made:
        yield made


async def test_every_route_refuses_those_who_may_not(
    issuer: StandIn, one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    more = {"oidc": (issuer.settings(),)}
    async with calendar_harness(one_url, clock, tmp_path, more=more) as harness:
        await harness.begin()
        calls = len(harness.google.calls)
        expected = {
            "": 401, "hf_nonsense": 401, "not a token": 401,
            issuer.token(aud="https://other.example"): 401, issuer.token(exp=1): 401,
            issuer.token(iss="https://evil.example"): 401, issuer.token(email="mallory@else.org"): 403,
            issuer.token(email_verified=False): 403, issuer.forged_with_the_public_key(): 401,
            issuer.token(sub="s-acme", email=None): 403,
            await harness.token("viewer"): 403, await harness.token("developer"): 403,
            await harness.token("admin", "acme"): 403,
            await harness.token("admin", scopes=["deliveries:*"]): 403,
        }  # fmt: skip
        for method, path in ROUTES:
            for token, status in expected.items():
                got, body, _ = await harness.ask(
                    method, path, token=token, json={} if method == "POST" else None
                )
                assert got == status, (path, token[:40], body)
        assert len(harness.google.calls) == calls
        assert {event.outcome for event in await _trail(harness)} == {"refused"}


async def test_a_scheduler_with_an_identity_token_is_let_in_and_named(
    issuer: StandIn, one_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    more = {"oidc": (issuer.settings(),)}
    async with calendar_harness(one_url, clock, tmp_path, more=more) as harness:
        await harness.begin()
        await _act(harness, "renew-expiring-channels", issuer.token())
        trail = await _trail(harness)
        assert [event.action for event in trail] == [
            "calendar_sync.renewal_requested", "calendar_sync.channels_renewed"
        ]  # fmt: skip
        assert {event.actor for event in trail} == {"oidc:timer@project.iam.example"}


async def test_a_dry_run_tells_and_changes_nothing(harness: Harness) -> None:
    await harness.begin()
    token = await harness.token()
    calls = len(harness.google.calls)
    before = {channel.channel_id for channel in await harness.channels()}
    told = await _act(
        harness, "renew-expiring-channels", token, dryRun=True, expirationThreshold=8 * DAY * 1000
    )
    assert told["summary"] == {"total": 2, "renewed": 2, "skipped": 0, "failed": 0}
    assert {one["calendarId"] for one in told["renewed"]} == {ALICE, BOB}
    assert {channel.channel_id for channel in await harness.channels()} == before
    assert len(harness.google.calls) == calls
    told = await _act(harness, "renew-expiring-channels", token)
    assert told["summary"]["total"] == 0, "none ends within a day"


async def test_expiring_channels_are_renewed_and_each_is_told(harness: Harness) -> None:
    await harness.begin()
    old = {channel.watched_id: channel for channel in await harness.channels()}
    token = await harness.token()
    told = await _act(harness, "renew-expiring-channels", token, expirationThreshold=8 * DAY * 1000)
    new = {channel.watched_id: channel for channel in await harness.channels()}
    for one in told["renewed"]:
        calendar = one["calendarId"]
        assert one["channelId"] == old[calendar].channel_id
        assert one["oldExpiration"] == old[calendar].expiration
        assert (one["newChannelId"], one["newExpiration"]) == (
            new[calendar].channel_id, new[calendar].expiration
        )  # fmt: skip
        assert one["duration"] >= 0
    assert told["summary"] == {"total": 2, "renewed": 2, "skipped": 0, "failed": 0}
    requested, event = await _trail(harness)
    assert requested.details == {"expirationThreshold": 8 * DAY * 1000}
    assert event.details == {"total": 2, "renewed": 2, "skipped": 0, "failed": 0, "dryRun": False}


async def test_partial_failures_are_told_with_when_to_try_again(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.google.run(RevokeAccess(email=ALICE))
    harness.google.inject(InjectedFault(count=4, path="/watch", status=403, reason="quotaExceeded"))
    await harness.clock.advance(3_600)  # type: ignore[attr-defined]
    told = await _act(
        harness, "renew-expiring-channels", await harness.token(), expirationThreshold=8 * DAY * 1000
    )
    assert told["summary"] == {"total": 2, "renewed": 0, "skipped": 0, "failed": 2}
    by_calendar = {one["calendarId"]: one for one in told["failed"]}
    assert "invalid_grant" in by_calendar[ALICE]["error"]
    assert by_calendar[ALICE]["retryAfter"] is None
    assert "quotaExceeded" in by_calendar[BOB]["error"]
    assert by_calendar[BOB]["retryAfter"] >= 3_600
    assert harness.live() == [ALICE, BOB], "the old channels live on"


async def test_an_outside_scheduler_and_our_own_renew_once_together(harness: Harness) -> None:
    await harness.begin()
    token = await harness.token()
    await harness.clock.advance(6 * DAY + 3_600)  # type: ignore[attr-defined]
    await harness.engine.refresh()
    watches = sum(call.path.endswith("/watch") for call in harness.google.calls)
    (job,) = [
        one for one in harness.runtime.parts["calendar_sync"].jobs if one.name == "renew-watch-channels"
    ]
    slot: Any = None
    answers = await asyncio.gather(
        _act(harness, "renew-expiring-channels", token), job.act(slot),
        _act(harness, "renew-expiring-channels", token), harness.engine.channels.turn(),
    )  # fmt: skip
    await harness.work()
    assert sum(call.path.endswith("/watch") for call in harness.google.calls) == watches + 2
    assert harness.live() == [ALICE, BOB]
    assert all(answer["summary"]["failed"] == 0 for answer in (answers[0], answers[2]))
    again = await _act(harness, "renew-expiring-channels", token)
    assert again["summary"]["total"] == 0


async def test_everything_is_registered_anew_and_safe_to_repeat(harness: Harness) -> None:
    await harness.begin()
    harness.map({ALICE: [ALICE2], CAROL: [CAROL2]})
    await harness.engine.mappings.reload()
    old = {channel.channel_id for channel in await harness.channels()}
    token = await harness.token()
    told = await _act(harness, "force-register-channels", token, reason="moved to another project")
    assert (told["registered"], told["failed"], told["errors"]) == (2, 0, {})
    assert harness.live() == [ALICE, CAROL]
    await _act(harness, "force-register-channels", token)
    assert harness.live() == [ALICE, CAROL]
    assert not old & {channel.channel_id for channel in await harness.channels()}
    requested, done, *_ = await _trail(harness)
    assert (requested.action, done.action) == (
        "calendar_sync.registration_requested", "calendar_sync.channels_forced"
    )  # fmt: skip
    assert requested.details == {"reason": "moved to another project"}
    assert done.details["reason"] == "moved to another project"
    assert done.details["registered"] == 2


async def test_forcing_tells_counts_when_some_fail(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.begin()
    harness.google.run(RevokeAccess(email=BOB))
    await harness.clock.advance(3_600)  # type: ignore[attr-defined]
    told = await _act(harness, "force-register-channels", await harness.token())
    assert (told["registered"], told["stopped"], told["failed"]) == (1, 1, 1)
    assert "invalid_grant" in told["errors"][BOB]


async def test_a_stopped_channel_is_replaced_while_its_calendar_is_mapped(harness: Harness) -> None:
    await harness.begin()
    (channel, *_) = await harness.channels()
    token = await harness.token()
    told = await _act(harness, "stop-channel", token, channelId=channel.channel_id, reason="noisy")
    assert (told["stopped"], told["calendarId"]) == (True, channel.watched_id)
    assert told["replacedBy"] not in ("", channel.channel_id)
    assert harness.live() == [ALICE, BOB]
    (event,) = await _trail(harness)
    assert (event.subject, event.details["reason"]) == (channel.channel_id, "noisy")
    status, body, _ = await harness.ask(
        "POST", "/admin/stop-channel", token=token, json={"channelId": channel.channel_id}
    )
    assert (status, body["error"]["code"]) == (404, "not_found")
    status, _, _ = await harness.ask(
        "POST", "/admin/stop-channel", token=token, json={"channelId": "never-was"}
    )
    assert status == 404


async def test_mappings_are_reloaded_on_demand(harness: Harness) -> None:
    await harness.begin()
    token = await harness.token()
    harness.mappings.write_text(f"{ALICE},{ALICE2}\n{CAROL},nobody\n{BOB},{BOB2},off\n")
    told = await _act(harness, "reload-mappings", token)
    assert told["mappings"] == 2
    assert [row["row"] for row in told["badRows"]] == [2, 3]
    harness.mappings.unlink()
    status, body, _ = await harness.ask("POST", "/admin/reload-mappings", token=token)
    assert status == 422
    assert "can't be read" in body["error"]["message"]
    assert [(event.action, event.outcome) for event in await _trail(harness)] == [
        ("calendar_sync.reload_requested", "done"), ("calendar_sync.mappings_reloaded", "done"),
        ("calendar_sync.reload_requested", "done"), ("calendar_sync.reload_requested", "failed"),
    ]  # fmt: skip
    assert await harness.orders() == []


@pytest.mark.parametrize(
    ("status", "reason", "answer"),
    [
        (403, "PERMISSION_DENIED", 409),
        (404, "NOT_FOUND", 409),
        (400, "INVALID_ARGUMENT", 422),
        (429, "", 503),
    ],
)
async def test_what_the_sheet_answers_is_told_and_is_no_fault_of_ours(
    one_url: str, clock: ManualClock, tmp_path: Path, status: int, reason: str, answer: int
) -> None:
    async with calendar_harness(one_url, clock, tmp_path, settings={"mappings": "sheet:1AbC"}) as harness:
        harness.google.inject(
            InjectedFault(count=9, path="/values/", status=status, reason=reason, retry_after_s=3_600)
        )
        got, body, _ = await harness.ask("POST", "/admin/reload-mappings", token=await harness.token())
        assert got == answer, body


async def test_while_mappings_are_loading_the_answer_is_to_come_back(quick_harness: Harness) -> None:
    token = await quick_harness.token()
    for act in ("renew-expiring-channels", "force-register-channels"):
        status, body, headers = await quick_harness.ask("POST", f"/admin/{act}", token=token)
        assert (status, headers["retry-after"]) == (503, "5")
        assert body["error"]["code"] == "retry_later"


@pytest.mark.parametrize(
    ("act", "body"),
    [
        ("renew-expiring-channels", b"{"),
        ("renew-expiring-channels", b'{"dryRun": "yes"}'),
        ("renew-expiring-channels", b'{"expirationThreshold": -1}'),
        ("renew-expiring-channels", b'{"expirationThreshold": 1e400}'),
        ("renew-expiring-channels", b'{"dryrun": true}'),
        ("renew-expiring-channels", b"[]"),
        ("renew-expiring-channels", b"\xff"),
        ("force-register-channels", b'{"reason": 7}'),
        ("force-register-channels", b'{"reason": "' + b"x" * 501 + b'"}'),
        ("stop-channel", b"{}"),
        ("stop-channel", b'{"channelId": ""}'),
        ("stop-channel", b'{"channelId": "a b"}'),
        ("stop-channel", b'{"channelId": "' + b"x" * 65 + b'"}'),
    ],
    ids=str,
)
async def test_bad_bodies_are_refused_and_do_nothing(quick_harness: Harness, act: str, body: bytes) -> None:
    harness = quick_harness
    await harness.begin()
    calls = len(harness.google.calls)
    status, answer, _ = await harness.ask("POST", f"/admin/{act}", token=await harness.token(), data=body)
    assert (status, answer["error"]["code"]) == (422, "invalid")
    assert len(harness.google.calls) == calls
