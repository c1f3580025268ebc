"""Operations that read, and those that claim or expire documents."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from holdfast.model import schema_of
from holdfast.model.index import ResolvedIndex
from holdfast.store import Query
from tests.contract.history import values
from tests.contract.history.models import CLASSES, Leaf, Member, Thing, Work
from tests.contract.history.session import Session, number
from tests.contract.history.writes import PARENTS, Target, targets, who

BOUNDS = ["<", "<=", ">", ">=", "!=", "not-in"]


@dataclass(frozen=True)
class Read:
    who: str
    targets: tuple[Target, ...]

    async def run(self, session: Session) -> Any:
        handle, cls = session.handle(self.who), self.targets[0].cls
        found = await handle.get_many(cls, [target.ids(session) for target in self.targets])
        one = await handle.get(cls, *self.targets[0].ids(session))
        return [session.shown(snapshot) for snapshot in [*found, one]]


@dataclass(frozen=True)
class Question:
    """A query by its parts; the history's name is added when it is run."""

    cls: Any
    filters: tuple[tuple[str, Any, Any], ...]
    order: tuple[str, ...]
    parent: str | None

    def query(self, session: Session) -> Query[Any]:
        query = Query(self.cls)
        for field, operator, value in self.filters:
            query = query.where(field, operator, _resolved(session, self.cls, field, value))
        if self.parent is not None:
            parent = (session.history,) if self.cls is Thing else (session.history, f"p{self.parent}")
            query = query.under(*parent)
        elif schema_of(self.cls).path.nested:
            query = query.across_parents()
        return query.order_by(*self.order)


@dataclass(frozen=True)
class Like:
    """The value that some document has in the field, so that there is something to find."""

    which: int
    otherwise: Any

    def value(self, session: Session, cls: Any, path: str) -> Any:
        documents = session.peek(cls, session.history)
        column = schema_of(cls).column(path)
        if not documents or column is None:
            return self.otherwise
        value = column.read(documents[self.which % len(documents)])
        value = value[self.which % len(value)] if isinstance(value, list) and value else value
        return self.otherwise if value is None or value is UNSET or value == [] else value


def _resolved(session: Session, cls: Any, path: str, value: Any) -> Any:
    if path == "history":
        return session.history
    if isinstance(value, list):
        return [_resolved(session, cls, path, one) for one in value]
    return value.value(session, cls, path) if isinstance(value, Like) else value


@dataclass(frozen=True)
class Ask:
    who: str
    question: Question
    size: int

    async def run(self, session: Session) -> Any:
        query = self.question.query(session).limit(self.size)
        return session.page(self.who, query, await session.handle(self.who).query(query))


@dataclass(frozen=True)
class GoOn:
    """The next page of an earlier query, whatever was written since."""

    which: int

    async def run(self, session: Session) -> Any:
        if not session.cursors:
            return None
        who, query, cursor = session.cursors[self.which % len(session.cursors)]
        return session.page(who, query, await session.handle(who).query(query.after(cursor)))


@dataclass(frozen=True)
class AskOther:
    """A cursor used with another query, or for another tenant."""

    who: str
    question: Question
    which: int

    async def run(self, session: Session) -> Any:
        if not session.cursors:
            return None
        cursor = session.cursors[self.which % len(session.cursors)][2]
        query = self.question.query(session).after(cursor)
        return session.page(self.who, query, await session.handle(self.who).query(query))


@dataclass(frozen=True)
class Total:
    who: str
    question: Question
    function: str
    field: str

    async def run(self, session: Session) -> Any:
        handle, query = session.handle(self.who), self.question.query(session)
        if self.function == "count":
            return await handle.count(query)
        if self.function == "sum":
            return number(await handle.sum(query, self.field))
        return number(await handle.avg(query, self.field))


@dataclass(frozen=True)
class Claim:
    who: str
    limit: int
    lease_s: float
    lanes: dict[str, Any]

    async def run(self, session: Session) -> Any:
        lanes = {name: _lanes(session, value) for name, value in self.lanes.items()}
        if self.who == "privileged":
            # Other histories' work is due as well; only its own lanes are this one's to take.
            lanes["only_lanes"] = [f"{session.history}{parent}" for parent in PARENTS]
        handle = session.handle(self.who)
        taken = await handle.claim_due(Work, limit=self.limit, lease_s=self.lease_s, owner=self.who, **lanes)
        told = []
        for snapshot in taken:
            ref = (Work, snapshot.key)
            session.fences[ref] = snapshot.doc.fence
            told.append((session.wrote(ref, snapshot.version), session.shown(snapshot)))
        return told


def _lanes(session: Session, value: Any) -> Any:
    if isinstance(value, str):
        return session.history + value
    return [session.history + one for one in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Expire:
    who: str
    limit: int

    async def run(self, session: Session) -> Any:
        gone = await session.handle(self.who).expire(Member, limit=self.limit)
        for id in [key for cls, key in session.latest if cls is Member]:
            (found,) = await session.store.privileged().get_many(Member, [id])
            if found is None:
                session.latest.pop((Member, id))
        return gone


# -- drawing --------------------------------------------------------------------------------------


def _like(operand: Any) -> Any:
    return st.builds(Like, st.integers(0, 99), operand) | operand


_operands = {path: _like(operand) for path, operand in values.OPERANDS.items()}


@st.composite
def questions(draw: st.DrawFn, privileged: bool) -> Question:
    """A query that an index serves, most of the time."""
    cls = draw(st.sampled_from((Thing,) if not privileged and draw(st.booleans()) else CLASSES))
    reach = ("nothing", "parents") if cls in (Thing, Leaf) and not privileged else ("nothing",)
    reach = ("tenants",) if privileged and cls in (Member, Leaf) else reach
    fitting = [index for index in schema_of(cls).indexes if index.across in reach]
    index = draw(st.sampled_from(fitting)) if fitting else schema_of(cls).indexes[0]
    whole = draw(st.booleans())  # all there is, in order: what shows most
    fixed = _fixed_min(index) if whole else draw(st.integers(_fixed_min(index), len(index.fields)))
    filters = [_equality(draw, f.column.path, f.member) for f in index.fields[:fixed]]
    turned, order = draw(st.booleans()), []
    for field in index.fields[fixed:]:
        order.append(("-" if field.descending != turned else "") + field.column.path)
        filters += [] if whole else _bounds(draw, field.column.path)
    parent = draw(st.sampled_from(PARENTS)) if cls in (Thing, Leaf) and index.across == "nothing" else None
    return Question(cls, tuple(filters), tuple(order), parent)


def _fixed_min(index: ResolvedIndex) -> int:
    """A list's item, and the history's own name, can only be queried by equality."""
    paths = [n for n, f in enumerate(index.fields, 1) if f.member or f.column.path == "history"]
    return max(paths, default=0)


def _equality(draw: st.DrawFn, path: str, member: bool) -> tuple[str, str, Any]:
    if path == "history":
        return path, "==", None
    if member:
        return path, "array-contains", draw(_operands[path])
    if path in values.NULLABLE and draw(st.integers(0, 3)) == 0:
        return path, "==", None
    if draw(st.booleans()):
        return path, "==", draw(_operands[path])
    return path, "in", draw(st.lists(_operands[path], min_size=1, max_size=3))


def _bounds(draw: st.DrawFn, path: str) -> list[tuple[str, str, Any]]:
    operator = draw(st.sampled_from([None, None, *BOUNDS]))
    operand = _operands[path]
    if operator is None:
        return []
    if operator == "not-in":
        return [(path, operator, draw(st.lists(operand, min_size=1, max_size=3)))]
    bounds = [(path, operator, draw(operand))]
    if operator in (">", ">=") and draw(st.booleans()):
        bounds.append((path, draw(st.sampled_from(["<", "<="])), draw(operand)))
    return bounds


_lane = st.sampled_from(PARENTS)
_lanes_asked = st.fixed_dictionaries(
    {},
    optional={
        "per_lane": st.integers(1, 2), "after_lane": _lane, "skip_lanes": st.lists(_lane, max_size=2),
        "only_lanes": st.lists(_lane, max_size=3),
    },
)  # fmt: skip


@st.composite
def _asking(draw: st.DrawFn, make: Any, *rest: Any) -> Any:
    """Draw an operation that runs a query on a handle."""
    asker = draw(who)
    question = draw(_of_all if asker == "privileged" else _of_one)
    return make(asker, question, *map(draw, rest))


_of_all, _of_one = questions(privileged=True), questions(privileged=False)
_which = st.integers(0, 99)
reading = st.builds(
    Read, who,
    st.sampled_from(CLASSES).flatmap(lambda cls: st.lists(targets(cls), min_size=1, max_size=3).map(tuple)),
)  # fmt: skip
asking = _asking(Ask, st.integers(1, 4) | st.just(50))
_next_page = st.builds(GoOn, _which)
going_on = st.one_of(_next_page, _next_page, _next_page, _asking(AskOther, _which))
totalling = _asking(
    Total, st.sampled_from(["count", "sum", "avg"]),
    st.sampled_from(["whole", "level", "amount", "points", "fence"]),
)  # fmt: skip
claiming = st.builds(Claim, who, st.integers(1, 4), st.sampled_from([1, 30.5]), _lanes_asked)
expiring = st.builds(Expire, st.sampled_from(["t", "u"]), st.integers(1, 3))
waiting = st.integers(1, 90).map(lambda s: timedelta(seconds=s))
