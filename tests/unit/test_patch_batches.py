"""Batches of patches: a sequence of commits, judged together as they are one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import schema_of
from holdfast.store import Fence, Write
from holdfast.store.claimable import ClaimableWrites
from holdfast.store.commit import Commit
from holdfast.store.commit_batch import PatchBatch, claimed_patches
from holdfast.store.contract.models import Chore, QueuedJob

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIELDS = ("due", "owner", "status", "result")
jobs = st.builds(
    QueuedJob, id=st.integers(0, 99).map("job-{}".format), tenant_id=st.just("t"),
    due=st.sampled_from([None, None, NOON]), owner=st.sampled_from([None, "w1"]), fence=st.integers(0, 9),
)  # fmt: skip


@given(st.lists(jobs, min_size=1, max_size=6), st.sets(st.sampled_from(FIELDS), min_size=1))
def test_a_batch_leaves_something_to_claim_where_one_of_its_commits_does(
    documents: list[QueuedJob], fields: set[str]
) -> None:
    batch = claimed_patches(documents, tuple(sorted(fields)), tenant="t")
    for cls in (QueuedJob, Chore):
        claimable = ClaimableWrites(schema_of(cls))
        assert claimable.any(batch) == claimable.any(list(batch))


def test_a_batch_is_the_patches_that_it_stands_for() -> None:
    documents = [QueuedJob(id=f"j{n}", tenant_id="t", fence=n, result=f"r{n}") for n in range(3)]
    batch = claimed_patches(documents, ("result",), tenant="t")
    assert list(batch) == [_commit(n, {"result": f"r{n}"}) for n in range(3)]
    assert (batch[1], batch[-1], batch[1:]) == (list(batch)[1], list(batch)[2], list(batch)[1:])
    assert isinstance(batch, PatchBatch)
    documents[0].result = "later"
    assert batch[0] == _commit(0, {"result": "r0"})


def _commit(number: int, changes: dict[str, Any]) -> Commit:
    write = Write("patch", schema_of(QueuedJob), f"j{number}", Fence(number), None, changes)
    return Commit((write,), "t")
