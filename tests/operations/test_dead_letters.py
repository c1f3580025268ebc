"""Operators replay and resolve dead letters of any outbox, each act on record."""

from __future__ import annotations

import pytest

from holdfast.errors import ForbiddenError, HoldfastError, InvalidError, NotFoundError
from holdfast.operations import dead_letters
from tests.operations.outboxes import TENANT, Setting


async def _ids(setting: Setting, outbox: str, *, resolved: bool = False) -> list[str]:
    page = await dead_letters.list_dead_letters(setting.runtime, TENANT, outbox, resolved=resolved)
    return sorted(one.id for one in page.items)


async def _dead(
    setting: Setting, count: int, *, outbox: str = "orchard", endpoint: str = "tree-1"
) -> list[str]:
    made = await setting.endpoint(outbox, endpoint)
    ids = [await setting.deliver(made, f"e{number}", outbox=outbox) for number in range(count)]
    for id in ids:
        await setting.kill(id, outbox=outbox)
    return ids


async def test_two_outboxes_keep_their_dead_letters_apart(setting: Setting) -> None:
    ours, theirs = await _dead(setting, 2), await _dead(setting, 1, outbox="harbour")
    assert (await _ids(setting, "orchard"), await _ids(setting, "harbour")) == (ours, theirs)
    report = await dead_letters.replay_all(setting.runtime, setting.by(), "harbour", dry_run=False)
    assert (report.matched, report.changed) == (1, 1)
    assert (await _ids(setting, "orchard"), await _ids(setting, "harbour")) == (ours, [])
    assert await setting.status(ours[0]) == "dead"


async def test_one_is_replayed_in_one_commit_with_its_audit_event(setting: Setting) -> None:
    (id,) = await _dead(setting, 1)
    assert (await dead_letters.replay(setting.runtime, setting.by(), "orchard", id)).replayed
    assert not (await dead_letters.replay(setting.runtime, setting.by(), "orchard", id)).replayed
    assert await _ids(setting, "orchard", resolved=True) == [id]
    assert await setting.trail() == [("dead_letter.replayed", "user:ann", id, "done")]


async def test_every_commit_of_a_replay_of_many_has_its_audit_event(setting: Setting) -> None:
    ids = await _dead(setting, 120)
    would = await dead_letters.replay_all(setting.runtime, setting.by(), "orchard", endpoint_id="tree-1")
    assert (would.matched, would.changed, await setting.trail()) == (120, 0, [])
    did = await dead_letters.replay_all(
        setting.runtime, setting.by(), "orchard", endpoint_id="tree-1", dry_run=False
    )
    assert (did.changed, await _ids(setting, "orchard")) == (120, [])
    assert {await setting.status(id) for id in ids} == {"pending"}
    assert await setting.trail() == [("dead_letters.replayed", "user:ann", "tree-1", "done")] * 2


async def test_one_is_resolved_with_a_note_and_left_alone_by_a_replay_of_many(setting: Setting) -> None:
    (id,) = await _dead(setting, 1)
    shown = await dead_letters.resolve(setting.runtime, setting.by(), "orchard", id, note=" by telephone ")
    assert (shown.resolved, shown.resolution) == (True, "by telephone")
    report = await dead_letters.replay_all(setting.runtime, setting.by(), "orchard", dry_run=False)
    assert (report.matched, await setting.status(id)) == (0, "dead")
    for note in ("", "  ", "x" * 501):
        with pytest.raises(InvalidError, match="a note has 1 to 500 characters"):
            await dead_letters.resolve(setting.runtime, setting.by(), "orchard", id, note=note)
    assert [(one[0], one[3]) for one in await setting.trail()] == [
        ("dead_letter.resolved", "done"),
        *[("dead_letter.resolved", "failed")] * 3,
    ]


async def test_unknown_ids_and_lower_roles_are_refused_and_on_record(setting: Setting) -> None:
    (id,) = await _dead(setting, 1)
    runtime, ben = setting.runtime, setting.by("developer", user="user:ben")
    for outbox, wanted in (("orchard", "none"), ("harbour", id), ("cellar", id)):
        with pytest.raises(NotFoundError):
            await dead_letters.replay(runtime, setting.by(), outbox, wanted)
        with pytest.raises(NotFoundError):
            await dead_letters.resolve(runtime, setting.by(), outbox, wanted, note="n")
    for refused in (
        dead_letters.replay(runtime, ben, "orchard", id),
        dead_letters.resolve(runtime, ben, "orchard", id, note="n"),
        dead_letters.replay_all(runtime, ben, "orchard", dry_run=False),
    ):
        with pytest.raises(ForbiddenError, match="needs admin"):
            await refused
    assert [one[3] for one in await setting.trail()] == ["failed"] * 6 + ["refused"] * 3
    assert await _ids(setting, "orchard") == [id]


async def test_what_cant_be_put_on_record_is_not_done(setting: Setting) -> None:
    (id,) = await _dead(setting, 1)
    await setting.block_trail()
    runtime, ann = setting.runtime, setting.by()
    for act in (
        dead_letters.replay(runtime, ann, "orchard", id),
        dead_letters.resolve(runtime, ann, "orchard", id, note="n"),
        dead_letters.replay_all(runtime, ann, "orchard", dry_run=False),
    ):
        with pytest.raises(HoldfastError):
            await act
    assert (await _ids(setting, "orchard"), await setting.status(id)) == ([id], "dead")
