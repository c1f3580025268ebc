"""The search in the header of every page: what a text may mean, grouped by collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.operations.search import CHARACTERS_MIN, SearchMatch, search
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import DocumentBrowser
from holdfast.service import Page, PageRequest


def pages(runtime: Runtime) -> list[Page]:
    async def found(ask: PageRequest) -> Mapping[str, Any]:
        text, browser = ask.text("q", characters_max=500), DocumentBrowser(runtime)
        response = await search(runtime, ask.caller, ask.tenant_id, text)

        def place(match: SearchMatch) -> tuple[str, dict[str, str]]:
            """The page of a match, and its query."""
            if match.kind == "person":
                return "/console/users", {"q": match.ids[0]}
            if match.kind == "document":
                collection = browser.collection(ask.caller, ask.tenant_id, match.part)
                names = [f"id.{name}" for name in collection.schema.path.parameters]
                query = dict(zip(names, match.ids, strict=True))
                return f"/console/documents/{match.part}/document", query
            folder = {"delivery": "deliveries", "endpoint": "endpoints", "run": "runs"}[match.kind]
            return f"/console/{folder}/{match.part}/{match.ids[-1]}", {}

        return {
            "wanted": text, "searched": response.searched, "characters_min": CHARACTERS_MIN,
            "groups": [(one, [(match, *place(match)) for match in one.items]) for one in response.groups],
        }  # fmt: skip

    return [
        Page(path="/search", title="Search", template="search.html", data=found, nav=False, all_tenants=True)
    ]
