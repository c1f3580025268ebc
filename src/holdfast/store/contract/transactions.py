"""A transaction commits only where nothing that it read has changed."""

from __future__ import annotations

import pytest

from holdfast.errors import AlreadyExistsError, IllegalMoveError, VersionConflictError
from holdfast.store.commit import create, delete, patch, put
from holdfast.store.contract.models import Note, Parcel
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction


class TransactionContract:
    async def test_a_transaction_writes_what_it_decided_and_gives_its_answer(self, store: Store) -> None:
        await store.commit(create(Note(id="n", whole=2)))

        async def double(transaction: Transaction) -> int:
            found = await transaction.get(Note, "n")
            assert found is not None
            transaction.write(patch(Note, "n", changes={"whole": found.doc.whole * 2}))
            return found.doc.whole

        assert [await store.transact(double), await store.transact(double)] == [2, 4]
        found = await store.get(Note, "n")
        assert found is not None
        assert found.doc.whole == 8

    async def test_a_write_in_between_makes_it_decide_again(self, store: Store) -> None:
        await store.commit(create(Note(id="n", whole=1)))
        tries: list[int] = []

        async def add_one(transaction: Transaction) -> None:
            found = await transaction.get(Note, "n")
            assert found is not None
            tries.append(found.doc.whole)
            if len(tries) == 1:
                await store.commit(put(Note(id="n", whole=10)))
            transaction.write(put(Note(id="n", whole=found.doc.whole + 1)))

        await store.transact(add_one)
        found = await store.get(Note, "n")
        assert found is not None
        assert (tries, found.doc.whole) == ([1, 10], 11)

    async def test_what_was_only_read_is_guarded_too(self, store: Store) -> None:
        await store.commit(create(Note(id="rule", flag=True)))
        tries = 0

        async def obey(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            rule, other = await transaction.get(Note, "rule"), await transaction.get(Note, "other")
            if tries == 1:
                await store.commit(put(Note(id="rule", flag=False)))
            if tries == 2:
                await store.commit(create(Note(id="other")))
            assert rule is not None
            transaction.write(put(Note(id="n", flag=rule.doc.flag, whole=1 if other else 0)))

        await store.transact(obey)
        found = await store.get(Note, "n")
        assert found is not None
        assert (tries, found.doc.flag, found.doc.whole) == (3, False, 1)

    async def test_a_document_found_absent_and_made_meanwhile_is_not_overwritten(self, store: Store) -> None:
        first = True

        async def make(transaction: Transaction) -> str:
            nonlocal first
            found = await transaction.get(Note, "n")
            if found is not None:
                return found.doc.text
            if first:
                first = False
                await store.commit(create(Note(id="n", text="theirs")))
            transaction.write(put(Note(id="n", text="mine")))
            return "mine"

        assert await store.transact(make) == "theirs"

    async def test_it_gives_up_after_the_attempts_it_has(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        tries = 0

        async def disturbed(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            await transaction.get(Note, "n")
            await store.commit(put(Note(id="n", whole=tries)))
            transaction.write(delete(Note, "n"))

        with pytest.raises(VersionConflictError):
            await store.transact(disturbed, attempts=3, back_off_s=0.001)
        assert tries == 3

    async def test_what_no_new_try_can_mend_is_told_at_once(self, store: Store) -> None:
        await store.commit(create(Note(id="n")), create(Parcel(id="o", opened_at=1)))
        tries = 0

        async def create_blindly(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            transaction.write(create(Note(id="n")))

        async def move_illegally(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            await transaction.get(Parcel, "o")
            transaction.write(patch(Parcel, "o", changes={"status": "sent"}))

        with pytest.raises(AlreadyExistsError):
            await store.transact(create_blindly)
        with pytest.raises(IllegalMoveError):
            await store.transact(move_illegally)
        assert tries == 2

    async def test_one_that_only_reads_writes_nothing(self, store: Store) -> None:
        async def look(transaction: Transaction) -> bool:
            return await transaction.get(Note, "n") is None

        assert await store.transact(look)

    async def test_a_transaction_reads_its_own_puts_and_the_last_one_counts(self, store: Store) -> None:
        await store.commit(create(Note(id="n", whole=1)))
        tries = 0

        async def add_twice(transaction: Transaction) -> None:
            nonlocal tries
            tries += 1
            for _ in range(2):
                found = await transaction.get(Note, "n")
                assert found is not None
                transaction.write(put(Note(id="n", whole=found.doc.whole + 1)))
            if tries == 1:
                await store.commit(put(Note(id="n", whole=10)))

        await store.transact(add_twice)
        found = await store.get(Note, "n")
        assert found is not None
        assert (tries, found.doc.whole) == (2, 12)
