"""The console pages of queue, items, signals and candidates: what they show to whom."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from yarl import URL

from holdfast.console import routes
from holdfast.http.app import create_app
from holdfast.kit.access import Sessions, Users
from tests.services.gwi.harness import TENANT, Harness
from tests.services.gwi.test_candidates import a_candidate, a_patch
from tests.serving import served


class Visitor:
    """Somebody who is signed in to the console."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def page(self, path: str, *, status: int = 200) -> str:
        async with self._session.get(f"/console/gwi{path}", allow_redirects=False) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return text


@contextlib.asynccontextmanager
async def visiting(harness: Harness, role: str) -> AsyncIterator[Visitor]:
    store = harness.runtime.store
    user = await Users(store).add(f"a-{role}", role=role, tenant_id=TENANT)  # type: ignore[arg-type]
    cookie = await Sessions(store).begin(user)
    app = create_app(harness.runtime, more=routes(harness.runtime))
    async with served(uvicorn.Config(app, log_level="warning")) as address:
        jar = aiohttp.CookieJar(unsafe=True)
        jar.update_cookies({"holdfast_session": cookie}, URL(address))
        async with aiohttp.ClientSession(address, cookie_jar=jar) as session:
            yield Visitor(session)


async def test_members_see_the_queue_an_item_and_its_score(quick_harness: Harness) -> None:
    candidate = await a_candidate(quick_harness, "deploy.yaml")
    item = await quick_harness.gwi.queue.get(TENANT, candidate.work_item_id)
    async with visiting(quick_harness, "viewer") as viewer:
        queue = await viewer.page("")
        assert f"/console/gwi/items/{item.id}" in queue
        assert "acme/shop#1" in queue
        assert f"/console/gwi/items/{item.id}" not in await viewer.page("?status=dismissed")
        assert "No such work items" in await viewer.page("?type=docs_update&minScore=50")
        shown = await viewer.page(f"/items/{item.id}")
        assert "60 of 100: 50 for a GitHub issue" in shown
        assert f"/console/gwi/candidates/{candidate.id}" in shown
        assert f"/console/gwi/items/{item.id}" in await viewer.page("/signals?status=processed")
        assert "data-act" not in shown.partition("<main")[2].replace('data-act="/sign-out"', "")
        await viewer.page("/items/wi-none", status=404)
        await viewer.page("?minScore=1000", status=422)


async def test_a_candidate_shows_diff_risk_votes_and_receipt(quick_harness: Harness) -> None:
    candidate = await a_candidate(quick_harness, "deploy.yaml")
    await quick_harness.gwi.candidates.vote(quick_harness.by("dean"), candidate.id, decision="approved")
    async with visiting(quick_harness, "admin") as admin:
        assert candidate.id in await admin.page("/candidates?status=ready")
        shown = await admin.page(f"/candidates/{candidate.id}")
        assert '<span class="added">+print(&#39;sold&#39;)</span>' in shown
        assert "changes configuration: deploy.yaml" in shown
        assert "1 of 2 approvals by dean; risk high" in shown
        assert f'data-act="/gwi/v1/candidates/{candidate.id}/approve"' in shown
        assert f'data-act="/gwi/v1/candidates/{candidate.id}/apply"' not in shown
        await quick_harness.gwi.candidates.vote(quick_harness.by("adam"), candidate.id, decision="approved")
        shown = await admin.page(f"/candidates/{candidate.id}")
        assert f'data-act="/gwi/v1/candidates/{candidate.id}/apply"' in shown
        assert f'data-act="/gwi/v1/candidates/{candidate.id}/approve"' not in shown


async def test_a_draft_and_hostile_text_are_shown_as_text(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.signal("d1", title="<script>alert(1)</script>", body="<b>bold</b>")
    report = await harness.gwi.signals.process(harness.system)
    item_id = report.results[0].work_item_id
    async with visiting(harness, "developer") as developer:
        shown = await developer.page(f"/items/{item_id}")
        assert "<script>alert(1)" not in shown
        assert f'data-form="/gwi/v1/tenants/{TENANT}/queue/{item_id}/candidate"' in shown
        draft = await harness.gwi.candidates.create(harness.by("dora"), item_id)
        assert "There is no patch yet" in await developer.page(f"/candidates/{draft.id}")
        patch = a_patch("a.html", content="<script>\n</script>")
        await harness.gwi.candidates.revise(harness.by("dora"), draft.id, patch=patch)
        shown = await developer.page(f"/candidates/{draft.id}")
        assert "+&lt;script&gt;" in shown
