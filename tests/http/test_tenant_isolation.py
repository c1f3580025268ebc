"""No answer of any GET route holds a byte of another tenant, whoever asks, and whatever they ask for."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from holdfast import console
from holdfast.clock import SystemClock
from holdfast.http.guard import declared_routes
from holdfast.kit.access import Sessions, Users
from holdfast.kit.access.sessions import COOKIE
from holdfast.runtime import find_services
from holdfast.runtime.document_registry import documents_of
from holdfast.store import create
from tests.examples.clubs import ClubMember
from tests.examples.clubs import service as clubs
from tests.http.issuer import StandIn, issuing
from tests.http.server_harness import ServerHarness, echo_service, serving
from tests.http.tenant_documents import seed

MINE, THEIRS = "acme", "other"
MARKERS: Final = {MINE: "Mark-acme-5d21", THEIRS: "Mark-other-9c47"}
EXAMPLES: Final = int(os.environ.get("HOLDFAST_TENANT_EXAMPLES", "150"))
OWNER: Final = "owner"


class Question(msgspec.Struct, frozen=True):
    path: str
    caller: str
    ids: Mapping[str, str]
    query: Mapping[str, str]


class Isolation:
    """A server with both tenants' documents, and people who may see only the first's."""

    def __init__(
        self, harness: ServerHarness, ids: Mapping[str, Mapping[str, str]], callers: Mapping[str, Any]
    ) -> None:
        self.harness, self.ids, self.callers = harness, ids, callers
        self.paths = sorted(
            path
            for path, method, handler in declared_routes(harness.surface.app)
            if method == "GET" and handler.opt.get("time_limit_s", 1) is not None and "/assets/" not in path
        )

    async def ask(self, question: Question) -> tuple[int, str]:
        """The status, and the whole answer without what was asked for."""
        path = re.sub(
            r"\{(\w+):\w+\}", lambda found: str(URL(question.ids.get(found[1], "none"))), question.path
        )
        headers = self.callers[question.caller]
        url = URL(path).with_query(dict(question.query))
        async with self.harness.client.get(url, headers=headers, allow_redirects=False) as answer:
            text = f"{dict(answer.headers)}\n{(await answer.read()).decode(errors='replace')}"
            for sent in (*question.ids.values(), *question.query.values()):
                text = text.replace(sent, "").replace(str(URL(sent)), "")
            return answer.status, text

    def ids_of(self, path: str, tenant_id: str) -> list[dict[str, str]]:
        """Ids of a tenant for the parameters of a path: of every class whose document it could mean."""
        names = re.findall(r"\{(\w+):\w+\}", path)
        plain = {"outbox": "holdfast", "collection": "holdfast_runs", "club_id": tenant_id, "number": "1"}
        if not set(names) - plain.keys():
            return [{name: plain[name] for name in names}]
        return [
            {name: plain.get(name, id) for name in names} for id in sorted(set(self.ids[tenant_id].values()))
        ]


@pytest.fixture
async def isolation(tmp_path: Path) -> AsyncIterator[Isolation]:
    clock = SystemClock()
    # gwi gives roles by its own memberships, as clubs do here: its tests have it as the one that does.
    others = [service for service in find_services() if service.name != "gwi"]
    services = [echo_service(), clubs, *others]
    async with (
        issuing(clock) as issuer,
        serving(tmp_path, services=services, more=console.routes, oidc=[issuer.settings()]) as harness,
    ):
        classes = documents_of(services)
        store = harness.runtime.store
        ids = {name: await seed(store, classes, name, marker=mark) for name, mark in MARKERS.items()}
        yield Isolation(harness, ids, await _callers(harness, issuer))


async def _callers(harness: ServerHarness, issuer: StandIn) -> dict[str, dict[str, str]]:
    """People and programs with every right in the one tenant, or with none in any."""
    store = harness.runtime.store
    await Users(store).add("mia", role="owner", tenant_id=MINE)
    session = await Sessions(store).begin(await Users(store).get("mia"))
    member = ClubMember(user_id="oidc:max@people.example", club_id=MINE, role="owner")
    await store.tenant(MINE).commit(create(member))
    tokens = {
        OWNER: await harness.token("owner", MINE),
        "viewer": await harness.token("viewer", MINE),
        "viewer of the platform": await harness.token("viewer"),
        "member": issuer.token(email="max@people.example"),
        "stranger": issuer.token(email="eve@people.example"),
    }
    visitor = await harness.runtime.visitors["clubs"].begin("vera")
    return {
        **{name: {"authorization": f"Bearer {token}"} for name, token in tokens.items()},
        "session": {"cookie": f"{COOKIE}={session}"},
        "visitor": {"cookie": f"clubs_visitor={visitor}"},
        "nobody": {},
    }


async def test_an_owner_of_one_tenant_sees_their_own_documents_and_none_of_another(
    isolation: Isolation,
) -> None:
    shown, wrong = set(), []
    for path in isolation.paths:
        for tenant, query in ((MINE, {}), (THEIRS, {}), (THEIRS, {"tenant": THEIRS})):
            for ids in isolation.ids_of(path, tenant):
                question = Question(path, OWNER, ids, query)
                status, text = await isolation.ask(question)
                if MARKERS[THEIRS].lower() in text.lower() or status >= 500:
                    wrong.append(f"{status} {question}")
                if MARKERS[MINE] in text:
                    shown.add(path)
    assert not wrong, "\n".join(wrong[:20])
    assert len(shown) > 15, sorted(shown)


async def test_no_answer_holds_a_byte_of_another_tenant(isolation: Isolation) -> None:
    loop = asyncio.get_running_loop()
    values = sorted(
        {*isolation.ids[THEIRS].values(), *isolation.ids[MINE].values(), MARKERS[THEIRS], "-", "*"}
    )
    queries = st.dictionaries(
        st.sampled_from(["tenant", "q", "cursor", "status", "id", "index", "limit", "outbox", "month"]),
        st.sampled_from([THEIRS, MINE, *values, "1", "2026-11"]),
        max_size=3,
    )

    @given(st.data())
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def never(data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(isolation.paths))
        names = re.findall(r"\{(\w+):\w+\}", path)
        known = [THEIRS, "holdfast", "holdfast_runs", "club_notes", *values]
        ids = {name: data.draw(st.sampled_from(known), label=name) for name in names}
        caller = data.draw(st.sampled_from(sorted(isolation.callers)))
        question = Question(path, caller, ids, data.draw(queries))
        asked = asyncio.run_coroutine_threadsafe(isolation.ask(question), loop)
        status, text = asked.result(timeout=60)
        assert MARKERS[THEIRS].lower() not in text.lower(), question
        assert status < 500, question

    await asyncio.to_thread(never)
