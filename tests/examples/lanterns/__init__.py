"""A small service with pages and one operation, as an example: lanterns that somebody lights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from litestar.params import FromPath

from holdfast.errors import NotFoundError
from holdfast.model import MEMBERS_READ, Document, Index, document
from holdfast.operation import Operator, operation
from holdfast.routing import By, action_route
from holdfast.service import Context, Page, PageRequest, Parts, Service
from holdfast.store import Query, Store, Transaction, patch

STATES: Final = ("lit", "dark")


@document("lanterns/{id}", tenant="tenant_id", indexes=[Index("state", "id")], access=MEMBERS_READ)
class Lantern(Document, rename="camel"):
    id: str
    tenant_id: str = "-"
    place: str = ""
    state: str = "dark"


class Lanterns:
    """The service's operations."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @operation("lantern.lit", area="lanterns", verb="light", needs="admin", subject="lantern_id")
    async def light(self, by: Operator, lantern_id: str) -> dict[str, str]:
        async def act(tx: Transaction) -> None:
            tx.write(patch(Lantern, lantern_id, changes={"state": "lit"}))

        await by.commit(act)
        return {"id": lantern_id, "state": "lit"}


def build(context: Context) -> Parts:
    operations = Lanterns(context.store)

    @action_route("/lanterns/{lantern_id:str}/light", Lanterns.light, prefix="")
    async def light(by: By, lantern_id: FromPath[str]) -> dict[str, str]:
        return await operations.light(by, lantern_id)

    return Parts(operations=operations, routes=[light], pages=_pages(context.store))


def _pages(store: Store) -> list[Page]:
    async def lanterns(request: PageRequest) -> Mapping[str, Any]:
        state = request.choice("state", STATES, default="dark")
        query = Query(Lantern).where("state", "==", state).order_by("id").limit(2).after(request.cursor)
        page = await store.tenant(request.tenant_id).query(query)
        return {"rows": page.docs, "after": page.cursor, "state": state, "states": STATES}

    async def lantern(request: PageRequest) -> Mapping[str, Any]:
        stored = await store.tenant(request.tenant_id).get(Lantern, request.path["lantern_id"])
        if stored is None:
            raise NotFoundError("There is no such lantern.")
        return {"title": stored.doc.place, "lantern": stored.doc}

    async def broken(request: PageRequest) -> Mapping[str, Any]:
        raise RuntimeError("a secret that must not be told")

    live = ("lanterns",)
    return [
        Page(path="", title="Lanterns", template="lanterns.html", data=lanterns, live=live),
        Page(
            path="/{lantern_id}", title="Lantern", template="lantern.html", data=lantern, live=live, nav=False
        ),
        Page(
            path="/admin/broken", title="Broken", template="lanterns.html", data=broken, needs="admin",
            nav=False,
        ),
    ]  # fmt: skip


service = Service(name="lanterns", summary="Lights lanterns.", documents=[Lantern], build=build)
