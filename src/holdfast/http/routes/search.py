"""The route of the search over everything."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import QueryParameter

from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import search
from holdfast.operations.search import SearchResponse
from holdfast.routing import By, TenantId, read_route

_Text = Annotated[
    str, QueryParameter(description="An id or its beginning, or a part of a person's name.", max_length=500)
]


@read_route("/search", area="documents", all_tenants=True)
async def search_everything(
    runtime: RuntimeDependency, by: By, tenant_id: TenantId, q: _Text
) -> SearchResponse:
    """Documents by id, exact ones first, then those whose id begins so (from 3 characters), and people."""
    return await search.search(runtime, by.caller, tenant_id, q)


ROUTES: Final = (search_everything,)
