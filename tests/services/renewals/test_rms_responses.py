"""What an RMS may answer, however strange: no event hangs, none is sent twice."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import itertools
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from aiohttp import web

from holdfast.operations.endpoints import EndpointRow
from holdfast.services.renewals.models import DeadLetterRow, DeliveryState
from holdfast.store import Query
from tests.services.renewals.server import AS_OF, ENDPOINTS, P, Person, Server, serving, settle_in

PLAIN = "x-webhook-signature"


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


@dataclass
class Got:
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers each resident's messages as it was told to, then 200; keeps every byte that came."""

    def __init__(self) -> None:
        self.answers: dict[str, deque[Answer]] = defaultdict(deque)
        self.got: dict[str, list[Got]] = defaultdict(list)
        self.port = 0

    async def receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        who = str(json.loads(body)["residentId"])
        self.got[who].append(Got({name.lower(): value for name, value in request.headers.items()}, body))
        planned = self.answers[who]
        answer = planned.popleft() if planned else Answer(200)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    def url(self, property_id: str) -> str:
        return f"http://127.0.0.1:{self.port}/{property_id}"


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/{name:.*}", receiver.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def set_endpoint(server: Server, receiver: Receiver, property_id: str = P) -> EndpointRow:
    return await server.create_endpoint(property_id, receiver.url(property_id))


async def trigger(server: Server, who: str, property_id: str = P) -> Any:
    return await server.post(f"/properties/{property_id}/residents/{who}/trigger-renewal-event")


def seconds_between(attempts: list[Any]) -> list[float]:
    times = [datetime.fromisoformat(one["at"]) for one in attempts]
    return [(after - before).total_seconds() for before, after in itertools.pairwise(times)]


def on_date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


# Answer of the first attempt, the state it ends in, statuses of all attempts.
FIRST_ANSWERS: dict[str, tuple[Answer, str, list[int]]] = {
    "r200": (Answer(200), "delivered", [200]),
    "r202": (Answer(202), "delivered", [202]),
    "r204": (Answer(204, body=b""), "delivered", [204]),
    "r299": (Answer(299), "delivered", [299]),
    "r301": (Answer(301, {"Location": "/elsewhere"}), "delivered", [301, 200]),
    "r304": (Answer(304, body=b""), "delivered", [304, 200]),
    "r308": (Answer(308, {"Location": "/elsewhere"}), "delivered", [308, 200]),
    "r400": (Answer(400), "dlq", [400]),
    "r401": (Answer(401), "dlq", [401]),
    "r404": (Answer(404), "dlq", [404]),
    "r408": (Answer(408), "delivered", [408, 200]),
    "r409": (Answer(409), "dlq", [409]),
    "r422": (Answer(422), "dlq", [422]),
    "r425": (Answer(425), "delivered", [425, 200]),
    "r429": (Answer(429), "delivered", [429, 200]),
    "r451": (Answer(451), "dlq", [451]),
    "r500": (Answer(500), "delivered", [500, 200]),
    "r503": (Answer(503), "delivered", [503, 200]),
    "nul": (Answer(500, body=b"\x00\xff\xfe\x00" * 3_000), "delivered", [500, 200]),
    "late-date": (Answer(503, {"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}), "delivered", [503, 200]),
    "nonsense": (Answer(503, {"Retry-After": "soon, please"}), "delivered", [503, 200]),
    "negative": (Answer(429, {"Retry-After": "-5"}), "delivered", [429, 200]),
    "no-such-zone": (
        Answer(503, {"Retry-After": "Fri, 31 Dec 2026 23:59:59 +99999999999999999999"}),
        "delivered", [503, 200],
    ),
    "no-such-day": (
        Answer(429, {"Retry-After": "Fri, 99999999999999999999 Dec 2026 01:01:01 GMT"}),
        "delivered", [429, 200],
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_every_answer_is_judged_as_it_should_be(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if engine == "postgres" else None
    async with serving(tmp_path, url=url) as server, receiving() as receiver:
        people = [Person(name, 10, 1_000) for name in FIRST_ANSWERS]
        await settle_in(server.store, people)
        await server.calculate()
        await set_endpoint(server, receiver)
        told = {}
        for name, (answer, _, _) in FIRST_ANSWERS.items():
            receiver.answers[name].append(answer)
            told[name] = await trigger(server, name)
        for name, (_, status, statuses) in FIRST_ANSWERS.items():
            found = await server.delivery(told[name]["deliveryId"], "delivered", "dlq", within_s=60)
            assert (found["status"], [one["status"] for one in found["attempts"]]) == (status, statuses), name
            assert len({one.body for one in receiver.got[name]}) == 1, name
            assert len(receiver.got[name]) == len(statuses), name
            # A wait that makes no sense is as if none was asked for: the schedule's own second.
            assert all(0.99 <= wait < 30 for wait in seconds_between(found["attempts"])), (name, found)
        await every_dead_letter_has_its_delivery(server)


async def every_dead_letter_has_its_delivery(server: Server) -> None:
    letters = (await server.store.query(_letters().limit(100))).docs
    query = Query(DeliveryState).where("status", "==", "dlq").order_by("-created_at")
    dead = (await server.store.query(query.limit(100))).docs
    assert {one.id: one.reason for one in letters} == {one.id: one.reason for one in dead}
    assert len(dead) == sum(status == "dlq" for _, status, _ in FIRST_ANSWERS.values())


def _letters() -> Query[DeadLetterRow]:
    return Query(DeadLetterRow).where("resolved", "==", False).order_by("-died_at")


async def test_a_date_to_retry_after_is_waited_for_and_an_absurd_one_for_an_hour_at_most(
    server: Server,
) -> None:
    await settle_in(server.store, [Person("Dora", 10, 1_000)], property_id="p-2")
    await settle_in(server.store, [Person("Egon", 10, 1_000)], property_id="p-3")
    async with receiving() as receiver:
        for id in ("p-2", "p-3"):
            await server.calculate(id)
            await set_endpoint(server, receiver, id)
        receiver.answers["dora"].append(Answer(503, {"Retry-After": on_date(3)}))
        receiver.answers["egon"].append(Answer(429, {"Retry-After": "9" * 400}))
        dora, egon = await trigger(server, "dora", "p-2"), await trigger(server, "egon", "p-3")
        found = await server.delivery(dora["deliveryId"], "delivered")
        (waited,) = seconds_between(found["attempts"])
        # A date has whole seconds; a busy machine may be late, but not by an hour.
        assert 1.9 <= waited < 60
        held = await server.delivery(egon["deliveryId"], "failed")
        due, tried = [datetime.fromisoformat(held[name]) for name in ("nextRetryAt", "lastAttemptAt")]
        assert timedelta(minutes=59) < due - tried < timedelta(minutes=61)


def fits(got: Got, secret: str) -> tuple[bool, bool]:
    """Whether the Standard Webhooks signature, and the plain one, fit this secret alone."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    made = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    plain = hmac.new(key, got.body, hashlib.sha256).hexdigest()
    return f"v1,{made}" in got.headers["webhook-signature"].split(), got.headers[PLAIN] == f"sha256={plain}"


async def test_a_receiver_that_knows_the_old_secret_alone_loses_nothing_while_it_changes(
    server: Server,
) -> None:
    await server.calculate()
    async with receiving() as receiver:
        old = (await set_endpoint(server, receiver)).secret or ""
        new = (await server.post(f"{ENDPOINTS}/{P}/rotate"))["secret"]
        told = await trigger(server, "john")
        await server.delivery(told["deliveryId"], "delivered")
        (got,) = receiver.got["john"]
    assert old != new
    assert fits(got, old) == (True, True)
    assert fits(got, new)[0]
    assert got.headers["x-event-id"] == told["eventId"]
    assert got.headers["webhook-id"] == told["eventId"].replace(".", "%2E")
    assert got.headers["content-type"] == "application/json"


# Whatever a platform calls its people and houses, their events are signed, sent and known again.
NAMED: Final = [
    ("p-2", "José"), ("p-3", "🏚"), ("p-4", "a b%20c"), ("p-5", "ü" * 110), ("p-6", "🏚" * 110),
    ("Ü" * 100, "x" * 200), ("p" * 100, "y" * 200), ("p-8", "a'\"<>;,b"), ("🏚" * 100, "ﬀ\u202e"),
]  # fmt: skip


async def test_events_about_ids_in_any_letters_and_of_any_length_arrive(server: Server) -> None:
    async with receiving() as receiver:
        seen = [await arrives(server, receiver, home, who=who) for home, who in NAMED]
        assert len(set(seen)) == len(NAMED)


async def arrives(server: Server, receiver: Receiver, home: str, *, who: str) -> str:
    """Have the run itself put out the event of this resident; gives its id."""
    await settle_in(server.store, [Person(who, 10, 1_000)], property_id=home)
    place, id = f"/properties/{quote(home, safe='')}", who.lower()
    made = await server.create_endpoint(home, receiver.url("x"))
    await server.ask("PUT", f"{place}/rules", json={"send": "flagged"})
    run = await server.post(f"{place}/renewal-risk/calculate?wait=true", {"asOfDate": AS_OF.isoformat()})
    assert [one["residentId"] for one in run["flags"]] == [id]
    told = await server.post(f"{place}/residents/{quote(id, safe='')}/trigger-renewal-event")
    assert told["status"].startswith("already"), told
    await server.delivery(quote(told["deliveryId"], safe=""), "delivered")
    (got,) = receiver.got[id]
    assert fits(got, made.secret or "") == (True, True)
    assert got.headers["x-event-id"] == told["eventId"] == json.loads(got.body)["eventId"]
    return str(told["eventId"])


async def a_dead_letter(server: Server, receiver: Receiver) -> Any:
    """About John, whom the RMS refused once and would take now."""
    await set_endpoint(server, receiver)
    receiver.answers["john"].append(Answer(400))
    told = await trigger(server, "john")
    await server.delivery(told["deliveryId"], "dlq")
    return told


async def test_replaying_what_has_arrived_since_sends_nothing(server: Server) -> None:
    await server.calculate()
    async with receiving() as receiver:
        told = await a_dead_letter(server, receiver)
        first, second = [await server.post(f"/dlq/{told['deliveryId']}/replay") for _ in range(2)]
        assert first["replayed"]
        assert not second["replayed"]
        await server.delivery(told["deliveryId"], "delivered")
        late = await server.post(f"/dlq/{told['deliveryId']}/replay")
        assert late == {"id": told["deliveryId"], "replayed": False}
        assert (await trigger(server, "john"))["status"] == "already delivered"
        assert (await server.post("/dlq/replay", {"dryRun": False}))["matched"] == 0
        assert len(receiver.got["john"]) == 2
        assert len({one.headers["webhook-id"] for one in receiver.got["john"]}) == 1


async def test_many_who_replay_and_trigger_at_once_send_once(server: Server) -> None:
    await server.calculate()
    async with receiving() as receiver:
        told = await a_dead_letter(server, receiver)
        one = [server.post(f"/dlq/{told['deliveryId']}/replay") for _ in range(12)]
        some = [server.post("/dlq/replay", {"dryRun": False, "propertyId": P}) for _ in range(6)]
        again = [trigger(server, "john") for _ in range(12)]
        said = await asyncio.gather(*one, *some, *again)
        counted = [answer.get("replayed", False) for answer in said[:12]]
        counted += [answer["changed"] == 1 for answer in said[12:18]]
        counted += [answer["status"] == "re-queued" for answer in said[18:]]
        assert counted.count(True) == 1
        await server.delivery(told["deliveryId"], "delivered")
        assert len(receiver.got["john"]) == 2
