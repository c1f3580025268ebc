"""People and what they did are found by what somebody knows of their names."""

from __future__ import annotations

import json
import re
from pathlib import Path

from holdfast.kit.audit import AuditEntry
from tests.console.console_harness import console

ROW = re.compile(r'<tr data-key="([^"]+)"')


async def test_people_are_found_by_a_part_of_their_name_on_the_page_and_by_the_api(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        ann = await harness.signed_in("ann@acme.example")
        for name in ("joanna@zoo.example", "ben@zoo.example"):
            await harness.person(name, role="viewer")
        assert ROW.findall(await ann.page("/console/users?q=ANN")) == [
            "joanna@zoo.example",
            "ann@acme.example",
        ]
        assert "Nobody has dora in their name." in await ann.page("/console/users?q=dora")
        listed = json.loads(await ann.page("/api/v1/users?name=zoo"))["items"]
        assert [one["name"] for one in listed] == ["ben@zoo.example", "joanna@zoo.example"]


async def test_the_audit_trail_is_filtered_by_an_actor_without_the_prefix(tmp_path: Path) -> None:
    async with console(tmp_path) as harness:
        ann = await harness.signed_in("ann")
        trail = harness.runtime.audit("-")
        actors = ("user:bea", "token:bea", "cli:bea", "user:beatrix", "bea", "user:ann")
        for actor in actors:
            await trail.append(AuditEntry(action="tree.felled", actor=actor))
        for asked, count in (("bea", 4), ("user:bea", 1), ("beatrix", 1), ("be", 0)):
            assert len(ROW.findall(await ann.page(f"/console/audit?by=actor&value={asked}"))) == count, asked
            listed = json.loads(await ann.page(f"/api/v1/audit?actor={asked}"))["items"]
            assert len(listed) == count
