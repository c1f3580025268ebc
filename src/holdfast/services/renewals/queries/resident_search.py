"""Finding a resident by what a person remembers (name, unit, id), each by one stretch of an index."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from holdfast.errors import BadIdError
from holdfast.services.renewals.models import Resident, Unit
from holdfast.store import Query, Store

FOUND_MAX: Final = 50
_LAST_LETTER: Final = "\U0010ffff"


async def find_residents(store: Store, property_id: str, words: str) -> list[str]:
    """Ids of those in a property whose last name begins so, who live in this unit, or who have this id.

    Example: `await find_residents(store, "property-7", "ada gar")` finds Ada García
    """
    words = " ".join("".join(letter for letter in words if letter.isprintable()).split())
    if not words:
        return []
    known = await _known(store, property_id, words)
    housed = await _housed(store, property_id, words)
    named = await _named(store, property_id, words)
    return list(dict.fromkeys(one.id for one in (*known, *housed, *named)))[:FOUND_MAX]


async def _known(store: Store, property_id: str, id: str) -> list[Resident]:
    with contextlib.suppress(BadIdError):
        found = await store.get(Resident, id)
        return [found.doc] if found is not None and found.doc.property_id == property_id else []
    return []


async def _named(store: Store, property_id: str, words: str) -> list[Resident]:
    """By the last name, or by first and last name as people write them."""
    first, _, last = words.rpartition(" ")
    found = await _begins(store, property_id, words)
    if first:
        found += [
            one
            for one in await _begins(store, property_id, last)
            if one.first_name.casefold().startswith(first.casefold())
        ]
    return found


async def _begins(store: Store, property_id: str, start: str) -> list[Resident]:
    found: list[Resident] = []
    for spelt in _spellings(start):
        query = Query(Resident).where("property_id", "==", property_id)
        query = query.where("last_name", ">=", spelt).where("last_name", "<", spelt + _LAST_LETTER)
        found += (await store.query(query.order_by("last_name", "first_name").limit(FOUND_MAX))).docs
    return found


def _spellings(start: str) -> Iterable[str]:
    """An index knows large and small letters apart; people who search don't."""
    *before, last = start.lower().split(" ")
    particle = " ".join((*before, last.capitalize()))  # as in van Dyke
    return dict.fromkeys((start, start.title(), start[:1].upper() + start[1:], particle))


async def _housed(store: Store, property_id: str, words: str) -> list[Resident]:
    units = Query(Unit).where("property_id", "==", property_id).where("unit_number", "==", words)
    found: list[Resident] = []
    for unit in (await store.query(units.limit(FOUND_MAX))).docs:
        found += (await store.query(Query(Resident).where("unit_id", "==", unit.id).limit(FOUND_MAX))).docs
    return [one for one in found if one.property_id == property_id]
