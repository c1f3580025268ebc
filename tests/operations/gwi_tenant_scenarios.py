"""Scenarios for what is done to a tenant of gwi, its people, repositories, connectors and policy."""

from __future__ import annotations

from holdfast.model import Caller
from holdfast.operation import Operator
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.connectors import ConnectorChange, ConnectorOperations
from holdfast.services.gwi.operations.members import MemberChange, MemberOperations, NewInvite
from holdfast.services.gwi.operations.policies import PolicyChange, PolicyOperations
from holdfast.services.gwi.operations.profiles import ProfileChange, ProfileOperations
from holdfast.services.gwi.operations.repos import NewRepo, RepoChange, RepoOperations
from holdfast.services.gwi.operations.tenants import NewTenant, SettingsChange, TenantOperations
from tests.operations.scenarios import World, scenario

ACME = NewTenant(github_org_id=77, github_org_login="acme")
TENANT = "gh-org-77"
SHOP = NewRepo(github_repo_id=5, github_full_name="acme/shop")


def _person(world: World, name: str) -> Operator:
    caller = Caller(user_id=f"oidc:{name}", email=f"{name}@people.example", roles={TENANT: "owner"})
    return world.runtime.operator(caller, TENANT)


async def _founded(world: World) -> tuple[Gwi, Operator]:
    gwi: Gwi = world.runtime.parts["gwi"].operations
    by = _person(world, "olga")
    await gwi.tenants.create(by, ACME)
    return gwi, by


@scenario(TenantOperations.create)
async def _(world: World) -> None:
    gwi: Gwi = world.runtime.parts["gwi"].operations
    await world.act(gwi.tenants.create(_person(world, "olga"), ACME))


@scenario(TenantOperations.change_settings)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.change_settings(by, SettingsChange(auto_run_on_conflict=True)))


@scenario(TenantOperations.pause)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.pause(by, reason="a release"))


@scenario(TenantOperations.resume)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await gwi.tenants.pause(by)
    await world.act(gwi.tenants.resume(by))


@scenario(TenantOperations.suspend)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.suspend(by))


@scenario(TenantOperations.activate)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await gwi.tenants.suspend(by)
    await world.act(gwi.tenants.activate(by))


@scenario(TenantOperations.deactivate)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.deactivate(by))


@scenario(TenantOperations.change_plan)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.change_plan(by, "pro"))


@scenario(TenantOperations.delete)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.tenants.delete(by, confirm="acme"))


@scenario(ProfileOperations.change)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.profiles.change(by, ProfileChange(theme="dark")))


@scenario(MemberOperations.invite)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.members.invite(by, NewInvite(email="ann@people.example")))


@scenario(MemberOperations.cancel_invite)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    sent = await gwi.members.invite(by, NewInvite(email="ann@people.example"))
    await world.act(gwi.members.cancel_invite(by, sent.invite.id))


async def _joined(world: World, gwi: Gwi, by: Operator) -> str:
    sent = await gwi.members.invite(by, NewInvite(email="ann@people.example"))
    return (await world.act(gwi.members.accept(_person(world, "ann"), sent.token))).user_id


@scenario(MemberOperations.accept)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await _joined(world, gwi, by)


@scenario(MemberOperations.change)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    member = await _joined(world, gwi, by)
    await world.act(gwi.members.change(by, member, MemberChange(role="admin")))


@scenario(MemberOperations.remove)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    member = await _joined(world, gwi, by)
    await world.act(gwi.members.remove(by, member))


@scenario(RepoOperations.connect)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.repos.connect(by, [SHOP]))


@scenario(RepoOperations.configure)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    (repo,) = await gwi.repos.connect(by, [SHOP])
    await world.act(gwi.repos.configure(by, repo.id, RepoChange(auto_triage=True)))


@scenario(RepoOperations.disconnect)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    (repo,) = await gwi.repos.connect(by, [SHOP])
    await world.act(gwi.repos.disconnect(by, repo.id))


@scenario(ConnectorOperations.configure)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.connectors.configure(by, "jira", ConnectorChange(secrets={"token": "t"})))


@scenario(ConnectorOperations.remove)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await gwi.connectors.configure(by, "jira", ConnectorChange())
    await world.act(gwi.connectors.remove(by, "jira"))


@scenario(PolicyOperations.save)
async def _(world: World) -> None:
    gwi, by = await _founded(world)
    await world.act(gwi.policies.save(by, PolicyChange(document={"rules": []})))
