"""Metrics, health, backlog and doctor cover the outbox of every service."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from holdfast.cli.checkup.operations import dead_letters
from holdfast.http.metrics import Metrics
from holdfast.operations import endpoints
from tests.kit.receiver import OK, answering, serving
from tests.operations.outboxes import Setting

OUTBOXES = {"holdfast", "orchard", "harbour"}


async def _samples(setting: Setting) -> dict[tuple[str, ...], float]:
    text = (await Metrics().text(setting.runtime)).decode()
    return {
        (family.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_dead_letters_and_backlogs_are_told_by_outbox(setting: Setting) -> None:
    tree, pier = await setting.endpoint(), await setting.endpoint("harbour", "pier-1")
    await setting.kill(await setting.deliver(tree, "e1"))
    await setting.deliver(pier, "e2", outbox="harbour")
    samples = await _samples(setting)
    assert {name: samples["holdfast_dead_letters", name] for name in OUTBOXES} == {
        "holdfast": 0, "orchard": 1, "harbour": 0,
    }  # fmt: skip
    queues = ("outbox", "orchard.deliveries", "harbour.deliveries")
    assert [samples["holdfast_queue_depth", queue] for queue in queues] == [0, 0, 1]
    check = await dead_letters(setting.runtime)
    assert (check.fine, check.message) == (False, "not replayed or resolved: 1 in outbox orchard")
    assert "holdfast dlq list --outbox orchard" in check.remedy


async def test_the_dispatcher_of_every_outbox_runs_and_is_counted(setting: Setting) -> None:
    async with serving(answering(OK)) as receiver:
        await setting.endpoint(url=receiver.url())
        await setting.endpoint("harbour", "pier-1", url=receiver.url())
        for outbox, endpoint_id in (("orchard", "tree-1"), ("harbour", "pier-1")):
            await endpoints.send_test(setting.runtime, setting.by(), outbox, endpoint_id)
        assert await setting.runtime.drain(20)
    samples = await _samples(setting)
    delivered = {name: samples["holdfast_deliveries_since_start", name, "delivered"] for name in OUTBOXES}
    assert delivered == {"holdfast": 0, "orchard": 1, "harbour": 1}
    facts = (await setting.runtime.health()).facts["outboxes"]
    assert {name: one["delivered"] for name, one in facts.items()} == delivered
