"""Rotation on every engine: beside writers, across tenants, into lists, past damage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from holdfast.errors import DecryptionError, WrongTenantError
from holdfast.kit.vault import Rotation, Vault, new_key, rotate
from holdfast.model import Document, document
from holdfast.store import Increment, Query, QueryPage, Store, create, delete, patch

D = TypeVar("D", bound=Document)

OLD_KEY, NEW_KEY = new_key("old"), new_key("new")
OLD = Vault.from_settings(OLD_KEY)
BOTH = Vault.from_settings(f"{NEW_KEY},{OLD_KEY}", legacy_key="short-key")
NEW = Vault.from_settings(NEW_KEY)
LEGACY = "sfbmx2skMEvdfldwPulpNTl+UEGrx/GeKOpyqZOnZLgnb0CdAO1zy2Br9paZEQkrK2PB1A=="


class Part(msgspec.Struct, frozen=True, rename="camel"):
    sealed_text: str
    note: str = ""


@document("vault_chats/{chat_id}/accounts/{id}", tenant="chat_id")
class Account(Document, rename="camel"):
    chat_id: str
    id: str
    refresh_token: str | None = None
    parts: list[Part] = []
    touched: int = 0


DOCUMENTS = [Account, Rotation]
FIELDS = ["refresh_token", "parts.sealed_text"]


def account(chat_id: str, account_id: str, *, vault: Vault = OLD) -> Account:
    token, parts = (vault.field(Account, name) for name in FIELDS)
    ids = (chat_id, account_id)
    return Account(
        chat_id=chat_id,
        id=account_id,
        refresh_token=token.seal(f"token of {account_id}", *ids),
        parts=[Part(parts.seal(f"{n} of {account_id}", *ids), f"note {n}") for n in range(2)],
    )


async def fill(store: Store, count: int) -> None:
    made = [account(f"chat-{n % 3}", f"a-{n:04}") for n in range(count)]
    for at in range(0, count, 50):
        await store.privileged().commit(*(create(one) for one in made[at : at + 50]))


async def revealed(store: Store, vault: Vault) -> dict[str, list[str]]:
    found = {}
    token, parts = (vault.field(Account, name) for name in FIELDS)
    async for snapshot in store.privileged().scan(Query(Account).across_parents().limit(100)):
        one, ids = snapshot.doc, (snapshot.doc.chat_id, snapshot.doc.id)
        texts = [token.open(one.refresh_token or "", *ids)]
        texts += [parts.open(part.sealed_text, *ids) for part in one.parts]
        found[one.id] = [text.reveal() for text in texts]
    return found


def expected(count: int) -> dict[str, list[str]]:
    names = [f"a-{n:04}" for n in range(count)]
    return {name: [f"token of {name}", f"0 of {name}", f"1 of {name}"] for name in names}


async def test_a_rotation_brings_every_tenants_secrets_to_the_new_key(kit_store: Store) -> None:
    await fill(kit_store, 60)
    heard: list[tuple[int, int]] = []
    rotation = await rotate(
        BOTH, Account, fields=FIELDS, store=kit_store, batch=25,
        report=lambda r: heard.append((r.walk, r.seen_in_walk)),
    )  # fmt: skip
    assert (rotation.state, rotation.resealed, rotation.unreadable) == ("finished", 60, [])
    assert heard[:3] == [(1, 25), (1, 50), (2, 0)]
    assert heard[-1] == (2, 60)
    assert await revealed(kit_store, NEW) == expected(60)


async def test_a_second_rotation_finds_nothing_to_do(kit_store: Store) -> None:
    await fill(kit_store, 10)
    await rotate(BOTH, Account, fields=FIELDS, store=kit_store)
    before = [s.version async for s in kit_store.privileged().scan(Query(Account).across_parents())]
    rotation = await rotate(BOTH, Account, fields=FIELDS, store=kit_store)
    after = [s.version async for s in kit_store.privileged().scan(Query(Account).across_parents())]
    assert (rotation.resealed, rotation.walk, before) == (0, 1, after)


async def test_older_and_empty_and_damaged_values_are_each_dealt_with(kit_store: Store) -> None:
    store = kit_store.privileged()
    legacy = Account(chat_id="c", id="legacy", refresh_token=LEGACY)
    empty = Account(chat_id="c", id="none")
    moved = account("c", "moved")
    moved.refresh_token = account("c", "other").refresh_token
    await store.commit(*(create(one) for one in (legacy, empty, moved)))
    rotation = await rotate(BOTH, Account, fields=FIELDS, store=kit_store)
    assert rotation.unreadable == ["c/moved/refreshToken"]
    assert (rotation.unreadable_in_walk, rotation.state) == (1, "finished")
    found = {s.doc.id: s.doc async for s in store.scan(Query(Account).across_parents())}
    token, parts = (NEW.field(Account, name) for name in FIELDS)
    assert (
        token.open(found["legacy"].refresh_token or "", "c", "legacy").reveal() == "1//0gExampleRefreshToken"
    )
    assert found["none"].refresh_token is None
    # What can be read beside the damaged value was taken along; the damaged one is as it was.
    assert parts.open(found["moved"].parts[1].sealed_text, "c", "moved").reveal() == "1 of moved"
    assert found["moved"].refresh_token == moved.refresh_token


async def test_writers_beside_a_rotation_lose_nothing(kit_store: Store) -> None:
    await fill(kit_store, 60)
    store = kit_store.privileged()
    stop = asyncio.Event()
    written: dict[str, int] = {}

    async def write(offset: int) -> None:
        n = offset
        while not stop.is_set():
            ids = (f"chat-{n % 3}", f"a-{n:04}")
            written[ids[1]] = written.get(ids[1], 0) + 1
            await store.commit(patch(Account, *ids, changes={"touched": Increment(1)}))
            n = offset + (n - offset + 3) % 60

    writers = [asyncio.create_task(write(offset)) for offset in range(0, 3)]
    rotation = await rotate(BOTH, Account, fields=FIELDS, store=kit_store, batch=10)
    stop.set()
    await asyncio.gather(*writers)
    assert rotation.state == "finished"
    assert await revealed(kit_store, NEW) == expected(60)
    found = {s.doc.id: s.doc.touched async for s in store.scan(Query(Account).across_parents())}
    assert {name: count for name, count in found.items() if count} == written


class Interrupted(Store):
    """A handle on which somebody else writes right after each page is read."""

    between: Callable[[], Awaitable[object]] | None = None

    def privileged(self) -> Interrupted:
        return self

    async def query(self, query: Query[D]) -> QueryPage[D]:
        page = await super().query(query)
        between, self.between = self.between, None
        if between is not None:
            await between()
        return page


async def test_a_secret_replaced_or_removed_after_it_was_read_is_not_brought_back(kit_store: Store) -> None:
    await fill(kit_store, 6)
    store = kit_store.privileged()
    replaced, removed = ("chat-0", "a-0000"), ("chat-1", "a-0001")
    anew = OLD.field(Account, "refresh_token").seal("given anew", *replaced)
    handle = Interrupted(kit_store.engine, clock=kit_store.clock, privileged=True)
    handle.between = lambda: store.commit(
        patch(Account, *replaced, changes={"refresh_token": anew}), delete(Account, *removed)
    )
    await rotate(BOTH, Account, fields=FIELDS, store=handle)
    opened = await revealed(kit_store, NEW)
    assert opened.pop("a-0000") == ["given anew", "0 of a-0000", "1 of a-0000"]
    assert opened == {name: texts for name, texts in expected(6).items() if name > "a-0001"}


async def test_a_value_written_with_the_old_key_behind_the_walk_is_found_by_the_next(
    kit_store: Store,
) -> None:
    await fill(kit_store, 30)
    store = kit_store.privileged()
    late = account("chat-0", "a-0000-late")
    commits: list[asyncio.Task[object]] = []

    def report(rotation: Rotation) -> None:
        if not commits:
            commits.append(asyncio.create_task(_put_late(store, late)))

    await rotate(BOTH, Account, fields=FIELDS, store=kit_store, batch=5, report=report)
    await asyncio.gather(*commits)
    opened = await revealed(kit_store, NEW)
    assert opened["a-0000-late"][0] == "token of a-0000-late"
    assert len(opened) == 31


async def _put_late(store: Store, late: Account) -> None:
    await store.commit(create(late), delete(Account, "chat-1", "no-such"))


async def test_an_interrupted_rotation_goes_on_where_it_was(kit_store: Store) -> None:
    await fill(kit_store, 40)

    def interrupt(rotation: Rotation) -> None:
        if rotation.seen_in_walk >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rotate(BOTH, Account, fields=FIELDS, store=kit_store, batch=10, report=interrupt)
    assert len(await revealed(kit_store, BOTH)) == 40
    heard: list[int] = []
    rotation = await rotate(
        BOTH, Account, fields=FIELDS, store=kit_store, batch=10, report=lambda r: heard.append(r.seen_in_walk)
    )
    assert (heard[0], rotation.resealed) == (30, 40)
    assert await revealed(kit_store, NEW) == expected(40)
    with pytest.raises(DecryptionError):
        await revealed(kit_store, OLD)


async def test_a_tenants_handle_can_not_rotate(kit_store: Store) -> None:
    with pytest.raises(WrongTenantError):
        await rotate(BOTH, Account, fields=FIELDS, store=kit_store.tenant("chat-0"))
