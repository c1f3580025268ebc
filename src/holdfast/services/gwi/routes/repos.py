"""Repositories, connectors and the policy over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId
from holdfast.services.gwi.domain.policy import (
    PolicyDecision,
    PolicyRequest,
    decide_policy,
    policy_errors,
    read_policy,
)
from holdfast.services.gwi.models.tenants import Repo, TenantPolicy
from holdfast.services.gwi.operations.connectors import (
    ConnectorChange,
    ConnectorOperations,
    ConnectorView,
    connector_view,
)
from holdfast.services.gwi.operations.policies import PolicyChange, PolicyOperations
from holdfast.services.gwi.operations.repos import NewRepo, RepoChange, RepoOperations
from holdfast.services.gwi.routes.dependencies import (
    TENANT,
    TENANT_PATH,
    Operations,
    action_route,
    call_route,
    delete_route,
    put_route,
    read_route,
)

_REPO: Final = f"{TENANT_PATH}/repos/{{repo_id:str}}"
_CONNECTOR: Final = f"{TENANT_PATH}/connectors/{{connector_id:str}}/config"


class ReposResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of repositories."""

    repos: list[Repo]
    cursor: str | None


class ConnectRequest(RequestBody, frozen=True):
    """Repositories to connect, all or none."""

    repos: Annotated[list[NewRepo], Meta(min_length=1, max_length=100)]


class ConnectorsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of connectors."""

    connectors: list[ConnectorView]
    cursor: str | None


class ValidateRequest(PolicyChange, frozen=True):
    """A policy to check, as it would be saved, and a change to judge by it."""

    change: PolicyRequest | None = None


class ValidateResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a policy is valid, why not, and what it decides about the change."""

    valid: bool
    errors: list[str]
    decision: PolicyDecision | None = None


@read_route(f"{TENANT_PATH}/repos", tenant=TENANT)
async def repos(
    operations: Operations, tenant_id: TenantId, limit: Limit = 100, cursor: Cursor = None
) -> ReposResponse:
    """The repositories by name."""
    page = await operations.repos.page(tenant_id, limit=limit, cursor=cursor)
    return ReposResponse(repos=list(page.docs), cursor=page.cursor)


@action_route(f"{TENANT_PATH}/repos:connect", RepoOperations.connect, tenant=TENANT)
async def connect(operations: Operations, by: By, data: JSONBody[ConnectRequest]) -> ReposResponse:
    """Connect repositories, up to the plan's limit."""
    return ReposResponse(repos=await operations.repos.connect(by, data.repos), cursor=None)


@read_route(_REPO, tenant=TENANT)
async def repo(operations: Operations, tenant_id: TenantId, repo_id: FromPath[str]) -> Repo:
    """A repository."""
    return await operations.repos.get(tenant_id, repo_id)


@put_route(_REPO, RepoOperations.configure, tenant=TENANT)
async def configure_repo(
    operations: Operations, by: By, repo_id: FromPath[str], data: JSONBody[RepoChange]
) -> Repo:
    """Change the settings of a repository that are named; the others stay."""
    return await operations.repos.configure(by, repo_id, data)


@delete_route(_REPO, RepoOperations.disconnect, tenant=TENANT)
async def disconnect(operations: Operations, by: By, repo_id: FromPath[str]) -> Repo:
    """Disable a repository; its history stays."""
    return await operations.repos.disconnect(by, repo_id)


@read_route(f"{TENANT_PATH}/connectors", "admin", tenant=TENANT)
async def connectors(
    operations: Operations, tenant_id: TenantId, limit: Limit = 100, cursor: Cursor = None
) -> ConnectorsResponse:
    """The connectors by name, without their secrets."""
    page = await operations.connectors.page(tenant_id, limit=limit, cursor=cursor)
    return ConnectorsResponse(connectors=[connector_view(one) for one in page.docs], cursor=page.cursor)


@read_route(_CONNECTOR, "admin", tenant=TENANT)
async def connector(
    operations: Operations, tenant_id: TenantId, connector_id: FromPath[str]
) -> ConnectorView:
    """A connector's configuration, without its secrets."""
    return await operations.connectors.get(tenant_id, connector_id)


@put_route(_CONNECTOR, ConnectorOperations.configure, tenant=TENANT)
async def configure_connector(
    operations: Operations, by: By, connector_id: FromPath[str], data: JSONBody[ConnectorChange]
) -> ConnectorView:
    """Store a connector's configuration; secrets that are not sent stay."""
    return await operations.connectors.configure(by, connector_id, data)


@delete_route(_CONNECTOR, ConnectorOperations.remove, tenant=TENANT)
async def remove_connector(operations: Operations, by: By, connector_id: FromPath[str]) -> ConnectorView:
    """Delete a connector with its secrets."""
    return await operations.connectors.remove(by, connector_id)


@read_route(f"{TENANT_PATH}/policy", tenant=TENANT)
async def policy(operations: Operations, tenant_id: TenantId) -> TenantPolicy:
    """The policy; where none was saved, the usual one as version 0."""
    return await operations.policies.get(tenant_id)


@put_route(f"{TENANT_PATH}/policy", PolicyOperations.save, tenant=TENANT)
async def save_policy(operations: Operations, by: By, data: JSONBody[PolicyChange]) -> TenantPolicy:
    """Save a policy as the next version; one with errors is stored with them and does not apply."""
    return await operations.policies.save(by, data)


@call_route(f"{TENANT_PATH}/policy/validate", "viewer", action="read", tenant=TENANT)
async def validate_policy(data: JSONBody[ValidateRequest]) -> ValidateResponse:
    """Check a policy without saving it, and judge a change by it."""
    errors = policy_errors(data.document)
    decided = (
        None if errors or data.change is None else decide_policy(read_policy(data.document), data.change)
    )
    return ValidateResponse(valid=not errors, errors=errors, decision=decided)


ROUTES: Final[tuple[Any, ...]] = (
    repos, connect, repo, configure_repo, disconnect, connectors, connector, configure_connector,
    remove_connector, policy, save_policy, validate_policy,
)  # fmt: skip
