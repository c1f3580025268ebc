"""Checkpoints: one latest per run, moved with the work it stands for."""

from __future__ import annotations

import pytest

from holdfast.errors import AlreadyExistsError, ImmutableFieldError, TooLargeError
from holdfast.kit.checkpoints import CheckpointDocument, Checkpoints
from holdfast.model import Document, document
from holdfast.store.commit import create, patch
from holdfast.store.store import Store
from holdfast.testing import ManualClock


@document("pages_fetched/{id}", tenant="tenant_id")
class PageFetched(Document):
    id: str
    tenant_id: str


DOCUMENTS = [CheckpointDocument, PageFetched]


async def _advance(store: Store, checkpoints: Checkpoints, page: int) -> None:
    before = await checkpoints.latest("run-1")
    new = checkpoints.next("run-1", step_id=f"page-{page}", state={"page": page, "seen": ["a"]}, after=before)
    made = create(PageFetched(id=f"page-{page}", tenant_id="acme"))
    await store.commit(made, *checkpoints.writes_checkpoint(new, after=before))


async def test_the_latest_checkpoint_is_one_and_carries_the_last_state(kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    checkpoints = Checkpoints(acme)
    assert await checkpoints.latest("run-1") is None
    for page in (1, 2, 3):
        await _advance(acme, checkpoints, page)
    latest = await checkpoints.latest("run-1")
    assert latest is not None
    assert (latest.step_id, latest.number, latest.state) == ("page-3", 3, {"page": 3, "seen": ["a"]})
    history = await checkpoints.history("run-1")
    assert [(one.number, one.is_latest) for one in history] == [(3, True), (2, False), (1, False)]


async def test_of_two_that_go_on_from_the_same_checkpoint_one_lands_with_its_work(kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    checkpoints = Checkpoints(acme)
    await _advance(acme, checkpoints, 1)
    before = await checkpoints.latest("run-1")
    rival = checkpoints.next("run-1", step_id="rival", state={}, after=before)
    await _advance(acme, checkpoints, 2)
    with pytest.raises(AlreadyExistsError):
        await acme.commit(
            create(PageFetched(id="rival", tenant_id="acme")),
            *checkpoints.writes_checkpoint(rival, after=before),
        )
    assert await acme.get(PageFetched, "rival") is None
    assert [one.is_latest for one in await checkpoints.history("run-1")] == [True, False]


async def test_a_refused_commit_leaves_the_latest_where_it_was(kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    checkpoints = Checkpoints(acme)
    await _advance(acme, checkpoints, 1)
    with pytest.raises(AlreadyExistsError):
        await _advance(acme, checkpoints, 1)
    latest = await checkpoints.latest("run-1")
    assert latest is not None
    assert latest.number == 1


async def test_a_state_once_kept_does_not_change(kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    await _advance(acme, Checkpoints(acme), 1)
    with pytest.raises(ImmutableFieldError):
        await acme.commit(patch(CheckpointDocument, "run-1.00001", changes={"state": {"page": 9}}))


async def test_superseded_checkpoints_expire_and_the_latest_stays(
    kit_store: Store, clock: ManualClock
) -> None:
    acme = kit_store.tenant("acme")
    checkpoints = Checkpoints(acme)
    for page in (1, 2, 3):
        await _advance(acme, checkpoints, page)
    await clock.advance(8 * 86_400)
    assert await kit_store.privileged().expire(CheckpointDocument) == 2
    assert [one.number for one in await checkpoints.history("run-1")] == [3]


async def test_a_state_too_large_to_keep_is_refused(kit_store: Store) -> None:
    with pytest.raises(TooLargeError):
        Checkpoints(kit_store).next("run-1", step_id="s", state={"text": "x" * 600_000}, after=None)
