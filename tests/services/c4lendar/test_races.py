"""What the design's key-value indexes lost when two did it at once: the same answers by queries are exact."""

from __future__ import annotations

import asyncio
import os
import random

from holdfast.model.access import SERVICE
from holdfast.services.c4lendar.domain.references import reference_of
from holdfast.services.c4lendar.models import RECENT_MAX, BotChat, GoogleConnection
from holdfast.simulators.telegram import Say
from holdfast.store import Query, put
from tests.services.c4lendar.harness import ALICE, ANA, Harness

# As many as the service promises on SQLite, fewer where each commit is a call to a server.
MANY = int(os.environ.get("HOLDFAST_TEST_CHAT_RACES", "0"))


def _count(harness: Harness, whole: int) -> int:
    return MANY or (whole if harness.config.store.startswith("sqlite") else whole // 5)


async def test_events_made_at_once_are_all_there_with_references_of_their_own(harness: Harness) -> None:
    await harness.connect(ALICE)
    count = _count(harness, 100)
    for number in range(count):
        harness.telegram.run(Say(chat=ANA, person=ANA, text=f"#cal event {number:03} tomorrow 9am"))
    await harness.work()
    titles = [f"event {number:03}" for number in range(count)]
    assert harness.titles(ALICE) == titles
    recent = await harness.operations.recent(str(ANA), limit=200)
    assert sorted(event.title for event in recent) == titles
    assert [event.created_at for event in recent] == sorted((e.created_at for e in recent), reverse=True)
    assert len(await harness.operations.recent(str(ANA))) == min(count, RECENT_MAX)
    uids = [event.uid for event in recent]
    references = [reference_of(uid, uids) for uid in uids]
    assert len(set(references)) == count


async def test_one_account_connected_and_disconnected_in_many_chats_at_once(harness: Harness) -> None:
    chats = [str(-200_000 - number) for number in range(_count(harness, 50))]
    now = harness.clock.now()
    for chat_id in chats:
        chat = BotChat(chat_id=chat_id, kind="group", status="approved", created_at=now, updated_at=now)
        await harness.runtime.store.tenant(chat_id).commit(put(chat))
    bot = harness.runtime.parts["c4lendar"].operations
    links = [await harness.link(chat_id) for chat_id in chats]
    await asyncio.gather(*(harness.consent(link, ALICE) for link in links))
    assert await _connected(harness) == sorted(chats)

    [account] = {one.google_sub for one in await bot.accounts(chats[0])}
    leaving = random.Random(1).sample(chats, len(chats) // 2)
    await asyncio.gather(*(
        bot.disconnect(harness.runtime.operator(SERVICE, chat_id, actor="telegram:7"), account)
        for chat_id in leaving
    ))  # fmt: skip
    assert await _connected(harness) == sorted(set(chats) - set(leaving))


async def _connected(harness: Harness) -> list[str]:
    """The chats in which an address is connected: the design's index by e-mail."""
    query = Query(GoogleConnection).where("google_email", "==", ALICE)
    rows = [one.doc async for one in harness.runtime.store.privileged().scan(query)]
    return sorted(row.chat_id for row in rows if not row.revoked)
