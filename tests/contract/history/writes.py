"""Operations that write: one commit, several, a transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from hypothesis import strategies as st
from msgspec import UNSET

from holdfast.store import (
    ABSENT,
    PRESENT,
    ArrayRemove,
    ArrayUnion,
    Fence,
    Increment,
    Maximum,
    Minimum,
    Transaction,
    Version,
    Write,
    check,
    create,
    delete,
    patch,
    put,
)
from holdfast.store.commit import Expect, upsert
from holdfast.store.contract.harness import exact
from holdfast.store.contract.models import NOON
from tests.contract.history import values
from tests.contract.history.models import Leaf, Member, Thing, Work
from tests.contract.history.session import TENANTS, Ref, Session, outcome

Who = Literal["t", "u", "privileged"]
IDS = ["a", "a-b", "a.b", "aa", "b", "A", "é", "e\u0301", "\uff5e", "\U0001f41c", "0", "00", "~", "_"]
PARENTS = ["", "-b", ".b"]


@dataclass(frozen=True)
class Target:
    """A document by its place in the history; `tenant` says whose it would be."""

    cls: Any
    id: str
    parent: str
    tenant: str

    def ids(self, session: Session) -> tuple[str, ...]:
        if self.cls is Thing:
            return session.history, self.id
        if self.cls is Leaf:
            return session.history, f"p{self.parent}", self.id
        return (f"{session.history}-{self.id}",)

    def document(self, session: Session, fields: dict[str, Any]) -> Any:
        ids = self.ids(session)
        if self.cls is Thing:
            return Thing(history=ids[0], id=ids[1], **fields)
        owned = {"tenant_id": session.tenant(self.tenant), **fields}
        if self.cls is Leaf:
            return Leaf(tree=ids[0], branch=ids[1], id=ids[2], history=session.history, **owned)
        if self.cls is Member:
            return Member(id=ids[0], history=session.history, **owned)
        return Work(id=ids[0], lane=f"{session.history}{self.parent}", **owned)

    def ref(self, session: Session) -> Ref:
        return self.cls, "\x01".join(self.ids(session))


@dataclass(frozen=True)
class Planned:
    """A write that each session builds for itself, with the versions it knows."""

    kind: str
    target: Target
    fields: dict[str, Any]
    expect: str

    def build(self, session: Session) -> Write:
        expect, ids, cls = self._expect(session), self.target.ids(session), self.target.cls
        if self.kind in ("create", "put", "upsert"):
            document = self.target.document(session, _plain(self.fields))
            if self.kind == "create":
                return create(document)
            return put(document, expect) if self.kind == "put" else upsert(document, self.fields)
        if self.kind == "patch":
            return patch(cls, *ids, changes=self.fields, expect=expect)
        if self.kind == "delete":
            return delete(cls, *ids, expect=expect)
        return check(cls, *ids, expect=expect or PRESENT)

    def _expect(self, session: Session) -> Expect:
        ref = self.target.ref(session)
        if self.expect == "latest":
            return Version(session.latest.get(ref, 0))
        if self.expect == "oldest":
            return Version(next(iter(session.seen.get(ref, [0]))))
        if self.expect in ("fence", "no fence") and self.target.cls is Work:
            return Fence(session.fences.get(ref, 0) if self.expect == "fence" else 99)
        if self.expect == "present":
            return PRESENT
        return ABSENT if self.expect == "absent" else None


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Transforms can't be in a whole document: what they would give from nothing can."""
    made = {name: v.apply(UNSET) if hasattr(v, "apply") else v for name, v in fields.items()}
    return {name: v for name, v in made.items() if name not in ("id", "nope", "spot.city")}


@dataclass(frozen=True)
class Commit:
    who: Who
    writes: tuple[Planned, ...]

    async def run(self, session: Session) -> Any:
        built = [planned.build(session) for planned in self.writes]
        result = await session.handle(self.who).commit(*built)
        return outcome(session, *_named(session, self.writes), result)


@dataclass(frozen=True)
class Settle:
    who: Who
    commits: tuple[tuple[Planned, ...], ...]

    async def run(self, session: Session) -> Any:
        built = [[planned.build(session) for planned in commit] for commit in self.commits]
        results = await session.handle(self.who).settle(built)
        pairs = zip(self.commits, results, strict=True)
        return [outcome(session, *_named(session, commit), result) for commit, result in pairs]


@dataclass(frozen=True)
class Transact:
    """Reads two documents, writes a third from them; `disturbed` writes one of them in between, once."""

    who: Who
    reads: tuple[Target, Target]
    write: Planned
    disturbed: Planned | None

    async def run(self, session: Session) -> Any:
        handle = session.handle(self.who)
        tries: list[Any] = []

        async def act(transaction: Transaction) -> None:
            found = [await transaction.get(one.cls, *one.ids(session)) for one in self.reads]
            tries.append([exact(s.doc) if s else None for s in found])
            if self.disturbed is not None and len(tries) == 1:
                await Commit(self.who, (self.disturbed,)).run(session)
            transaction.write(self.write.build(session))

        try:
            await handle.transact(act, attempts=2, back_off_s=0.0001)
        finally:
            await self._learn(session)
        return tries

    async def _learn(self, session: Session) -> None:
        """A transaction keeps its versions to itself, so they are read."""
        target = self.write.target
        (found,) = await session.store.privileged().get_many(target.cls, [target.ids(session)])
        ref = target.ref(session)
        if found is None:
            session.latest.pop(ref, None)
        elif session.latest.get(ref) != found.version:
            assert session.wrote(ref, found.version) == "new"


def _named(session: Session, writes: tuple[Planned, ...]) -> tuple[list[Ref], list[str]]:
    return [w.target.ref(session) for w in writes], [w.kind for w in writes]


# -- drawing --------------------------------------------------------------------------------------


@st.composite
def _some(draw: st.DrawFn, fields: dict[str, Any], most: int = 4) -> dict[str, Any]:
    """A few of the fields, each with a value."""
    names = sorted(fields)
    chosen = {names[draw(_position) % len(names)] for _ in range(draw(st.integers(0, most)))}
    return {name: draw(fields[name]) for name in sorted(chosen)}


_position = st.integers(0, 999)
_step: Any = st.integers(-3, 3) | st.sampled_from([0.5, 2**53, 2**62])
_thing_changes: dict[str, Any] = {
    **values.FIELDS, "whole": values.whole | st.builds(Increment, _step) | st.builds(Maximum, _step),
    "mixed": values.mixed | st.builds(Increment, _step) | st.builds(Minimum, _step),
    "part": values.part | st.builds(Increment, _step) | st.builds(Maximum, _step),
    "maybe": values.FIELDS["maybe"] | st.builds(Increment, st.integers(-3, 3)),
    "labels": st.lists(values.label)
    | st.builds(ArrayUnion, values.label)
    | st.builds(ArrayRemove, values.label),
    "scores": st.builds(ArrayUnion, values.score, values.score) | st.builds(ArrayRemove, values.score),
    "level": values.level | st.builds(Increment, st.integers(-3, 3), at_most=st.integers(0, 4)),
    "spot.city": st.sampled_from(["Rome", "Paris"]), "id": st.just("a"), "nope": st.just(1),
}  # fmt: skip
_times: Any = st.none() | st.integers(-100, 100).map(lambda s: NOON + timedelta(seconds=s))
_member: dict[str, Any] = {
    "points": st.integers(-3, 9), "state": st.sampled_from(["new", "active", "gone"]), "ends_at": _times,
    "labels": st.lists(values.label, max_size=2), "joined": st.integers(0, 1),
}  # fmt: skip
_leaf: dict[str, Any] = {"size": values.OPERANDS["size"], "color": st.none() | values.OPERANDS["color"]}
_work: dict[str, Any] = {
    "due": _times, "note": values.text, "status": values.OPERANDS["status"], "fence": st.integers(0, 2),
}  # fmt: skip

_GIVEN: dict[Any, dict[str, Any]] = {Thing: values.FIELDS, Member: _member, Leaf: _leaf, Work: _work}
_CHANGES: dict[Any, dict[str, Any]] = {
    Thing: _thing_changes, Member: {**_member, "points": st.builds(Increment, st.integers(-2, 2))},
    Leaf: {**_leaf, "size": st.builds(Increment, st.integers(-2, 2))}, Work: _work,
}  # fmt: skip
_given = {cls: _some(fields) for cls, fields in _GIVEN.items()}
_changes = {cls: _some(fields) for cls, fields in _CHANGES.items()}
_refused = _some(values.REFUSED)
OUTBOX_MODELS = ["create", "create", "put", "put", "patch", "patch", "upsert", "delete", "check"]
EXPECTED = ["any", "any", "any", "latest", "latest", "oldest", "present", "absent", "fence", "no fence"]

who: st.SearchStrategy[Any] = st.sampled_from(["t", "u", "privileged"])


def targets(*classes: Any) -> st.SearchStrategy[Target]:
    chosen = st.sampled_from(classes or (Thing, Thing, Thing, Member, Leaf, Work))
    return st.builds(Target, chosen, st.sampled_from(IDS), st.sampled_from(PARENTS), st.sampled_from(TENANTS))


@st.composite
def planned(draw: st.DrawFn) -> Planned:
    target, kind = draw(_target), draw(_kind)
    fields = _changes if kind in ("patch", "upsert") else _given
    chosen = draw(fields[target.cls]) if kind not in ("delete", "check") else {}
    if target.cls is Thing and kind != "upsert" and draw(_position) > 950:
        chosen = {**chosen, **draw(_refused)}
    return Planned(kind, target, chosen, draw(_expected))


@st.composite
def first_documents(draw: st.DrawFn) -> Settle:
    """Something to ask about from the start."""
    made = []
    for _ in range(draw(st.integers(4, 20))):
        target = draw(_target)
        made.append((Planned("put", target, draw(_given[target.cls]), "any"),))
    return Settle("privileged", tuple(made))


_kind, _expected, _target = st.sampled_from(OUTBOX_MODELS), st.sampled_from(EXPECTED), targets()
commits = st.lists(planned(), min_size=1, max_size=3).map(tuple)
committing = st.builds(Commit, who, commits)
settling = st.builds(Settle, who, st.lists(commits, min_size=1, max_size=4).map(tuple))
transacting = st.builds(Transact, who, st.tuples(_target, _target), planned(), st.none() | planned())
