"""Operators list, replay and cancel deliveries of any outbox, each act on record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from holdfast.errors import ConflictError, ForbiddenError, HoldfastError, NotFoundError
from holdfast.operation import Operator
from holdfast.operations import deliveries
from holdfast.runtime import Runtime
from tests.operations.outboxes import TENANT, Setting

Act = Callable[[Runtime, Operator, str, str], Awaitable[object]]


async def test_each_outbox_lists_its_own_deliveries(setting: Setting) -> None:
    tree, pier = await setting.endpoint(), await setting.endpoint("harbour", "pier-1")
    await setting.deliver(tree, "e1")
    await setting.deliver(pier, "e2", outbox="harbour")
    listed = {
        name: [one.id for one in (await deliveries.list_deliveries(setting.runtime, TENANT, name)).items]
        for name in setting.runtime.outboxes
    }
    assert listed == {"holdfast": [], "orchard": ["e1~tree-1"], "harbour": ["e2~pier-1"]}
    with pytest.raises(NotFoundError, match="no outbox 'cellar'; there are holdfast, orchard, harbour"):
        await deliveries.list_deliveries(setting.runtime, TENANT, "cellar")


async def test_a_detail_has_the_fields_that_a_services_own_class_adds(setting: Setting) -> None:
    id = await setting.deliver(await setting.endpoint(), "e1")
    shown = await deliveries.detail(setting.runtime, TENANT, "orchard", id)
    assert (shown.outbox, shown.about, shown.body) == ("orchard", {"basket": "b1"}, "{}")


async def test_a_delivery_is_found_by_its_id_and_by_its_events(setting: Setting) -> None:
    await setting.deliver(await setting.endpoint(), "e1")
    for wanted, count in (("e1~tree-1", 1), ("e1", 1), ("none", 0), ("a/b", 0)):
        rows = await deliveries.find_by_id(setting.runtime, TENANT, "orchard", wanted)
        assert [one.id for one in rows] == ["e1~tree-1"] * count, wanted


async def test_a_replay_is_in_one_commit_with_its_audit_event(setting: Setting) -> None:
    id = await setting.deliver(await setting.endpoint(), "e1")
    await setting.kill(id)
    assert (await deliveries.replay(setting.runtime, setting.by(), "orchard", id)).replayed
    assert await setting.status(id) == "pending"
    # In flight already: nothing is done, and nothing is on record.
    assert not (await deliveries.replay(setting.runtime, setting.by(), "orchard", id)).replayed
    assert await setting.trail() == [("delivery.replayed", "user:ann", id, "done")]


async def test_a_waiting_delivery_is_cancelled_and_can_be_replayed(setting: Setting) -> None:
    id = await setting.deliver(await setting.endpoint(), "e1")
    assert (await deliveries.cancel(setting.runtime, setting.by(), "orchard", id)).status == "cancelled"
    assert (await deliveries.replay(setting.runtime, setting.by(), "orchard", id)).replayed
    assert await setting.status(id) == "pending"
    assert [one[:1] for one in await setting.trail()] == [("delivery.cancelled",), ("delivery.replayed",)]


async def test_cancelling_the_head_of_an_ordered_endpoint_makes_the_next_one_due(setting: Setting) -> None:
    tree = await setting.endpoint(fifo=True)
    first, second = await setting.deliver(tree, "e1"), await setting.deliver(tree, "e2")
    assert (await deliveries.get(setting.runtime, TENANT, "orchard", second)).next_attempt_at is None
    await deliveries.cancel(setting.runtime, setting.by(), "orchard", first)
    assert (await deliveries.get(setting.runtime, TENANT, "orchard", second)).next_attempt_at is not None


async def test_a_delivery_that_is_being_sent_is_not_cancelled(setting: Setting) -> None:
    id = await setting.deliver(await setting.endpoint(), "e1")
    await setting.move(id, "sending")
    with pytest.raises(ConflictError, match="is sending; only one that waits can be cancelled"):
        await deliveries.cancel(setting.runtime, setting.by(), "orchard", id)
    assert await setting.status(id) == "sending"
    assert await setting.trail() == [("delivery.cancelled", "user:ann", id, "failed")]


@pytest.mark.parametrize("act", [deliveries.replay, deliveries.cancel])
async def test_an_unknown_id_and_a_lower_role_are_refused_and_on_record(
    setting: Setting, act: object
) -> None:
    assert callable(act)
    id = await setting.deliver(await setting.endpoint(), "e1")
    with pytest.raises(NotFoundError, match="no delivery 'none'"):
        await act(setting.runtime, setting.by(), "orchard", "none")
    with pytest.raises(ForbiddenError, match="needs admin"):
        await act(setting.runtime, setting.by("developer", user="user:ben"), "orchard", id)
    assert [one[1:] for one in await setting.trail()] == [
        ("user:ann", "none", "failed"),
        ("user:ben", id, "refused"),
    ]
    assert await setting.status(id) == "pending"


async def test_what_cant_be_put_on_record_is_not_done(setting: Setting) -> None:
    tree = await setting.endpoint()
    waiting, dead = await setting.deliver(tree, "e1"), await setting.deliver(tree, "e2")
    await setting.kill(dead)
    await setting.block_trail()
    for act, id in ((deliveries.cancel, waiting), (deliveries.replay, dead)):
        with pytest.raises(HoldfastError):
            await act(setting.runtime, setting.by(), "orchard", id)
    assert [await setting.status(id) for id in (waiting, dead)] == ["pending", "dead"]
