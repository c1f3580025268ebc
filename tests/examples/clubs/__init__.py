"""A service with a route for every kind of caller: clubs are tenants, people are members of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody

from holdfast.error_format import ErrorFormat, FlatErrorResponse
from holdfast.errors import AlreadyExistsError, LimitReachedError, NotFoundError
from holdfast.ids import ulid
from holdfast.kit.access import Gate
from holdfast.kit.metering import Meter
from holdfast.model import Access, CompositeId, Document, Index, Membership, document
from holdfast.operation import Operator, operation
from holdfast.routing import By, RequestBody, TenantId, action_route, call_route, read_route
from holdfast.service import Context, Page, PageRequest, Parts, Service
from holdfast.store import Query, Store, Transaction, create

CLUB = "/clubs/{club_id:str}"
TOASTS_MAX = 2


@document("clubs/{id}", tenant="id", access=Access(read=["viewer", "service"]))
class Club(Document):
    id: str
    motto: str = ""


@document(
    "club_members/{id}",
    id=CompositeId("user_id", "club_id"),
    tenant="club_id",
    indexes=[Index("user_id", "status", across="tenants")],
    membership=Membership(user="user_id", tenant="club_id", role="role", when={"status": "active"}),
    access=Access(read=["self:user_id", "admin", "service"]),
)
class ClubMember(Document):
    id: str = ""
    user_id: str
    club_id: str
    role: Literal["viewer", "developer", "admin", "owner"]
    status: Literal["active", "suspended"] = "active"


@document(
    "club_notes/{id}",
    tenant="club_id",
    indexes=[Index("id")],
    access=Access(read=["viewer", "service"], create=["developer", "service"]),
)
class ClubNote(Document):
    id: str
    club_id: str
    text: str = ""


class NoteText(RequestBody, frozen=True):
    text: str = ""


class Toast(RequestBody, frozen=True):
    text: str


class NewClub(RequestBody, frozen=True):
    id: str = ""


class Clubs:
    """The service's operations."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @operation("club.toast_held", area="clubs", verb="toast", needs="developer", subject="text")
    async def hold_toast(self, by: Operator, text: str) -> str:
        """Hold one of the toasts that the plan allows in a club."""
        take = Meter(self.store, tenant_id=by.tenant_id).writes_take("toasts", limit=TOASTS_MAX)

        async def act(tx: Transaction) -> None:
            tx.write(*take)

        try:
            await by.commit(act)
        except LimitReachedError as fault:
            raise fault.under("free", after_s=30) from None
        return text

    @operation("club.founded", area="clubs", verb="create", needs="person", subject="club_id")
    async def found(self, by: Operator, club_id: str) -> str:
        """Create a club; whoever does becomes its owner."""
        assert by.caller.user_id is not None
        owner = ClubMember(user_id=by.caller.user_id, club_id=club_id, role="owner")

        async def act(tx: Transaction) -> None:
            if await tx.get(Club, club_id) is not None:
                raise AlreadyExistsError("there is such a club already")
            tx.write(create(Club(id=club_id)), create(owner))

        await (await by.in_tenant(club_id)).commit(act)
        return club_id

    @operation("club.note_written", area="notes", verb="create", needs="developer", subject="note_id")
    async def write_note(self, by: Operator, note_id: str, *, text: str) -> str:
        note = ClubNote(id=note_id, club_id=by.tenant_id, text=text)

        async def act(tx: Transaction) -> None:
            tx.write(create(note))

        await by.commit(act)
        return note_id

    async def notes(self, club_id: str) -> dict[str, Any]:
        page = await self.store.tenant(club_id).query(Query(ClubNote).order_by("id").limit(100))
        return {"notes": [note.text for note in page.docs]}


@read_route("/open", "public", area="clubs")
async def open_page() -> dict[str, str]:
    return {"says": "welcome"}


@read_route("/seat", "visitor", area="clubs")
async def seat(by: By) -> dict[str, str | None]:
    return {"visitor": by.caller.user_id}


@read_route("/me", "person", area="clubs")
async def me(by: By) -> dict[str, str | None]:
    return {"user": by.caller.user_id}


@action_route("/clubs", Clubs.found)
async def found(operations: NamedDependency[Any], by: By, data: JSONBody[NewClub]) -> dict[str, str]:
    return {"id": await operations.found(by, data.id or ulid().lower())}


@read_route(f"{CLUB}/notes", area="notes", tenant="club_id")
async def notes(operations: NamedDependency[Any], tenant_id: TenantId) -> dict[str, Any]:
    return dict(await operations.notes(tenant_id))


@read_route(f"{CLUB}/ledger", "admin", area="notes", tenant="club_id")
async def ledger(operations: NamedDependency[Any], tenant_id: TenantId) -> dict[str, Any]:
    return dict(await operations.notes(tenant_id))


@read_route(f"{CLUB}/deed", "owner", area="clubs", tenant="club_id")
async def deed(tenant_id: TenantId) -> dict[str, str]:
    return {"club": tenant_id}


@action_route(f"{CLUB}/notes", Clubs.write_note, tenant="club_id")
async def write_note(operations: NamedDependency[Any], by: By, data: JSONBody[NoteText]) -> dict[str, str]:
    return {"id": await operations.write_note(by, ulid().lower(), text=data.text)}


@action_route(f"{CLUB}/toasts", Clubs.hold_toast, tenant="club_id")
async def hold_toast(operations: NamedDependency[Any], by: By, data: JSONBody[Toast]) -> dict[str, str]:
    return {"said": await operations.hold_toast(by, data.text)}


@read_route("/notes/{note_id:str}", "person", area="notes")
async def note(operations: NamedDependency[Any], by: By, note_id: FromPath[str]) -> dict[str, str]:
    """A note by its id alone: the document has the tenant, and its access decides."""
    stored = await operations.store.privileged().get(ClubNote, note_id)
    if stored is None:
        raise NotFoundError("there is no such note")
    inside = await by.in_tenant(stored.doc.club_id)
    Gate(operations.store, inside.caller).check("read", old=stored.doc)
    return {"text": stored.doc.text}


@read_route("/own", area="notes")
async def own(operations: NamedDependency[Any], tenant_id: TenantId) -> dict[str, Any]:
    return dict(await operations.notes(tenant_id))


@read_route("/census", area="clubs", platform=True)
async def census() -> dict[str, int]:
    return {"clubs": 0}


@call_route("/sweep", "service", area="clubs", action="sweep")
async def sweep() -> dict[str, bool]:
    return {"swept": True}


def build(context: Context) -> Parts:
    operations = Clubs(context.store)

    async def start_page(ask: PageRequest) -> Mapping[str, Any]:
        return {}

    return Parts(
        routes=[
            open_page,
            seat,
            me,
            found,
            notes,
            ledger,
            deed,
            hold_toast,
            write_note,
            note,
            own,
            census,
            sweep,
        ],
        pages=[Page(path="", title="Clubs", template="clubs.html", data=start_page, needs="person")],
        operations=operations,
    )  # fmt: skip


service = Service(
    name="clubs",
    summary="A route for each kind of caller.",
    documents=[Club, ClubMember, ClubNote],
    build=build,
    errors=ErrorFormat(response=FlatErrorResponse, statuses={LimitReachedError: 403}),
)
