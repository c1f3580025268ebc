"""A whole little service with pages, as an example of the contract: lanterns that somebody lights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar.params import FromPath

from holdfast.errors import NotFoundError
from holdfast.model import Access, Document, Index, document
from holdfast.routing import action_route
from holdfast.service import Context, Page, PageRequest, Parts, Service
from holdfast.store import Query, patch

STATES: Final = ("lit", "dark")


@document(
    "lanterns/{id}",
    tenant="tenant_id",
    indexes=[Index("state", "id")],
    access=Access(read=["viewer"], write=["admin"]),
)
class Lantern(Document, rename="camel"):
    id: str
    tenant_id: str = "-"
    place: str = ""
    state: str = "dark"


def build(context: Context) -> Parts:
    store = context.store

    async def lanterns(ask: PageRequest) -> Mapping[str, Any]:
        state = ask.choice("state", STATES, default="dark")
        query = Query(Lantern).where("state", "==", state).order_by("id").limit(2).after(ask.cursor)
        page = await store.tenant(ask.tenant_id).query(query)
        return {"rows": page.docs, "after": page.cursor, "state": state, "states": STATES}

    async def lantern(ask: PageRequest) -> Mapping[str, Any]:
        found = await store.tenant(ask.tenant_id).get(Lantern, ask.path["lantern_id"])
        if found is None:
            raise NotFoundError("There is no such lantern.")
        return {"title": found.doc.place, "lantern": found.doc}

    async def broken(ask: PageRequest) -> Mapping[str, Any]:
        raise RuntimeError("a secret that must not be told")

    @action_route("/lanterns/{lantern_id:str}/light", "admin", area="lanterns", action="light", prefix="")
    async def light(lantern_id: FromPath[str]) -> dict[str, str]:
        await store.tenant("-").commit(patch(Lantern, lantern_id, changes={"state": "lit"}))
        return {"id": lantern_id, "state": "lit"}

    live = ("lanterns",)
    return Parts(
        routes=[light],
        pages=[
            Page(path="", title="Lanterns", template="lanterns.html", data=lanterns, live=live),
            Page(
                path="/{lantern_id}", title="Lantern", template="lantern.html", data=lantern, live=live,
                nav=False,
            ),
            Page(
                path="/admin/broken", title="Broken", template="lanterns.html", data=broken, needs="admin",
                nav=False,
            ),
        ],
    )  # fmt: skip


service = Service(name="lanterns", summary="Lights lanterns.", documents=[Lantern], build=build)
