"""Routes for watch channels."""

from __future__ import annotations

from typing import Final

from litestar.params import FromPath

from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import channels
from holdfast.operations.channels import ChannelPage, ChannelRow
from holdfast.routing import By, Cursor, Limit, TenantId, action_route, read_route


@read_route("/channels", "admin", area="channels", all_tenants=True)
async def list_channels(
    runtime: RuntimeDependency, tenant_id: TenantId, limit: Limit = 50, cursor: Cursor = None
) -> ChannelPage:
    """What is watched, until when, and what is wrong with it."""
    return await channels.list_channels(runtime, tenant_id, limit=limit, cursor=cursor)


@action_route("/channels/{watch_id:str}/renew", channels.renew)
async def renew(runtime: RuntimeDependency, by: By, watch_id: FromPath[str]) -> ChannelRow:
    """Replace the channel by a new one at the next turn."""
    return await channels.renew(runtime, by, watch_id)


@action_route("/channels/{watch_id:str}/stop", channels.stop)
async def stop(runtime: RuntimeDependency, by: By, watch_id: FromPath[str]) -> ChannelRow:
    """Stop the current channel; what is still wanted gets another first."""
    return await channels.stop(runtime, by, watch_id)


ROUTES: Final = (list_channels, renew, stop)
