"""Bad input is refused with one clear error that names the field, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from holdfast.errors import (
    AppendOnlyError,
    BadCursorError,
    BadIdError,
    BadQueryError,
    DeclarationError,
    HoldfastError,
    IllegalMoveError,
    ImmutableFieldError,
    TooLargeError,
    UnknownFieldError,
    WrongTenantError,
    WrongTypeError,
)
from holdfast.model import Document
from holdfast.model.limits import ALTERNATIVES_MAX, DOCUMENT_BYTES_MAX, PAGE_MAX
from holdfast.store.commit import Fence, Write, create, delete, patch, put
from holdfast.store.contract.migrations import Setting
from holdfast.store.contract.models import NOON, Account, Leaf, LogEntry, Note, Parcel, Seat, Spot
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.store.transforms import Increment

Writes = Callable[[], Sequence[Write]]
Case = tuple[type[HoldfastError], str | None, Writes]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _new(**fields: Any) -> Writes:
    return lambda: [create(Note(**{"id": "new", **fields}))]


def _change(**changes: Any) -> Writes:
    return lambda: [patch(Note, "n", changes={name.replace("__", "."): v for name, v in changes.items()})]


WRONG_TYPES: dict[str, Case] = {
    "text for a number": (WrongTypeError, "whole", _new(whole="1")),
    "a fraction for a whole number": (WrongTypeError, "whole", _new(whole=1.5)),
    "a boolean for text": (WrongTypeError, "text", _new(text=True)),
    "null for text": (WrongTypeError, "text", _new(text=None)),
    "text inside a list": (WrongTypeError, "labels[1]", _new(labels=["a", 1])),
    "a wrong field inside a struct": (WrongTypeError, "spot.city", _new(spot=Spot(city=5))),  # type: ignore[arg-type]
    "a whole number over 64 bits": (WrongTypeError, "whole", _new(whole=2**63)),
    "a whole number under 64 bits": (WrongTypeError, "mixed", _new(mixed=-(2**63) - 1)),
    "64 bits passed deep inside": (WrongTypeError, "anything[0].a", _new(anything=[{"a": 2**64}])),
    "NaN": (WrongTypeError, "part", _new(part=math.nan)),
    "infinity": (WrongTypeError, "mixed", _new(mixed=-math.inf)),
    "NaN deep inside": (WrongTypeError, "table.x[0]", _new(table={"x": [math.nan]})),
    "a time without a zone": (WrongTypeError, "at", _new(at=datetime(2026, 1, 1))),
    "a time before the first": (
        WrongTypeError, "at", _new(at=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))),
    ),
    "a time in an untyped place": (WrongTypeError, "anything", _new(anything=NOON)),
    "bytes in an untyped place": (WrongTypeError, "table.x", _new(table={"x": b""})),
    "a name that is no text": (WrongTypeError, "anything", _new(anything={1: 2})),
    "half a surrogate pair": (WrongTypeError, "text", _new(text="\ud800")),
    "half a surrogate pair deep inside": (WrongTypeError, "table", _new(table={"x": ["\udfff"]})),
    "NUL in indexed text": (WrongTypeError, "text", _new(text="a\x00")),
    "a list where mixed values are ordered": (WrongTypeError, "mixed", _new(mixed=[])),
    "a wrong state": (
        WrongTypeError, "status", lambda: [create(Parcel(id="x", opened_at=1, status="lost"))],  # type: ignore[arg-type]
    ),
    "a wrong type in a patch": (WrongTypeError, "whole", _change(whole="x")),
    "a wrong type deep in a patch": (WrongTypeError, "spot.city", _change(spot__city=3)),
    "a patch inside what is not set": (
        WrongTypeError, "spot.city", lambda: [patch(Note, "m", changes={"spot.city": "x"})],
    ),
    "adding to text": (WrongTypeError, "text", _change(text=Increment(1))),
    "a tenant that is empty": (
        WrongTypeError, "tenantId", lambda: [create(Account(id="x", tenant_id=""))],
    ),
}  # fmt: skip

UNKNOWN: dict[str, Case] = {
    "an unknown field in a patch": (UnknownFieldError, "nope", _change(nope=1)),
    "an unknown field of a struct": (UnknownFieldError, "spot.nope", _change(spot__nope=1)),
    "a path into what has no fields": (UnknownFieldError, "text.x", _change(text__x=1)),
    "a path into a mapping": (UnknownFieldError, "table.x", _change(table__x=1)),
    "a stored name instead of the field's": (
        UnknownFieldError, "openedAt", lambda: [patch(Parcel, "o", changes={"openedAt": 1})],
    ),
}  # fmt: skip

TOO_LARGE: dict[str, Case] = {
    "a document over the limit": (TooLargeError, None, _new(anything="x" * DOCUMENT_BYTES_MAX)),
    "many small values over the limit": (TooLargeError, None, _new(anything=[0] * (DOCUMENT_BYTES_MAX // 8))),
    "a patch that grows over the limit": (TooLargeError, None, _change(anything="x" * DOCUMENT_BYTES_MAX)),
    "values nested too deep": (TooLargeError, "anything" + "[0]" * 20, _new(anything=_deep(21))),
    "indexed text too long to index": (TooLargeError, "text", _new(text="ż" * 1_500)),
    "indexed bytes too long to index": (TooLargeError, "blob", _new(blob=b"x" * 3_000)),
    "a list's member too long to index": (TooLargeError, "labels", _new(labels=["x" * 3_000])),
}

BAD_IDS: dict[str, Case] = {
    repr(id)[:20]: (BadIdError, "id", _new(id=id))
    for id in ["", ".", "..", "a/b", "__x__", "____", "a\x00", "a\x01b", "\n", "\x7f", "\ud800", "x" * 501,
               "ż" * 251, 7]
} | {
    "a bad parent": (BadIdError, "branch", lambda: [create(Leaf(tree="t", branch="a/b", id="x"))]),
    "ids too long together": (
        BadIdError, None, lambda: [create(Leaf(tree="t" * 400, branch="b" * 400, id="x" * 400))],
    ),
    "too few ids": (BadIdError, None, lambda: [delete(Leaf, "t")]),
    "a bad id in a patch": (BadIdError, "id", lambda: [patch(Note, "a/b", changes={})]),
    "an id that its fields contradict": (
        BadIdError, "id", lambda: [create(Seat(id="other", row="a", number=1))],
    ),
}  # fmt: skip

FORBIDDEN_CHANGES: dict[str, Case] = {
    "a wrong first state": (
        IllegalMoveError, "status", lambda: [create(Parcel(id="x", opened_at=1, status="paid"))],
    ),
    "a wrong first state by put": (
        IllegalMoveError, "status", lambda: [put(Parcel(id="x", opened_at=1, status="sent"))],
    ),
    "an illegal move": (IllegalMoveError, "status", lambda: [patch(Parcel, "o", changes={"status": "sent"})]),
    "an illegal move by put": (
        IllegalMoveError, "status", lambda: [put(Parcel(id="o", opened_at=1, status="sent"))],
    ),
    "an immutable field patched": (
        ImmutableFieldError, "openedAt", lambda: [patch(Parcel, "o", changes={"opened_at": 2})],
    ),
    "an immutable field incremented": (
        ImmutableFieldError, "openedAt", lambda: [patch(Parcel, "o", changes={"opened_at": Increment(1)})],
    ),
    "an immutable field put": (ImmutableFieldError, "openedAt", lambda: [put(Parcel(id="o", opened_at=2))]),
    "an id patched": (ImmutableFieldError, "id", _change(id="other")),
    "a parent's id patched": (
        ImmutableFieldError, "branch", lambda: [patch(Leaf, "t", "b", "l", changes={"branch": "c"})],
    ),
    "the tenant patched": (
        ImmutableFieldError, "tenantId", lambda: [patch(Account, "a", changes={"tenant_id": "u"})],
    ),
    "a kept entry patched": (AppendOnlyError, None, lambda: [patch(LogEntry, "e", changes={"text": "x"})]),
    "a kept entry put": (AppendOnlyError, None, lambda: [put(LogEntry(id="e", at=NOON, text="x"))]),
    "a kept entry deleted": (AppendOnlyError, None, lambda: [delete(LogEntry, "e")]),
    "a fence where nothing is claimed": (BadQueryError, None, lambda: [delete(Note, "n", expect=Fence(1))]),
    "a class the store was not opened with": (DeclarationError, None, lambda: [create(Setting(id="x"))]),
}  # fmt: skip

CASES = WRONG_TYPES | UNKNOWN | TOO_LARGE | BAD_IDS | FORBIDDEN_CHANGES

ASKED: dict[str, tuple[type[HoldfastError], str | None, Callable[[], Query[Any]]]] = {
    "an unknown field": (UnknownFieldError, "nope", lambda: Query(Note).where("nope", "==", 1)),
    "an unknown field in the order": (
        UnknownFieldError, "spot.nope", lambda: Query(Note).order_by("spot.nope"),
    ),
    "a path into a mapping": (UnknownFieldError, "table.x", lambda: Query(Note).where("table.x", "==", 1)),
    "a wrong type": (WrongTypeError, "whole", lambda: Query(Note).where("whole", ">", "1")),
    "a boolean for a number": (WrongTypeError, "whole", lambda: Query(Note).where("whole", "==", True)),
    "a number over 64 bits": (WrongTypeError, "whole", lambda: Query(Note).where("whole", "<", 2**63)),
    "a mixed number over 64 bits": (
        WrongTypeError, "mixed", lambda: Query(Note).where("mixed", "<", -(2**64)),
    ),
    "a number too large for a fraction": (
        WrongTypeError, "part", lambda: Query(Note).where("part", "<", 10**400),
    ),
    "NaN": (WrongTypeError, "part", lambda: Query(Note).where("part", "==", math.nan)),
    "infinity": (WrongTypeError, "mixed", lambda: Query(Note).where("mixed", "<", math.inf)),
    "a time without a zone": (
        WrongTypeError, "at", lambda: Query(Note).where("at", "<", datetime(2026, 1, 1)),
    ),
    "a mixed time without a zone": (
        WrongTypeError, "moment", lambda: Query(Note).where("moment", "<", datetime(2026, 1, 1)),
    ),
    "half a surrogate pair": (WrongTypeError, "text", lambda: Query(Note).where("text", "==", "\udc00")),
    "NUL in text": (WrongTypeError, "text", lambda: Query(Note).where("text", "==", "\x00")),
    "a list as a value": (WrongTypeError, "mixed", lambda: Query(Note).where("mixed", "==", [1])),
    "a mapping as a member": (
        WrongTypeError, "scores", lambda: Query(Note).where("scores", "array-contains", {}),
    ),
    "null where there is none": (WrongTypeError, "whole", lambda: Query(Note).where("whole", "==", None)),
    "a range from null": (BadQueryError, "at", lambda: Query(Note).where("at", ">", None)),
    "null among alternatives": (BadQueryError, "at", lambda: Query(Note).where("at", "in", [None])),
    "no alternatives": (BadQueryError, "text", lambda: Query(Note).where("text", "in", [])),
    "too many alternatives": (
        BadQueryError, "whole", lambda: Query(Note).where("whole", "in", range(ALTERNATIVES_MAX + 1)),
    ),
    "alternatives that are no list": (BadQueryError, "text", lambda: Query(Note).where("text", "in", "abc")),
    "an operator nobody knows": (BadQueryError, "text", lambda: Query(Note).where("text", "~", "a")),  # type: ignore[arg-type]
    "a list in the order": (BadQueryError, "labels", lambda: Query(Note).order_by("labels")),
    "a list compared": (BadQueryError, "labels", lambda: Query(Note).where("labels", "==", "a")),
    "a member of what is no list": (
        BadQueryError, "text", lambda: Query(Note).where("text", "array-contains", "a"),
    ),
    "the same order twice": (BadQueryError, "text", lambda: Query(Note).order_by("text", "-text")),
    "bounds of two types": (
        BadQueryError, "mixed", lambda: Query(Note).where("mixed", ">", 1).where("mixed", "<", "a"),
    ),
    "bounds of two types that Python would compare": (
        BadQueryError, "mixed", lambda: Query(Note).where("mixed", ">", 1).where("mixed", "<", True),
    ),
    "a range beside a value that must not be": (
        BadQueryError, "whole", lambda: Query(Note).where("whole", ">", 1).where("whole", "!=", 5),
    ),
    "a page of nothing": (BadQueryError, None, lambda: Query(Note).limit(0)),
    "a page too large": (BadQueryError, None, lambda: Query(Note).limit(PAGE_MAX + 1)),
    "a sub-collection without its parent": (BadQueryError, None, lambda: Query(Leaf)),
    "a bad parent": (BadIdError, "branch", lambda: Query(Leaf).under("t", "a/b")),
    "a cursor that is none": (BadCursorError, None, lambda: Query(Note).after("not a cursor")),
    "an empty cursor": (BadCursorError, None, lambda: Query(Note).after("")),
    "tenants' documents without a tenant": (WrongTenantError, None, lambda: Query(Account)),
}  # fmt: skip


async def _everything(store: Store) -> dict[str, Any]:
    handle = store.privileged()
    found: dict[str, Any] = {}
    for cls in (Note, Parcel, LogEntry, Leaf, Account, Seat):
        query: Query[Any] = Query(cls)
        query = query.across_parents() if cls is Leaf else query
        found[cls.__name__] = (await handle.query(query)).items
    return found


class InvalidInputContract:
    @pytest.fixture
    async def kept(self, store: Store) -> Store:
        documents: list[Document] = [
            Note(id="n", text="t", spot=Spot("Rome")), Note(id="m"), Parcel(id="o", opened_at=1),
            LogEntry(id="e", at=NOON), Leaf(tree="t", branch="b", id="l"), Account(id="a", tenant_id="t"),
        ]  # fmt: skip
        await store.privileged().commit(*(create(one) for one in documents))
        return store.privileged()

    async def test_each_fault_has_its_error_and_writes_nothing(self, kept: Store) -> None:
        before = await _everything(kept)
        faults = {}
        for name, (_, _, writes) in CASES.items():
            try:
                await kept.commit(put(Note(id="beside")), *writes())
                faults[name] = "nothing was refused"
            except HoldfastError as fault:
                faults[name] = f"{type(fault).__name__} {fault.code} {fault.path}"
        assert faults == {
            name: f"{kind.__name__} {kind.code} {path}" for name, (kind, path, _) in CASES.items()
        }
        assert await _everything(kept) == before

    async def test_each_wrong_question_has_its_error(self, kept: Store, store: Store) -> None:
        faults = {}
        for name, (_, _, query) in ASKED.items():
            try:
                await store.query(query())
                faults[name] = "nothing was refused"
            except HoldfastError as fault:
                faults[name] = f"{type(fault).__name__} {fault.code} {fault.path}"
        assert faults == {
            name: f"{kind.__name__} {kind.code} {path}" for name, (kind, path, _) in ASKED.items()
        }

    async def test_a_cursor_is_good_for_its_own_question_only(self, kept: Store) -> None:
        first = await kept.query(Query(Note).order_by("text").limit(1))
        others: list[Query[Any]] = [
            Query(Note), Query(Note).order_by("-text"), Query(Note).order_by("whole"), Query(Parcel),
            Query(Note).where("text", ">", "").order_by("text"),
        ]  # fmt: skip
        for other in others:
            with pytest.raises(BadCursorError):
                await kept.query(other.after(first.cursor))

    async def test_summing_what_is_no_number_is_refused(self, kept: Store) -> None:
        for field, kind in [("text", BadQueryError), ("nope", UnknownFieldError), ("labels", BadQueryError)]:
            with pytest.raises(kind) as refused:
                await kept.sum(Query(Note), field)
            assert refused.value.path == field
