"""Catching up, proving, refusing: what a copy does and does not do to its target."""

from __future__ import annotations

import itertools
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import apsw
import pytest

from holdfast.app import open_store
from holdfast.config import load_config
from holdfast.errors import ConfigError, ConflictError, DecryptionError, LeaseLostError, StoreUnavailableError
from holdfast.model import Document
from holdfast.runtime import Runtime
from holdfast.store import Query, Store, create, delete, patch, put
from holdfast.store.contract.models import Letter, LogEntry, Note, Parcel, QueuedJob, Seat
from holdfast.store_copy import Copy, Difference, Progress, check_target, copy_store, name_of, verify_stores
from holdfast.store_copy.copier import Copier
from holdfast.testing import ManualClock
from tests.copying.conftest import Open
from tests.copying.store_contents import contents

CLASSES: list[type[Document]] = [Note, LogEntry, QueuedJob, Letter, Parcel, Seat]
NAME = "sqlite:///here.db"


@pytest.fixture
async def source(sqlite_url: str, opened: Open) -> Store:
    store = await opened(sqlite_url, CLASSES)
    await store.privileged().commit(
        *(create(Note(id=f"n{number:03}", whole=number, labels=["a", "b"])) for number in range(250)),
        create(Parcel(id="o1", opened_at=1)),
        create(Letter(tenant_id="acme", id="l1", subject="hello")),
        create(QueuedJob(id="j1", tenant_id="acme", due=store.clock.now())),
    )
    return store


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def target(request: pytest.FixtureRequest, opened: Open) -> Store:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return await opened(url.replace(".db", "-copy.db"), CLASSES)


@pytest.fixture
async def target_store(sqlite_url: str, opened: Open) -> Store:
    """A second store as the target, where the engine doesn't matter."""
    return await opened(sqlite_url.replace(".db", "-copy.db"), CLASSES)


async def _marker(store: Store) -> Copy:
    found = await store.get(Copy, "copy")
    assert found is not None
    return found.doc


async def test_a_second_run_writes_only_what_changed_and_removes_what_is_gone(
    source: Store, target: Store, clock: ManualClock
) -> None:
    first = await copy_store(source, target, CLASSES, name=NAME)
    assert (first.state, first.in_step, first.written, first.removed) == ("unfinished", True, 253, 0)
    await source.privileged().commit(
        patch(Note, "n100", changes={"whole": -1, "labels": ["c"]}),
        delete(Note, "n200"),
        create(Note(id="n050b")),
        patch(Parcel, "o1", changes={"status": "paid"}),
        create(LogEntry(id="e1", at=clock.now())),
    )
    await source.tenant("acme").claim_due(QueuedJob, limit=1, lease_s=60, owner="w")
    second = await copy_store(source, target, CLASSES, name=NAME)
    assert (second.in_step, second.written, second.removed) == (True, 5, 1)
    assert await contents(target, CLASSES) == await contents(source, CLASSES)


async def test_what_the_declaration_forbids_a_writer_is_copied_as_it_happened(
    source: Store, target: Store, clock: ManualClock
) -> None:
    """A document made anew under an old id has other fixed fields; what is append-only ends by retention."""
    await source.commit(create(LogEntry(id="e1", at=clock.now())))
    await copy_store(source, target, CLASSES, name=NAME)
    await source.commit(delete(Parcel, "o1"))
    await source.commit(create(Parcel(id="o1", opened_at=2)))
    await source.commit(patch(Parcel, "o1", changes={"status": "dropped"}))
    clock.tick(timedelta(minutes=2).total_seconds())
    assert await source.expire(LogEntry) == 1
    copied = await copy_store(source, target, CLASSES, name=NAME, final=True)
    assert (copied.state, copied.written, copied.removed) == ("finished", 1, 1)
    assert await contents(target, CLASSES) == await contents(source, CLASSES)


async def test_lists_are_indexed_in_the_target_as_they_are_now(source: Store, target: Store) -> None:
    await copy_store(source, target, CLASSES, name=NAME)
    await source.commit(patch(Note, "n007", changes={"labels": ["only"]}))
    await copy_store(source, target, CLASSES, name=NAME)
    for label, count in (("only", 1), ("a", 249)):
        assert await target.count(Query(Note).where("labels", "array-contains", label)) == count


async def test_documents_as_large_as_can_be_arrive(source: Store, target: Store) -> None:
    """More than an engine takes in one request, so a commit must be cut by size as well as by number."""
    for number in range(5):
        await source.commit(create(Note(id=f"large-{number}", anything="ß" * 500_000)))
    copied = await copy_store(source, target, [Note], name=NAME, final=True)
    assert (copied.state, copied.written) == ("finished", 255)


async def test_a_document_that_is_not_as_declared_is_told_and_stops_the_copy(
    source: Store, target_store: Store, sqlite_url: str
) -> None:
    with closing(apsw.Connection(sqlite_url.removeprefix("sqlite:///"))) as link, link:
        link.execute("UPDATE notes SET _body = json_set(_body, '$.whole', 'seven') WHERE _key = 'n150'")
    with pytest.raises(DecryptionError, match=r"notes: one of the 100 documents after 'n099' .*`\$\.whole`"):
        await copy_store(source, target_store, CLASSES, name=NAME)
    await source.commit(delete(Note, "n150"))
    assert (await copy_store(source, target_store, CLASSES, name=NAME, final=True)).state == "finished"


class _Interrupted(Exception):
    pass


def _interrupt(progress: Progress) -> None:
    if progress.seen >= 1_000:
        raise _Interrupted


async def _interrupted(source: Store, target: Store) -> int:
    """Break off the first walk over 1,503 documents in its middle; gives how many are in the target."""
    for start in range(0, 1_250, 250):
        await source.commit(*(create(Note(id=f"p{start + n:04}")) for n in range(250)))
    with pytest.raises(_Interrupted):
        await copy_store(source, target, CLASSES, name=NAME, report=_interrupt)
    landed = sum(map(len, (await contents(target, CLASSES)).values()))
    assert landed == (await _marker(target)).written
    return landed


async def test_a_first_walk_that_was_broken_off_goes_on_where_it_was(source: Store, target: Store) -> None:
    landed = await _interrupted(source, target)
    assert 800 <= landed < 1_100
    copied = await copy_store(source, target, CLASSES, name=NAME, final=True)
    assert [walk.seen for walk in copied.walks] == [1_503 - landed, 1_503]
    assert copied.written == 1_503 - landed
    assert (await _marker(target)).runs == 2


async def test_the_rest_of_a_broken_walk_proves_nothing_about_its_beginning(
    source: Store, target_store: Store
) -> None:
    landed = await _interrupted(source, target_store)
    ours, theirs = await contents(source, [Note]), await contents(target_store, [Note])
    left = sorted(ours["Note"].keys() - theirs["Note"].keys())
    for start in range(0, len(left), 250):
        await source.commit(*(delete(Note, id) for id in left[start : start + 250]))
    await source.privileged().commit(delete(Parcel, "o1"), delete(Letter, "acme", "l1"))
    await source.commit(patch(Note, "n000", changes={"text": "changed behind its back"}))
    copied = await copy_store(source, target_store, CLASSES, name=NAME, final=True)
    assert [walk.differing for walk in copied.walks] == [0, 1, 0]
    assert await contents(target_store, CLASSES) == await contents(source, CLASSES)
    assert landed == sum(one.documents for one in copied.proof)


async def test_a_finished_copy_keeps_the_proof_and_is_not_copied_to_again(
    source: Store, target_store: Store
) -> None:
    await copy_store(source, target_store, CLASSES, name=NAME, final=True)
    marker = await _marker(target_store)
    assert (marker.state, marker.source) == ("finished", NAME)
    assert {one.collection: one.documents for one in marker.proof if one.documents} == {
        "jobs": 1, "notes": 250, "orders": 1, "tenants/letters": 1,
    }  # fmt: skip
    assert all(one.hash == one.target_hash for one in marker.proof)
    with pytest.raises(ConfigError, match="finished at"):
        await copy_store(source, target_store, CLASSES, name=NAME)


async def test_the_last_word_is_refused_while_somebody_writes(
    source: Store, target_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something new lands in the source whenever the copy writes, so each walk leaves some for the next."""
    commit, numbers = target_store.engine.commit, itertools.count()

    async def beside_a_writer(commits: Any) -> Any:
        await source.tenant("acme").commit(create(Letter(tenant_id="acme", id=f"new-{next(numbers)}")))
        return await commit(commits)

    with monkeypatch.context() as patched:
        patched.setattr(target_store.engine, "commit", beside_a_writer)
        with pytest.raises(ConflictError, match="stop all that writes"):
            await copy_store(source, target_store, CLASSES, name=NAME, final=True, walks_max=3)
    assert (await _marker(target_store)).state == "unfinished"
    assert (await copy_store(source, target_store, CLASSES, name=NAME, final=True)).state == "finished"
    assert await contents(target_store, CLASSES) == await contents(source, CLASSES)


async def test_a_single_walk_that_is_to_finish_takes_one_more_that_proves(
    source: Store, target_store: Store
) -> None:
    copied = await copy_store(source, target_store, CLASSES, name=NAME, final=True, walks_max=1)
    assert (copied.state, len(copied.walks)) == ("finished", 2)


async def test_a_target_that_does_not_answer_is_not_taken_for_an_empty_one(target_store: Store) -> None:
    await target_store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await check_target(target_store, CLASSES, source=NAME)


async def test_a_second_copier_ends_the_first_ones_writes(source: Store, target_store: Store) -> None:
    first = Copier(source, target_store, CLASSES, report=None)
    await first.begin(NAME)
    second = Copier(source, target_store, CLASSES, report=None)
    await second.begin(NAME)
    with pytest.raises(LeaseLostError, match="taken over"):
        await first.run(final=False, walks_max=1)
    assert sum(map(len, (await contents(target_store, CLASSES)).values())) == 0
    assert (await second.run(final=True, walks_max=2)).state == "finished"


async def test_somebody_elses_write_to_the_target_ends_the_copy(source: Store, target_store: Store) -> None:
    await copy_store(source, target_store, [Parcel], name=NAME)
    copier = Copier(source, target_store, CLASSES, report=None)
    await copier.begin(NAME)
    copier._writes.append(create(Note(id="n100")))
    await target_store.commit(create(Note(id="n100")))
    with pytest.raises(ConflictError, match="another process writes to the target"):
        await copier._commit()


async def test_a_target_with_documents_of_its_own_is_left_alone(source: Store, target: Store) -> None:
    await target.commit(put(Seat(row="A", number=1)))
    with pytest.raises(ConfigError, match="not empty: seats"):
        await copy_store(source, target, CLASSES, name=NAME)
    assert await target.get(Copy, "copy") is None
    assert (await contents(target, [Note]))["Note"] == {}


async def test_a_copy_of_another_source_is_left_alone(source: Store, target_store: Store) -> None:
    await copy_store(source, target_store, CLASSES, name=NAME)
    with pytest.raises(ConfigError, match=r"holds a copy of sqlite:///here\.db, not of"):
        await copy_store(source, target_store, CLASSES, name="sqlite:///there.db")


async def test_verifying_names_each_damage_and_changes_nothing(
    source: Store, target_store: Store, sqlite_url: str
) -> None:
    await copy_store(source, target_store, CLASSES, name=NAME, final=True)
    file = sqlite_url.removeprefix("sqlite:///").replace(".db", "-copy.db")
    with closing(apsw.Connection(file)) as link, link:
        link.execute(
            "UPDATE notes SET _body = replace(_body, '\"whole\":42', '\"whole\":43') WHERE _key = 'n042'"
        )
        link.execute("DELETE FROM orders WHERE _key = 'o1'")
        link.execute("UPDATE jobs SET fence = 7 WHERE _key = 'j1'")
    await target_store.commit(create(Seat(row="B", number=2)))
    walked = await verify_stores(source, target_store, CLASSES)
    assert (walked.missing, walked.changed, walked.extra) == (1, 2, 1)
    assert walked.named == [
        Difference(collection="jobs", id="j1", kind="changed"),
        Difference(collection="notes", id="n042", kind="changed"),
        Difference(collection="orders", id="o1", kind="missing"),
        Difference(collection="seats", id="B_2", kind="extra"),
    ]
    tallies = {one.collection: one for one in walked.tallies}
    assert tallies["notes"].hash != tallies["notes"].target_hash
    assert (tallies["orders"].documents, tallies["orders"].target_documents) == (1, 0)
    assert tallies["entries"].hash == tallies["entries"].target_hash
    assert (await verify_stores(source, target_store, CLASSES)).named == walked.named


async def test_an_unfinished_copy_takes_no_work(source: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'served.db'}"
    config = load_config({"store": url, "home": str(tmp_path / "home")}, environ={})
    served = await Runtime.open(config, services=())
    await served.close()

    async def begun(state: Literal["unfinished", "finished"]) -> None:
        store = await open_store(url, [Copy])
        now = store.clock.now()
        await store.commit(put(Copy(source=NAME, state=state, started_at=now, updated_at=now)))
        await store.close()

    await begun("unfinished")
    with pytest.raises(ConfigError, match=r"unfinished copy of sqlite:///here\.db"):
        await Runtime.open(config, services=())
    await begun("finished")
    await (await Runtime.open(config, services=())).close()


def test_a_store_is_named_without_its_password_and_alike_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name_of("postgresql://app:hunter2@db:5432/shop") == "postgresql://app:***@db:5432/shop"
    monkeypatch.chdir(tmp_path)
    absolute = f"sqlite:///{tmp_path}/a%20b.db?synchronous=normal"
    assert name_of("sqlite:///a%20b.db") == name_of(absolute) == f"sqlite:///{tmp_path}/a b.db"
