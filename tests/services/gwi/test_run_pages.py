"""Console pages of runs and usage."""

from __future__ import annotations

from pathlib import Path

from holdfast.services.gwi import service
from holdfast.services.gwi.models.runs import AgentRun, ProposedChange, RunEffect
from holdfast.store import patch
from tests.console.console_harness import console
from tests.services.gwi.run_harness import TENANT, RunHarness, a_request

ROOT = "/console/gwi"


async def test_runs_and_usage_are_shown(tmp_path: Path) -> None:
    async with console(tmp_path, services=[service]) as pages:
        harness = RunHarness(pages.runtime, pages.runtime.clock)
        await harness.found()
        ann = await pages.signed_in("ann")
        of = f"?tenant={TENANT}"
        assert "No runs." in await ann.page(f"{ROOT}/runs{of}")
        assert "No run waits for approval." in await ann.page(f"{ROOT}/approvals{of}")
        run = await harness.gwi.runs.start_run(harness.by(), a_request("autopilot", title="Raise <it>"))
        changes = {
            "approval_status": "pending",
            "proposed_changes": [ProposedChange(file="src/price.py", action="modify", diff="-1\n+2")],
            "effects": [RunEffect(kind="branch_created", url="https://github.example/acme")],
        }
        await harness.store.commit(patch(AgentRun, run.id, changes=changes))
        listed = await ann.page(f"{ROOT}/runs{of}&status=pending&type=autopilot")
        assert "Raise &lt;it&gt;" in listed
        assert run.id in await ann.page(f"{ROOT}/runs{of}&repo=gh-repo-42")
        assert "src/price.py" in await ann.page(f"{ROOT}/approvals{of}")
        shown = await ann.page(f"{ROOT}/runs/{run.id}{of}")
        assert all(text in shown for text in ("Timeline", "src/price.py", "run started", "branch created"))
        await harness.gwi.runs.cancel(harness.by(), run.id, reason="enough")
        assert "Only organisations use runs." in await ann.page(f"{ROOT}/usage")
        for page in ("organisation", "members"):
            assert "This tenant is no organisation." in await ann.page(f"{ROOT}/{page}")
        assert "Runs this month" in await ann.page(f"{ROOT}/usage{of}")
        assert "Nothing was used" in await ann.page(f"{ROOT}/usage{of}&month=2020-01")
        assert "a month is written" in await ann.page(f"{ROOT}/usage{of}&month=x", status=422)
