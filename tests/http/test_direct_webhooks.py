"""Small webhooks go from the connection to the inbox without ASGI, and nobody can tell the difference."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import random
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from holdfast.errors import OutcomeUnknownError, StoreUnavailableError
from holdfast.http.ingest import Ingest
from holdfast.http.slow_clients import SlowClientProtocol, drop_slow
from holdfast.kit.inbox import InboxItem
from holdfast.model import schema_of
from holdfast.store import Committed, Query
from holdfast.store.commit import Commit, Outcome
from holdfast.store.port import UnstartedCommit
from holdfast.testing import ManualClock
from tests.http.server_harness import SECRET, ServerHarness, serving
from tests.kit.eventually import until, until_found

PATH = "/echo-chamber/webhook"
OTHER_TARGETS = [f"{PATH}?a=1", f"{PATH}/", f"http://a{PATH}", "/echo%2Dchamber/webhook", "/echo-chamber"]
UNUSUAL = [
    b"x-request-id: the-first-one\r\nX-Request-Id: the-second-one\r\nx-word: wrong\r\n",
    b"X-Word: wrong\r\nx-word: wrong too\r\nx-kept: 1\r\nX-Kept: 2\r\nx-kept: 3\r\n",
    b"x-empty:\r\nx-spaces:   a  \r\n",
]
# Of these, some can't be parsed.
BROKEN = [b"x-folded: a\r\n b\r\n", b"x-bare: a\nx-other: b\r\n", b"content-length: 3\r\n"]
BODY_BYTES_MAX = 10_000
EXAMPLES = int(os.environ.get("HOLDFAST_TEST_EXAMPLES", "40"))
_ULID = re.compile(rb"[0-9A-HJKMNP-TV-Z]{26}")
_DATE = re.compile(rb"date: [^\r]+\r\n")
RESET = b"reset"  # by the server, before its answer was read


def _request(*, name: str, target: str = PATH, method: str = "POST", version: str = "1.1",
             body: bytes = b"hello", framing: str = "length", **headers: str) -> bytes:  # fmt: skip
    fields = {"host": "a", "x-word": SECRET, "x-name": name, **headers}
    if framing == "length":
        fields["Content-Length"] = str(len(body))
    elif framing == "chunked":
        fields["transfer-encoding"] = "chunked"
        chunk = b"%x;ext=1\r\n%b\r\n" % (len(body), body) if body else b""
        body = chunk + b"0\r\nx-trailer: 1\r\n\r\n"
    lines = [f"{method} {target} HTTP/{version}", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _random_request(rng: random.Random, name: str) -> bytes:
    body = rng.choice([b"hello", b"", b"x" * BODY_BYTES_MAX, bytes(rng.randrange(256) for _ in range(50))])
    makers: list[Callable[[], bytes]] = [
        lambda: _request(name=name, body=body),
        lambda: _request(name=name, body=body, x_request_id="the-sender-s-own"),
        lambda: _request(name=name, body=b"y" * (BODY_BYTES_MAX + 1)),
        lambda: _request(name=name, body=b"y" * 70_000),
        lambda: _request(name=name, x_word="wrong"),
        lambda: _request(name="\xe4/" + name, X_Upper="1", user_agent="a"),
        lambda: _request(name=name).replace(b"x-name", b"x-other"),
        lambda: _request(name=name, body=body, framing="chunked"),
        lambda: _request(name=name, body=b"", framing="none"),
        lambda: _request(name=name, body=body, expect="100-continue"),
        lambda: _request(name=name, method="HEAD", body=b""),
        lambda: _request(name=name, method=rng.choice(["GET", "PUT", "DELETE"])),
        lambda: _request(name=name, target=rng.choice(OTHER_TARGETS)),
        lambda: _request(name=name, body=body, connection=rng.choice(["keep-alive", "Keep-Alive", "TE"])),
        lambda: _request(name=name, body=body).replace(b"host: a\r\n", b"host: a\r\n" + rng.choice(UNUSUAL)),
    ]
    return rng.choice(makers)()


def _random_script(rng: random.Random, number: int) -> list[bytes]:
    """The pieces in which a connection sends some requests, of which the last one ends it."""
    names = [f"m{number}-{rng.randrange(4)}" for _ in range(rng.randint(0, 4))]
    ends = [
        _request(name="end", connection="close"),
        _request(name="end", version="1.0"),
        # Without a body: the server beneath takes it for the other protocol.
        _request(name="end", body=b"", connection="close, upgrade", upgrade="nothing"),
    ]
    if not names:  # what can't be parsed ends a connection at once, whatever it still waits for
        ends = [b"nonsense\r\n\r\n", _request(name="end").replace(b"Length: 5", b"Length: -5"), *ends]
        ends += [ends[-3].replace(b"host: a\r\n", b"host: a\r\n" + one) for one in BROKEN]
    sent = b"".join(_random_request(rng, name) for name in names) + rng.choice(ends)
    cuts = sorted(rng.sample(range(1, len(sent)), rng.choice([0, 0, 1, 5])))
    return [sent[start:end] for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)]


async def _exchange(harness: ServerHarness, pieces: list[bytes]) -> bytes:
    """All that a connection is answered, until it ends, or RESET; without what differs by time or chance."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            answer = await reader.read()
    except ConnectionError:
        answer = RESET
    writer.close()
    return _ULID.sub(b"ID", _DATE.sub(b"", answer))


async def _documents(harness: ServerHarness) -> list[Any]:
    found = await harness.runtime.store.privileged().query(
        Query(InboxItem).where("status", "==", "pending").order_by("-received_at").limit(1_000)
    )
    return sorted((msgspec.to_builtins(one) for one in found.docs), key=lambda one: str(one["id"]))


def _figures(harness: ServerHarness) -> list[str]:
    lines = generate_latest(harness.surface.metrics.registry).decode().splitlines()
    counted = ("holdfast_http_requests_total", "holdfast_http_request_seconds_count")
    return sorted(line for line in lines if line.startswith(counted))


@contextlib.asynccontextmanager
async def _both_ways(home: Path, **settings: Any) -> AsyncIterator[tuple[ServerHarness, ServerHarness]]:
    """Two servers that differ in nothing else."""
    for name in ("direct", "asgi"):
        (home / name).mkdir()
    async with (
        serving(home / "direct", clock=ManualClock(), **settings) as direct,
        serving(home / "asgi", clock=ManualClock(), **settings) as asgi,
    ):
        assert direct.surface.direct_webhooks
        asgi.surface.direct_webhooks.clear()
        yield direct, asgi


@pytest.fixture
def asgi_requests(monkeypatch: pytest.MonkeyPatch) -> list[Ingest]:
    """The hook of each request that went the way of ASGI."""
    requests, call = list[Ingest](), Ingest.__call__

    async def counted(self: Ingest, *args: Any) -> int:
        requests.append(self)
        return await call(self, *args)

    monkeypatch.setattr(Ingest, "__call__", counted)
    return requests


async def test_both_ways_answer_store_and_count_the_same(tmp_path: Path, asgi_requests: list[Ingest]) -> None:
    rng = random.Random(7)
    async with _both_ways(tmp_path) as (direct, asgi):
        for number in range(EXAMPLES):
            pieces = _random_script(rng, number)
            answers = [await _exchange(harness, pieces) for harness in (direct, asgi)]
            if RESET in answers:
                # Refused while it was still being sent: whether the client sees why is the network's chance.
                assert all(answer == RESET or b"HTTP/1.1 400" in answer for answer in answers), pieces
                assert len(pieces) > 1
            else:
                assert answers[0] == answers[1], pieces
        assert await _documents(direct) == await _documents(asgi) != []
        assert _figures(direct) == _figures(asgi)
        hooks = [harness.surface.webhooks[PATH] for harness in (direct, asgi)]
        assert 0 < asgi_requests.count(hooks[0]) < asgi_requests.count(hooks[1])


async def _connected(
    harness: ServerHarness, made: set[SlowClientProtocol]
) -> tuple[asyncio.StreamReader, Any, Any]:
    """A client's streams, and the server's side of its connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
    await until(lambda: len(made) == 1)
    (connection,) = made
    return reader, writer, connection


@pytest.fixture
def messages_begun(monkeypatch: pytest.MonkeyPatch) -> list[SlowClientProtocol]:
    """The connection of each request that the server's usual way has begun to read."""
    found, begin = list[SlowClientProtocol](), SlowClientProtocol.on_message_begin

    def on_message_begin(self: SlowClientProtocol) -> None:
        found.append(self)
        begin(self)

    monkeypatch.setattr(SlowClientProtocol, "on_message_begin", on_message_begin)
    return found


async def test_a_webhook_that_was_read_whole_is_parsed_once_and_not_as_usual(
    tmp_path: Path, made: set[SlowClientProtocol], messages_begun: list[SlowClientProtocol]
) -> None:
    async with serving(tmp_path) as harness:
        reader, writer, connection = await _connected(harness, made)
        for number in range(3):
            connection.data_received(_request(name=f"m{number}", connection="keep-alive"))
            assert b" 202 " in await reader.readuntil(b'kept"}')
        assert messages_begun == []
        connection.data_received(_request(name="cut", body=b"hello")[:-2])
        connection.data_received(b"lo")
        assert b" 202 " in await reader.readuntil(b'kept"}')
        assert len(messages_begun) == 1
        connection.data_received(_request(name="m3"))
        assert b" 202 " in await reader.readuntil(b'kept"}')
        assert len(messages_begun) == 1
        writer.close()


async def test_what_comes_before_a_whole_webhook_is_read_is_answered_after_it(
    tmp_path: Path, made: set[SlowClientProtocol]
) -> None:
    async with serving(tmp_path) as harness:
        reader, writer, connection = await _connected(harness, made)
        connection.data_received(_request(name="one"))
        connection.data_received(_request(name="two", x_word="wrong") + _request(name="three")[:40])
        connection.data_received(_request(name="three", connection="close")[40:])
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()
        assert [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]] == [202, 401, 202]
        assert [one["messageId"] for one in await _documents(harness)] == ["one", "three"]


async def test_a_webhook_that_waits_to_be_read_is_stored_although_its_connection_ends(
    tmp_path: Path, made: set[SlowClientProtocol]
) -> None:
    async with serving(tmp_path) as harness:
        _, writer, connection = await _connected(harness, made)
        connection.data_received(_request(name="lost"))
        connection.connection_lost(None)

        async def stored() -> bool:
            return [one["messageId"] for one in await _documents(harness)] == ["lost"]

        await until_found(stored)
        await until(lambda: not connection.tasks)
        assert harness.surface.webhooks[PATH]._backpressure._at_work == 0
        writer.close()


async def test_a_server_that_stops_answers_a_webhook_that_waits_to_be_read(
    tmp_path: Path, made: set[SlowClientProtocol]
) -> None:
    async with serving(tmp_path) as harness:
        reader, writer, connection = await _connected(harness, made)
        connection.data_received(_request(name="last"))
        connection.shutdown()
        async with asyncio.timeout(30):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 202 ")
        assert b"connection: close\r\n" in answer
        writer.close()


async def test_past_the_backlog_both_ways_refuse_alike(tmp_path: Path) -> None:
    async with _both_ways(tmp_path, limits={"backlog_max": 1}) as (direct, asgi):
        answers = []
        for harness in (direct, asgi):

            async def refused(harness: ServerHarness = harness) -> bool:
                return await harness.send("first") == 503

            await until_found(refused)
            answers.append(await _exchange(harness, [_request(name="next", connection="close")]))
        assert answers[0].startswith(b"HTTP/1.1 503 ")
        assert answers[0] == answers[1]
        assert b"retry-after: 10" in answers[0]


@contextlib.contextmanager
def _counted_tasks() -> Iterator[list[str]]:
    """The names of the tasks that are made meanwhile."""
    loop, tasks = asyncio.get_running_loop(), list[str]()

    def create_task(loop: asyncio.AbstractEventLoop, task: Any, **kwargs: Any) -> asyncio.Task[Any]:
        tasks.append(task.__qualname__)
        return asyncio.Task(task, loop=loop, **kwargs)

    loop.set_task_factory(create_task)
    yield tasks
    loop.set_task_factory(None)


async def test_a_small_webhook_takes_no_task_and_no_asgi(tmp_path: Path, asgi_requests: list[Ingest]) -> None:
    async with serving(tmp_path) as harness:
        sender = _request(name="one") + _request(name="two", connection="close")
        first, _, rest = sender.partition(b"hello")
        with _counted_tasks() as tasks:
            answer = await _exchange(harness, [first, b"hello", rest])
        assert answer.count(b"HTTP/1.1 202 Accepted\r\n") == 2
        # The second came before the first was answered, so it waited its turn in the server beneath.
        assert len(asgi_requests) <= 1
        assert tasks.count("RequestResponseCycle.run_asgi") == len(asgi_requests)
        assert set(tasks) <= {"RequestResponseCycle.run_asgi", "Backpressure._count"}


async def test_each_webhook_of_a_connection_is_one_commit_and_one_future(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
        engine, tracked = harness.runtime.store.engine, list[asyncio.Future[Any]]()
        commit = engine.commit

        def committing(commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
            made = commit(commits)
            started = made.start() if isinstance(made, UnstartedCommit) else made
            assert isinstance(started, asyncio.Future)
            assert not isinstance(started, asyncio.Task)
            tracked.append(started)
            return started

        monkeypatch.setattr(engine, "commit", committing)
        with _counted_tasks() as tasks:
            for number in range(10):
                writer.write(_request(name=f"m{number}"))
                async with asyncio.timeout(30):
                    assert (await reader.readuntil(b'kept"}')).startswith(b"HTTP/1.1 202 ")
        writer.close()
        assert len(tracked) == 10
        assert set(tasks) <= {"Backpressure._count"}


def _engine_with(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], Awaitable[Any]]
) -> None:
    """Let messages be committed so, and everything else as ever."""
    engine = harness.runtime.store.engine
    usual = engine.commit

    def committing(commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
        is_message = commits[0].writes[0].schema is schema_of(InboxItem)
        return commit() if is_message else usual(commits)

    monkeypatch.setattr(engine, "commit", committing)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (StoreUnavailableError("the disk is full", after_s=30), 503),
        (OutcomeUnknownError("the writer ended"), 503),
        (ZeroDivisionError("a bug"), 500),
        (TimeoutError("not the time limit's"), 500),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("when", ["at once", "by the future", "as the outcome"])
async def test_a_commit_that_fails_is_answered_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, status: int, when: str
) -> None:
    def commit() -> Awaitable[Any]:
        if when == "at once":
            raise fault
        made = asyncio.get_running_loop().create_future()
        if when == "by the future":
            made.set_exception(fault)
        else:
            made.set_result([fault])
        return made

    async with _both_ways(tmp_path) as harnesses:
        answers = []
        for harness in harnesses:
            with monkeypatch.context() as patched:
                _engine_with(harness, patched, commit)
                answers.append(await _exchange(harness, [_request(name="m1", connection="close")]))
            assert harness.surface.webhooks[PATH]._backpressure._at_work == 0
        assert answers[0] == answers[1]
        assert int(answers[0].split(b" ")[1]) == status
        assert _figures(harnesses[0]) == _figures(harnesses[1])


async def test_a_commit_that_takes_too_long_is_answered_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _both_ways(tmp_path, limits={"request_s": 0.2}) as harnesses:
        answers, commits = [], list[asyncio.Future[Any]]()
        for harness in harnesses:
            with monkeypatch.context() as patched:

                def never() -> Awaitable[Any]:
                    commits.append(asyncio.get_running_loop().create_future())
                    return commits[-1]

                _engine_with(harness, patched, never)
                answers.append(await _exchange(harness, [_request(name="m1", connection="close")]))
            ingest = harness.surface.webhooks[PATH]
            assert (ingest._backpressure._at_work, len(ingest._deadlines._deadlines)) == (0, 0)
        assert [one.cancelled() for one in commits] == [True, True]
        assert answers[0].startswith(b"HTTP/1.1 504 ")
        assert answers[0] == answers[1]
        assert _figures(harnesses[0]) == _figures(harnesses[1])


async def test_a_server_that_stops_waits_for_a_commit_and_closes_what_it_waits_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, answered in enumerate([True, False]):
        (tmp_path / str(number)).mkdir()
        under_way, commits = asyncio.Event(), list[asyncio.Future[Any]]()

        def commit(under_way: asyncio.Event = under_way, commits: Any = commits) -> Awaitable[Any]:
            commits.append(asyncio.get_running_loop().create_future())
            under_way.set()
            return commits[-1]  # type: ignore[no-any-return]

        monkeypatch.setattr("holdfast.server._GRACE_S", 5 if answered else 0.1)
        with monkeypatch.context() as patched:
            async with serving(tmp_path / str(number)) as harness:
                _engine_with(harness, patched, commit)
                sending = asyncio.create_task(_exchange(harness, [_request(name="m1")]))
                await under_way.wait()
                if answered:
                    asyncio.get_running_loop().call_later(0.05, commits[0].set_result, [Committed((1,))])
            assert (await sending).startswith(b"HTTP/1.1 202 ") is answered
            assert commits[0].cancelled() is not answered


async def test_a_message_is_stored_although_its_sender_hung_up_meanwhile(
    tmp_path: Path, made: set[SlowClientProtocol], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        engine, going, go_on = harness.runtime.store.engine, asyncio.Event(), asyncio.Event()
        commit = engine.commit

        async def late(commits: Sequence[Commit]) -> list[Outcome]:
            going.set()
            await go_on.wait()
            return await commit(commits)

        monkeypatch.setattr(engine, "commit", late)
        _, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
        writer.write(_request(name="gone"))
        await going.wait()
        writer.transport.abort()
        (connection,) = made
        await until(lambda: connection not in connection.connections)
        go_on.set()
        await until(lambda: not connection.tasks)
        assert [one["messageId"] for one in await _documents(harness)] == ["gone"]
        assert harness.surface.webhooks[PATH]._backpressure._at_work == 0


async def test_a_message_that_must_wait_for_a_place_gets_its_answer_when_it_had_one(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, limits={"webhook_concurrency": 1}) as harness:
        backpressure = harness.surface.webhooks[PATH]._backpressure
        assert backpressure.enter_at_once()
        with _counted_tasks() as tasks:
            sending = asyncio.create_task(_exchange(harness, [_request(name="m1", connection="close")]))
            await until(lambda: len(backpressure._queue) == 1)
            backpressure.leave()
            assert (await sending).startswith(b"HTTP/1.1 202 ")
        assert "Ingest._respond" in tasks


@pytest.mark.parametrize("sent", [b"", b"hel"], ids=["nothing", "a part"])
async def test_a_message_whose_sender_hung_up_is_not_stored(tmp_path: Path, sent: bytes) -> None:
    async with _both_ways(tmp_path) as harnesses:
        for harness in harnesses:
            whole = _request(name="cut", body=b"hello")
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(harness.address.rpartition(":")[2])
            )
            writer.write(whole.removesuffix(b"hello") + sent)
            await writer.drain()
            writer.write_eof()
            async with asyncio.timeout(30):
                assert await reader.read() == b""
            writer.close()
            # Sent again, it is whole, and no duplicate of a half.
            assert b" 202 " in await _exchange(harness, [_request(name="cut", connection="close")])
            assert [one["bodyBytes"] for one in await _documents(harness)] == [5]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[SlowClientProtocol]:
    """The connections that were made."""
    found, connect = set[SlowClientProtocol](), SlowClientProtocol.connection_made

    def connection_made(self: SlowClientProtocol, transport: asyncio.Transport) -> None:
        found.add(self)
        connect(self, transport)

    monkeypatch.setattr(SlowClientProtocol, "connection_made", connection_made)
    return found


async def test_each_answer_has_the_headers_that_the_server_has_by_then(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
        answers = []
        for number in range(4):
            writer.write(_request(name=f"m{number}"))
            async with asyncio.timeout(30):
                answers.append(await reader.readuntil(b'kept"}'))
            (batch,) = harness.surface.webhook_batches.values()
            # Its own, which the server's tick does not replace.
            batch.renderer.state = copy.copy(batch.renderer.state)
            batch.renderer.state.default_headers = [(b"date", b"day %d" % (number // 2))]
        writer.close()
        assert [b"date: day 0\r\n" in one for one in answers] == [False, True, True, False]
        assert b"date: day 1\r\n" in answers[3]


async def test_an_idle_connection_is_closed_by_the_tick(
    tmp_path: Path, made: set[SlowClientProtocol]
) -> None:
    async with serving(tmp_path) as harness:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(harness.address.rpartition(":")[2]))
        writer.write(_request(name="one"))
        async with asyncio.timeout(30):
            await reader.readuntil(b"kept")
        drop_slow(made, 60)
        writer.write(_request(name="two"))
        async with asyncio.timeout(30):
            await reader.readuntil(b"kept")
        (connection,) = made
        connection.timeout_keep_alive = -1
        drop_slow(made, 60)
        async with asyncio.timeout(30):
            assert await reader.read() == b'"}'
        writer.close()
