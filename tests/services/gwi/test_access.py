"""Who may do what: the access table and the roles at every route, and no tenant sees another."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import console
from holdfast.clock import SystemClock
from holdfast.model import Document, schema_of
from holdfast.model.access import ROLES
from holdfast.runtime import documents_of
from holdfast.services.gwi import service
from holdfast.services.gwi.models import DOCUMENTS
from holdfast.services.gwi.models.runs import RequestRecord
from holdfast.services.gwi.models.tenants import Member
from holdfast.services.gwi.routes import ROUTES
from holdfast.store import create
from tests.http.callers import SAFE, expected, routes_of, visitors
from tests.http.issuer import StandIn, issuing
from tests.http.server_harness import ServerHarness, serving
from tests.http.tenant_documents import seed
from tests.http.test_doors import fits, status_of
from tests.http.test_tenant_isolation import EXAMPLES, Isolation, Question

# Who may do what, by the names of the acts.
ACTS: Final = {
    "person": ("tenant.created", "profile.changed", "member.joined"),
    "developer": (
        "run_started", "run_cancel*", "repo.configured", "instance.*", "schedule.*", "candidate.created",
        "candidate.revised", "candidate.vote*", "item*", "signal*",
    ),
    "admin": (
        "repo.connected", "repo.disconnected", "member.invited", "member.invite_cancelled", "member.removed",
        "tenant.settings_changed", "tenant.paused", "tenant.resumed", "policy.saved", "connector.*",
        "approval_*", "candidate.application_started", "template.*", "usage.*",
    ),
    "owner": (
        "tenant.plan_changed", "tenant.suspended", "tenant.activated", "tenant.deactivated",
        "tenant.deleted", "member.changed",
    ),
}  # fmt: skip
# The collection whose documents a path shows, by its last word; a person's own for `me` and `tenants`.
SHOWN: Final = {
    "tenant": "gwi_tenants", "settings": "gwi_tenants", "policy": "gwi_tenants",
    "members": "gwi_memberships", "invites": "gwi_invites", "repos": "repos", "repo_id": "repos",
    "runs": "gwi_runs", "run_id": "gwi_runs", "steps": "steps", "logs": "logs", "stats": "gwi_runs",
    "audit": "gwi_audit_events", "approvals": "gwi_approvals", "usage": "gwi_usage_snapshots",
    "aggregate": "gwi_usage_daily", "check": "gwi_usage_snapshots", "signals": "signals",
    "queue": "work_items", "item_id": "work_items", "candidates": "pr_candidates",
    "candidate_id": "pr_candidates", "instances": "instances", "instance_id": "instances",
    "schedules": "schedules", "signal_id": "signals", "run-stats": "gwi_run_totals",
}  # fmt: skip
GROUPS: Final = {schema_of(cls).path.names[-1]: cls for cls in DOCUMENTS}
MINE, THEIRS = "gh-org-1", "gh-org-2"
MARKERS: Final = {MINE: "Mark-mine-5d21", THEIRS: "Mark-theirs-9c47"}
# Words of a person's own, and settings of connectors, which only admins see and nobody reads as stored.
OTHERS: Final = {"me": "person", "tenants": "person", "connectors": "admin", "config": "admin"}


def _last_word(path: str) -> str:
    return re.sub(r"[{}]|:\w+\}", "", path.rpartition("/")[2])


@pytest.mark.parametrize(
    "route", ROUTES, ids=lambda route: f"{sorted(route.http_methods)} {min(route.paths)}"
)
def test_a_route_needs_what_the_access_table_and_the_roles_say(route: Any) -> None:
    path, needs, declared = min(route.paths), route.opt["needs"], route.opt.get("operation")
    in_path = path.startswith(("/tenants/{", "/v1/tenants/{"))
    assert bool(route.opt.get("tenant")) == in_path, "a role counts in the tenant that the path names"
    if declared is not None:
        (role,) = [
            one for one, acts in ACTS.items() if any(fnmatchcase(declared.action, act) for act in acts)
        ]
        assert declared.needs == role, declared.action
        # A path without a tenant is about a document that has it; the operation asks for the role there.
        assert needs == role if in_path or declared.platform else needs in ("person", "viewer")
        assert route.opt["idempotent"].kind is RequestRecord, "it takes no Idempotency-Key"
    elif route.http_methods == {"GET"} and in_path and _last_word(path) not in OTHERS:
        read = schema_of(GROUPS[SHOWN[_last_word(path)]]).access.read
        assert needs == next(role for role in ROLES if role in read)
    elif in_path:
        assert needs == OTHERS.get(_last_word(path), "viewer")


def _member(user_id: str, tenant_id: str, role: Any) -> Document:
    now = SystemClock().now()
    return Member(user_id=user_id, tenant_id=tenant_id, role=role, created_at=now, updated_at=now)


@pytest.fixture
async def issuer() -> AsyncIterator[StandIn]:
    async with issuing(SystemClock()) as made:
        yield made


async def test_every_route_answers_every_kind_of_caller_as_it_declares(
    tmp_path: Path, issuer: StandIn
) -> None:
    async with serving(
        tmp_path, services=[service], more=console.routes, oidc=[issuer.settings()]
    ) as harness:
        callers = await visitors(harness, issuer, _member)
        routes = [route for route in routes_of(harness) if "/gwi" in route.path]
        wrong = []
        for (name, visitor), route in itertools.product(callers.items(), routes):
            status, wanted = await status_of(harness, route, visitor), expected(route, visitor)
            # An invitation that is none is refused to everybody.
            if not fits(status, wanted, route) and not (status == 403 and "/invites/{token" in route.path):
                wrong.append(f"{name} at {route.name}: {status}, not {wanted or 'let in'}")
        assert not wrong, "\n".join(wrong)


@pytest.fixture
async def isolation(tmp_path: Path, issuer: StandIn) -> AsyncIterator[Isolation]:
    async with serving(
        tmp_path, services=[service], more=console.routes, oidc=[issuer.settings()]
    ) as harness:
        store, classes = harness.runtime.store, documents_of([service])
        ids = {name: await seed(store, classes, name, marker=mark) for name, mark in MARKERS.items()}
        for role in ("viewer", "owner"):
            await store.tenant(MINE).commit(create(_member(f"oidc:{role}@people.example", MINE, role)))
        yield Isolation(harness, ids, await _callers(harness, issuer))


async def _callers(harness: ServerHarness, issuer: StandIn) -> dict[str, dict[str, str]]:
    tokens = {
        **{role: issuer.token(email=f"{role}@people.example") for role in ("viewer", "owner")},
        "stranger": issuer.token(email="eve@people.example"),
        "token of the owner": await harness.token("owner", MINE),
    }
    return {"nobody": {}} | {name: {"authorization": f"Bearer {one}"} for name, one in tokens.items()}


async def test_an_owner_sees_their_own_tenant_and_no_byte_of_another(isolation: Isolation) -> None:
    shown, wrong = set(), []
    for path in (path for path in isolation.paths if "/gwi" in path):
        names = re.findall(r"\{(\w+):\w+\}", path)
        for tenant_id, ids in itertools.product((MINE, THEIRS), isolation.ids[THEIRS].values()):
            known = {name: tenant_id if name == "tenant" else ids for name in names}
            wrong += await _leaks(isolation, Question(path, "owner", known, {}))
        for ids in set(isolation.ids[MINE].values()):
            known = {name: MINE if name == "tenant" else ids for name in names}
            _, text = await isolation.ask(Question(path, "owner", known, {}))
            shown |= {path} if MARKERS[MINE] in text else set()
            if set(names) <= {"tenant"}:
                break
    assert not wrong, "\n".join(wrong[:20])
    assert len(shown) > 8, sorted(shown)


async def _leaks(isolation: Isolation, question: Question) -> list[str]:
    status, text = await isolation.ask(question)
    leaked = MARKERS[THEIRS].lower() in text.lower() or status >= 500
    return [f"{status} {question}"] if leaked else []


async def test_no_answer_holds_a_byte_of_another_tenant(isolation: Isolation) -> None:
    loop = asyncio.get_running_loop()
    paths = [path for path in isolation.paths if "/gwi" in path]
    values = sorted({*isolation.ids[THEIRS].values(), *isolation.ids[MINE].values(), THEIRS, MINE, "-", "*"})
    queries = st.dictionaries(
        st.sampled_from(["tenant", "cursor", "status", "repo", "type", "limit", "month", "q"]),
        st.sampled_from([*values, "1", "2026-11"]),
        max_size=3,
    )

    @given(st.data())
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def never(data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(paths))
        names = re.findall(r"\{(\w+):\w+\}", path)
        ids = {name: data.draw(st.sampled_from(values), label=name) for name in names}
        caller = data.draw(st.sampled_from(sorted(isolation.callers)))
        question = Question(path, caller, ids, data.draw(queries))
        asked = asyncio.run_coroutine_threadsafe(_leaks(isolation, question), loop)
        assert asked.result(timeout=60) == []

    await asyncio.to_thread(never)


def test_every_mutating_route_calls_an_operation_or_changes_nothing() -> None:
    changing = {
        f"{method} {path}"
        for route in ROUTES
        for path in route.paths
        for method in route.http_methods - set(SAFE)
        if route.opt.get("operation") is None
    }
    assert changing <= {"POST /tenants/{tenant:str}/policy/validate"}
