"""Operators manage the endpoints of any outbox, each act on record."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from holdfast.errors import (
    AlreadyExistsError,
    BadIdError,
    ConflictError,
    DeclarationError,
    ForbiddenError,
    HoldfastError,
    InvalidError,
    NotFoundError,
)
from holdfast.kit.outbox import Event, Outbox, Rate
from holdfast.operation import Operator
from holdfast.operations import deliveries, endpoints
from holdfast.operations.endpoints import EndpointSettings, NewEndpoint, SkippedCount
from holdfast.runtime import Runtime
from tests.kit.receiver import OK, answering, serving
from tests.operations.outboxes import HARBOUR, ORCHARD, SERVICES, TENANT, Setting, outbox_service

URL: Final = "https://tree.example/hook"
Act = Callable[[Runtime, Operator], Awaitable[Any]]
ACTS: Final[dict[str, Act]] = {
    "endpoint.updated": lambda r, by: endpoints.update(r, by, "orchard", "tree-1", EndpointSettings(url=URL)),
    "endpoint.paused": lambda r, by: endpoints.pause(r, by, "orchard", "tree-1", reason="frost"),
    "endpoint.resumed": lambda r, by: endpoints.resume(r, by, "orchard", "tree-1"),
    "endpoint.disabled": lambda r, by: endpoints.disable(r, by, "orchard", "tree-1", reason="felled"),
    "endpoint.enabled": lambda r, by: endpoints.enable(r, by, "orchard", "tree-1"),
    "endpoint.secret_rotated": lambda r, by: endpoints.rotate(r, by, "orchard", "tree-1"),
    "endpoint.tested": lambda r, by: endpoints.send_test(r, by, "orchard", "tree-1"),
    "endpoint.deleted": lambda r, by: endpoints.delete(r, by, "orchard", "tree-1"),
}


async def _ids(setting: Setting, outbox: str) -> list[str]:
    return [one.id for one in (await endpoints.list_endpoints(setting.runtime, TENANT, outbox)).items]


async def test_an_endpoint_is_created_with_a_secret_that_is_shown_once(setting: Setting) -> None:
    new = NewEndpoint(id="tree-1", url=URL, rate_per_s=2.5)
    made = await endpoints.create(setting.runtime, setting.by(), "orchard", new)
    assert made.secret is not None
    assert made.secret.startswith("whsec_")
    # What the outbox is for, unless told otherwise.
    assert (made.event_types, made.secrets, made.rate_per_s) == (["apple.picked"], 1, 2.5)
    shown = await endpoints.get(setting.runtime, TENANT, "orchard", "tree-1")
    assert (shown.secret, shown.status, shown.notices) == (None, "active", [])
    assert await setting.trail() == [("endpoint.created", "user:ann", "tree-1", "done")]
    assert (await _ids(setting, "orchard"), await _ids(setting, "harbour")) == (["tree-1"], [])


async def test_an_endpoint_without_an_id_gets_one(setting: Setting) -> None:
    made = await endpoints.create(setting.runtime, setting.by(), "harbour", NewEndpoint(url=URL))
    assert (await _ids(setting, "harbour"), made.event_types) == ([made.id], [])
    assert [one[2] for one in await setting.trail()] == [made.id]


async def test_an_id_that_is_taken_or_of_no_use_to_the_service_is_refused(setting: Setting) -> None:
    await setting.endpoint()
    for id, fault in (("tree-1", AlreadyExistsError), ("weed-1", NotFoundError), ("a~b", BadIdError)):
        with pytest.raises(fault):
            await endpoints.create(setting.runtime, setting.by(), "orchard", NewEndpoint(id=id, url=URL))
    assert await _ids(setting, "orchard") == ["tree-1"]
    assert {one[3] for one in await setting.trail()} == {"failed"}


async def test_settings_that_nothing_could_be_sent_with_are_refused(setting: Setting) -> None:
    wrong: list[dict[str, Any]] = [
        {"url": "ftp://tree.example"}, {"url": "https://"}, {"url": URL, "concurrency": 0},
        {"url": URL, "concurrency": 1_001}, {"url": URL, "rate_per_s": 0.0},
        {"url": URL, "rate_per_s": math.nan}, {"url": URL, "rate_per_s": 1e9},
        {"url": URL, "event_types": ["two words"]}, {"url": URL, "event_types": ["*.picked"]},
        {"url": URL, "event_types": [""]},
    ]  # fmt: skip
    await setting.endpoint()
    for fields in wrong:
        with pytest.raises(InvalidError):
            await endpoints.create(setting.runtime, setting.by(), "orchard", NewEndpoint(**fields))
        with pytest.raises(InvalidError):
            await endpoints.update(
                setting.runtime, setting.by(), "orchard", "tree-1", EndpointSettings(**fields)
            )
    assert await _ids(setting, "orchard") == ["tree-1"]


async def test_an_update_changes_the_settings_alone(setting: Setting) -> None:
    before = await setting.endpoint(rate=Rate(50.0, burst=20))
    settings = EndpointSettings(
        url="https://tree.example/new", concurrency=3, rate_per_s=50.0, event_types=["apple.*", "pear.eaten"]
    )
    shown = await endpoints.update(setting.runtime, setting.by(), "orchard", "tree-1", settings)
    assert (shown.url, shown.concurrency, shown.event_types) == (
        "https://tree.example/new", 3, ["apple.*", "pear.eaten"],
    )  # fmt: skip
    stored = await setting.store.get(ORCHARD.endpoint, "tree-1")
    assert stored is not None
    assert (stored.doc.rate, stored.doc.secrets) == (Rate(50.0, burst=20), before.secrets)
    assert await setting.trail() == [("endpoint.updated", "user:ann", "tree-1", "done")]


async def test_states_change_with_a_notice_and_only_where_they_change_anything(setting: Setting) -> None:
    await setting.endpoint()
    await setting.endpoint("harbour", "tree-1")
    runtime, ann = setting.runtime, setting.by()
    steps: list[tuple[str, str]] = [
        ("endpoint.paused", "paused"), ("endpoint.paused", "paused"), ("endpoint.resumed", "active"),
        ("endpoint.disabled", "disabled"), ("endpoint.enabled", "active"),
    ]  # fmt: skip
    for action, status in steps:
        assert (await ACTS[action](runtime, ann)).status == status
    shown = await endpoints.get(runtime, TENANT, "orchard", "tree-1")
    assert [(one.kind, one.reason, one.by) for one in shown.notices] == [
        ("enabled", "", "user:ann"), ("disabled", "felled", "user:ann"), ("resumed", "", "user:ann"),
        ("paused", "frost", "user:ann"),
    ]  # fmt: skip
    assert [one[0] for one in await setting.trail()] == [
        "endpoint.paused", "endpoint.resumed", "endpoint.disabled", "endpoint.enabled",
    ]  # fmt: skip
    assert (await endpoints.get(runtime, TENANT, "harbour", "tree-1")).notices == []


async def _skipped(setting: Setting, count: int) -> list[str]:
    """Events for a disabled endpoint, and one of a type that it does not take; it is enabled again."""
    made = await setting.endpoint(status="disabled", event_types=["apple.*"])
    missed = [await setting.deliver(made, f"e{number}") for number in range(count)]
    await ACTS["endpoint.enabled"](setting.runtime, setting.by())
    other = Event(type="pear.eaten", body=b"{}", id="other", fields={"basket": "b1"})
    await Outbox(setting.store, models=ORCHARD).send(other, [replace(made, status="active")])
    return missed


async def test_what_was_skipped_while_disabled_is_replayed_but_not_what_it_does_not_take(
    setting: Setting,
) -> None:
    missed, (runtime, ann) = await _skipped(setting, 120), (setting.runtime, setting.by())
    assert await endpoints.skipped_count(runtime, TENANT, "orchard", "tree-1") == SkippedCount(120, False)
    would = await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1")
    assert (would.matched, would.changed, would.dry_run) == (120, 0, True)
    some = await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1", dry_run=False, limit=5)
    did = await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1", dry_run=False)
    again = await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1", dry_run=False)
    assert (some.changed, did.changed, again.matched) == (5, 115, 0)
    assert {await setting.status(id) for id in missed} == {"pending"}
    assert await setting.status("other~tree-1") == "skipped"
    assert (await setting.trail())[1:] == [("endpoint.skipped_replayed", "user:ann", "tree-1", "done")] * 3


async def test_what_an_ordered_endpoint_missed_is_replayed_in_its_order(setting: Setting) -> None:
    made = await setting.endpoint(status="disabled", fifo=True)
    missed = [await setting.deliver(made, f"e{number}") for number in (3, 1, 2)]
    await ACTS["endpoint.enabled"](setting.runtime, setting.by())
    report = await endpoints.replay_skipped(setting.runtime, setting.by(), "orchard", "tree-1", dry_run=False)
    assert (report.changed, list(report.sample)) == (3, missed)
    stored = [one for one in await setting.store.get_many(ORCHARD.delivery, missed) if one is not None]
    assert [one.doc.next_attempt_at is not None for one in stored] == [True, False, False]


async def test_what_was_skipped_is_replayed_only_to_an_endpoint_that_takes_events(setting: Setting) -> None:
    (id,) = await _skipped(setting, 1)
    runtime, ann = setting.runtime, setting.by()
    await ACTS["endpoint.disabled"](runtime, ann)
    assert (await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1")).matched == 1
    with pytest.raises(ConflictError, match="enable it"):
        await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1", dry_run=False)
    await ACTS["endpoint.enabled"](runtime, ann)
    with pytest.raises(NotFoundError):
        await endpoints.replay_skipped(runtime, ann, "orchard", "tree-2", dry_run=False)
    with pytest.raises(ForbiddenError, match="needs admin"):
        await endpoints.replay_skipped(runtime, setting.by("developer"), "orchard", "tree-1", dry_run=False)
    assert [one[3] for one in await setting.trail()][-3:] == ["done", "failed", "refused"]
    await setting.block_trail()
    with pytest.raises(HoldfastError):
        await endpoints.replay_skipped(runtime, ann, "orchard", "tree-1", dry_run=False)
    assert await setting.status(id) == "skipped"


async def test_a_rotation_shows_the_new_secret_and_keeps_the_old_one_for_a_while(setting: Setting) -> None:
    await setting.endpoint()
    rotated = await endpoints.rotate(setting.runtime, setting.by(), "orchard", "tree-1")
    assert rotated.secret is not None
    assert rotated.secrets == 2
    stored = await setting.store.get(ORCHARD.endpoint, "tree-1")
    assert stored is not None
    assert [one.expires_at is None for one in stored.doc.secrets] == [True, False]
    assert await setting.trail() == [("endpoint.secret_rotated", "user:ann", "tree-1", "done")]


async def test_a_test_event_goes_to_the_endpoint_alone_and_is_signed(setting: Setting) -> None:
    async with serving(answering(OK)) as receiver:
        await setting.endpoint(url=receiver.url(), event_types=["apple.picked"])
        await setting.endpoint(id="tree-2", url=receiver.url())
        sent = await endpoints.send_test(setting.runtime, setting.by(), "orchard", "tree-1")
        assert (sent.event_type, sent.endpoint_id, sent.status) == ("holdfast.test", "tree-1", "pending")
        assert await setting.runtime.drain(20)
        (received,) = receiver.requests
    assert received.headers["webhook-id"] == sent.event_id
    assert "webhook-signature" in received.headers
    assert await setting.status(sent.id) == "delivered"
    assert await setting.trail() == [("endpoint.tested", "user:ann", "tree-1", "done")]
    # The types it takes are as they were.
    assert (await endpoints.get(setting.runtime, TENANT, "orchard", "tree-1")).event_types == ["apple.picked"]


async def test_nothing_is_sent_to_a_disabled_endpoint_to_test_it(setting: Setting) -> None:
    await setting.endpoint(status="disabled")
    with pytest.raises(ConflictError, match="is disabled; enable it"):
        await endpoints.send_test(setting.runtime, setting.by(), "orchard", "tree-1")
    every = await deliveries.list_deliveries(
        setting.runtime, TENANT, "orchard", statuses=["pending", "skipped"]
    )
    assert every.items == []


@pytest.mark.parametrize("fifo", [False, True])
async def test_deleting_cancels_what_waits_and_keeps_what_is_finished(setting: Setting, fifo: bool) -> None:
    tree = await setting.endpoint(fifo=fifo)
    ids = [await setting.deliver(tree, f"e{number}") for number in range(4)]
    await setting.kill(ids[0])
    done = await endpoints.delete(setting.runtime, setting.by(), "orchard", "tree-1")
    assert (done.cancelled, await _ids(setting, "orchard")) == (3, [])
    assert [await setting.status(id) for id in ids] == ["dead", "cancelled", "cancelled", "cancelled"]
    assert await setting.store.get(ORCHARD.fifo_lane, "tree-1") is None
    cancels = ["deliveries.cancelled"] * (3 if fifo else 1)
    trail = await setting.trail()
    assert [one[0] for one in trail] == ["endpoint.disabled", *cancels, "endpoint.deleted"]
    assert {one[2:] for one in trail} == {("tree-1", "done")}
    await setting.endpoint(fifo=fifo)


async def test_an_endpoint_that_is_being_sent_to_is_disabled_but_not_deleted(setting: Setting) -> None:
    id = await setting.deliver(await setting.endpoint(), "e1")
    await setting.move(id, "sending")
    with pytest.raises(ConflictError, match="is being sent"):
        await endpoints.delete(setting.runtime, setting.by(), "orchard", "tree-1")
    assert (await endpoints.get(setting.runtime, TENANT, "orchard", "tree-1")).status == "disabled"
    assert [(one[0], one[3]) for one in await setting.trail()] == [
        ("endpoint.disabled", "done"),
        ("endpoint.deleted", "failed"),
    ]


@pytest.mark.parametrize("action", ACTS)
async def test_unknown_ids_and_lower_roles_are_refused_and_on_record(setting: Setting, action: str) -> None:
    runtime = setting.runtime
    with pytest.raises(NotFoundError, match="no endpoint 'tree-1'"):
        await ACTS[action](runtime, setting.by())
    before = await setting.endpoint()
    with pytest.raises(ForbiddenError, match="needs admin"):
        await ACTS[action](runtime, setting.by("developer", user="user:ben"))
    assert await setting.trail() == [
        (action, "user:ann", "tree-1", "failed"),
        (action, "user:ben", "tree-1", "refused"),
    ]
    stored = await setting.store.get(ORCHARD.endpoint, "tree-1")
    assert stored is not None
    assert stored.doc == before


CREATION: Final[dict[str, Act]] = {
    "endpoint.created": lambda r, by: endpoints.create(r, by, "orchard", NewEndpoint(id="tree-2", url=URL))
}


@pytest.mark.parametrize("action", [*ACTS, *CREATION])
async def test_what_cant_be_put_on_record_is_not_done(setting: Setting, action: str) -> None:
    status = {"endpoint.resumed": "paused", "endpoint.enabled": "disabled"}.get(action, "active")
    before = await setting.endpoint(status=status)
    await setting.block_trail()
    with pytest.raises(HoldfastError):
        await (ACTS | CREATION)[action](setting.runtime, setting.by())
    assert await _ids(setting, "orchard") == ["tree-1"]
    stored = await setting.store.get(ORCHARD.endpoint, "tree-1")
    assert stored is not None
    assert stored.doc == before
    assert (await deliveries.list_deliveries(setting.runtime, TENANT, "orchard")).items == []


async def test_two_outboxes_cant_share_a_name_or_a_class(setting: Setting) -> None:
    config, store, vault = setting.runtime.config, setting.runtime.store, setting.runtime.vault
    same = outbox_service("harbour", HARBOUR), outbox_service("harbour", ORCHARD)
    named = [replace(one, name=name) for one, name in zip(same, ("one", "two"), strict=True)]
    with pytest.raises(DeclarationError, match="two outboxes are named 'harbour'"):
        Runtime(config, store, named, vault=vault)
    shared = outbox_service("cellar", ORCHARD)
    with pytest.raises(DeclarationError, match="outbox 'cellar' shares OwnEndpoint with 'orchard'"):
        Runtime(config, store, [*SERVICES, shared], vault=vault)
