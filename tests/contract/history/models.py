"""The documents of the histories. Each history has its own name in every id, so that many share a store."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from holdfast.model import Claim, Document, Index, Lifecycle, Retention, document
from holdfast.store.contract.models import Spot


@document(
    "histories/{history}/things/{id}",
    indexes=[
        Index("text"), Index("whole"), Index("part"), Index("at"), Index("blob"), Index("flag"),
        Index("mixed"), Index("moment"), Index("maybe"), Index("level"), Index("spot.city"),
        Index("labels[]"), Index("scores[]"), Index("flag", "whole"), Index("text", "-whole"),
        Index("labels[]", "-mixed"), Index("whole", "part"), Index("flag", "mixed", "-text"),
        Index("mixed", "maybe"), Index("flag", "scores[]", "at"), Index("-part", "blob", "moment"),
        Index("text", "whole", "flag"), Index("flag", "amount"), Index("amount"), Index("maybe", "level"),
        Index("scores[]", "level"), Index("-moment", "-mixed"),
    ],
)  # fmt: skip
class Thing(Document):
    """Every kind of value under one parent."""

    history: str
    id: str
    text: str = ""
    whole: int = 0
    part: float = 0.0
    flag: bool = False
    at: datetime | None = None
    blob: bytes = b""
    mixed: int | float | str | bool | None = None
    moment: datetime | int | bool | None = None
    maybe: int | str | UnsetType | None = UNSET
    level: int | None = None
    amount: float = 0.0
    spot: Spot | None = None
    labels: list[str] = []
    scores: list[int | float | str | bool | None] = []
    anything: Any = None
    table: dict[str, Any] = {}


@document(
    "members/{id}",
    tenant="tenant_id",
    lifecycle=Lifecycle("state", initial=["new", "active"], moves={"new": ["active"], "active": ["gone"]}),
    immutable=["joined"],
    retention=Retention("ends_at", after_s=60),
    indexes=[
        Index("points"), Index("state", "-points"), Index("ends_at"), Index("labels[]", "points"),
        Index("history", "points", across="tenants"), Index("history", "state", "-points", across="tenants"),
        Index("joined", "-state"),
    ],
)  # fmt: skip
class Member(Document, rename="camel"):
    """Tenants share the ids; a lifecycle, an immutable field and retention."""

    id: str
    tenant_id: str
    history: str
    joined: int = 0
    points: int = 0
    state: Literal["new", "active", "gone"] = "new"
    ends_at: datetime | None = None
    labels: list[str] = []


@document(
    "trees/{tree}/branches/{branch}/leaves/{id}",
    tenant="tenant_id",
    path_only=["branch"],
    indexes=[
        Index("size"), Index("size", "-color"), Index("history", "size", across="parents"),
        Index("history", across="parents"), Index("history", "-size", "color", across="tenants"),
        Index("history", across="tenants"),
    ],
)  # fmt: skip
class Leaf(Document):
    """Under two parents, one of them in the path only; the tenant is neither."""

    tree: str
    branch: str
    id: str
    tenant_id: str
    history: str
    size: int | float = 0
    color: str | None = None


@document(
    "works/{id}",
    tenant="tenant_id",
    claim=Claim(due="due", fence="fence", owner="owner", lane="lane", state=("status", "working")),
    indexes=[Index("status", "due"), Index("fence")],
)
class Work(Document):
    """Claimed, lane by lane."""

    id: str
    tenant_id: str
    lane: str
    status: Literal["waiting", "working", "done"] = "waiting"
    due: datetime | None = None
    fence: int = 0
    owner: str | None = None
    note: str = ""


CLASSES: tuple[type[Document], ...] = (Thing, Member, Leaf, Work)
