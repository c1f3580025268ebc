"""The console pages of an organisation, its members and its policy: what they show to whom."""

from __future__ import annotations

from holdfast.services.gwi.operations.connectors import ConnectorChange
from holdfast.services.gwi.operations.members import NewInvite
from holdfast.services.gwi.operations.policies import PolicyChange
from tests.services.gwi.harness import TENANT, Harness
from tests.services.gwi.test_work_pages import visiting

API = f"/gwi/tenants/{TENANT}"


async def test_an_organisation_shows_plan_settings_and_repositories_by_role(quick_harness: Harness) -> None:
    harness = quick_harness
    change = ConnectorChange(secrets={"token": "s3cret"})
    await harness.gwi.connectors.configure(harness.by("olga"), "jira", change)
    controls = {
        f'data-form="{API}/settings"': "admin", f'data-act="{API}/pause"': "admin",
        f'data-form="{API}/repos:connect"': "admin", f'data-form="{API}/plan"': "owner",
        f'data-act="{API}/suspend"': "owner", "jira": "admin",
    }  # fmt: skip
    roles = ("viewer", "developer", "admin", "owner")
    for role in roles:
        async with visiting(harness, role) as visitor:
            shown = await visitor.page("/organisation")
            assert "acme/shop" in shown
            assert "s3cret" not in shown
            for control, needed in controls.items():
                assert (control in shown) == (roles.index(role) >= roles.index(needed)), (role, control)
            await visitor.page("/members", status=200 if role in ("admin", "owner") else 403)


async def test_members_and_pending_invitations_are_listed(quick_harness: Harness) -> None:
    sent = await quick_harness.gwi.members.invite(
        quick_harness.by("olga"), NewInvite(email="new@people.example")
    )
    async with visiting(quick_harness, "admin") as admin:
        shown = await admin.page("/members")
        assert "new@people.example" in shown
        assert sent.token not in shown
        assert f'data-act="{API}/members/vera"' in shown
        assert "Make owner" not in shown
    async with visiting(quick_harness, "owner") as owner:
        assert "Make owner" in await owner.page("/members")


async def test_the_policy_is_edited_by_admins_and_shows_its_errors(quick_harness: Harness) -> None:
    change = PolicyChange(document={"rules": [{"name": "half a rule"}]})
    async with visiting(quick_harness, "viewer") as viewer:
        assert "No policy was saved" in await viewer.page("/policy")
        await quick_harness.gwi.policies.save(quick_harness.by("adam"), change)
        shown = await viewer.page("/policy")
        assert "half a rule" in shown
        assert "missing required field `effect`" in shown
        assert ">Save<" not in shown
    async with visiting(quick_harness, "admin") as admin:
        shown = await admin.page("/policy")
        assert ">Save<" in shown
        # Somebody else's version since the page was loaded is not overwritten.
        assert 'name="version" data-number value="1"' in shown
