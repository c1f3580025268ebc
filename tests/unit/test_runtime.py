"""The whole, composed: a service's parts at work in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.clock import SystemClock
from holdfast.config import load_config
from holdfast.errors import ConfigError, DeclarationError, HoldfastError
from holdfast.http.guard import declared_routes
from holdfast.kit.audit.models import AuditHead
from holdfast.kit.inbox import InboxItem, MissedDelivery, Source, Verified
from holdfast.kit.retention import Sweeper
from holdfast.kit.schedules import Job, Slot
from holdfast.model import Document, document
from holdfast.runtime import Runtime, documents_of, find_services
from holdfast.server import compose
from holdfast.service import Context, Health, Parts, Service, Webhook
from holdfast.store import Transaction, put
from holdfast.worker import Supervisor


@document("greetings/{id}")
class Greeting(Document):
    id: str
    text: str


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: str = "hello"
    times: int = 1


class Anybody:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"])


SOURCE = Source(name="greetings", verifier=Anybody())


class Falls:
    """A loop that fails at first and then goes on."""

    def __init__(self) -> None:
        self.turns = 0
        self.stands = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        self.turns += 1
        if self.turns < 2:
            raise RuntimeError("tripped")
        self.stands.set()
        await stop.wait()


class Busy:
    """A loop that has something under way until told otherwise, and counts how often it runs at a time."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.under_way = 1

    async def run(self, stop: asyncio.Event) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await stop.wait()
        self.running -= 1


def _service(loop: Falls | Busy | None = None, health: Health | None = None) -> Service:
    def build(context: Context) -> Parts:
        async def greet(item: InboxItem, tx: Transaction) -> None:
            tx.write(put(Greeting(id=item.message_id, text=context.settings.words)))

        async def daily(slot: Slot) -> None:
            await context.store.commit(put(Greeting(id="daily", text="by the clock")))

        async def state() -> Health:
            return health or Health()

        return Parts(
            webhooks=[Webhook(path="/webhook", source=SOURCE)], handlers={"greetings": greet}, health=state,
            jobs=[Job(name="daily", cron="0 0 1 1 *", act=daily)], loops={"falls": loop} if loop else {},
        )  # fmt: skip

    return Service(
        name="greetings", summary="Says hello.", documents=[Greeting], settings=Settings, build=build
    )


@pytest.fixture
def loop() -> Falls:
    return Falls()


@pytest.fixture
async def runtime(tmp_path: Path, loop: Falls) -> AsyncIterator[Runtime]:
    config = load_config(
        {"home": tmp_path}, environ={}, file=_file(tmp_path, '[service.greetings]\nwords = "moin"')
    )
    made = await Runtime.open(config, services=[_service(loop)])
    yield made
    await made.close()


def _file(folder: Path, text: str) -> Path:
    path = folder / "holdfast.toml"
    path.write_text(text)
    return path


async def test_a_message_is_received_worked_on_and_the_job_runs(runtime: Runtime, loop: Falls) -> None:
    stop = asyncio.Event()
    working = asyncio.create_task(runtime.work(stop))
    subscription = runtime.store.watch(Greeting)
    await runtime.inbox.receive(SOURCE, {"x-name": "m1"}, b"{}")
    await runtime.scheduler.declare()
    await runtime.scheduler.run_now("-_daily")
    async with asyncio.timeout(60):
        while len([g for g in await runtime.store.get_many(Greeting, ["m1", "daily"]) if g]) < 2:
            await subscription.wait(0.2)
        await loop.stands.wait()
    stop.set()
    await asyncio.wait_for(working, 60)
    found = await runtime.store.get(Greeting, "m1")
    assert found is not None
    assert found.doc.text == "moin"
    assert loop.turns == 2


async def test_health_is_the_worst_of_the_parts(tmp_path: Path) -> None:
    sick = _service(health=Health("critical", ("no live channel",)))
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=[sick])
    health = await runtime.health()
    await runtime.close()
    assert health.status == "critical"
    assert "greetings: no live channel" in health.reasons


async def test_a_wrong_setting_names_its_table(tmp_path: Path) -> None:
    config = load_config(
        {"home": tmp_path}, environ={}, file=_file(tmp_path, "[service.greetings]\ntimes = 'x'")
    )
    with pytest.raises(ConfigError, match=r"\[service\.greetings\]"):
        await Runtime.open(config, services=[_service()])


async def test_a_service_nobody_knows_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are: greetings"):
        await Runtime.open(
            load_config({"home": tmp_path}, environ={}), services=[_service()], only=["greeting"]
        )


async def test_the_setting_chooses_among_the_installed_services_in_its_order(tmp_path: Path) -> None:
    config = load_config({"home": tmp_path}, environ={"HOLDFAST_SERVICES": "renewals,calendar-sync"})
    runtime = await Runtime.open(config)
    names = [service.name for service in runtime.services]
    words = {word for path, _, _ in declared_routes(compose(runtime).app) for word in path.split("/")[1:3]}
    await runtime.close()
    assert names == ["renewals", "calendar_sync"]
    others = {"c4lendar", "gwi", "hackernews"}
    assert words & {"renewals", "calendar-sync", *others} == {"renewals", "calendar-sync"}


async def test_a_setting_that_names_no_service_is_refused_with_those_there_are(tmp_path: Path) -> None:
    config = load_config({"home": tmp_path}, environ={"HOLDFAST_SERVICES": "renewal"})
    with pytest.raises(ConfigError, match="there is no service 'renewal'; there are: c4lendar, cal"):
        await Runtime.open(config)


async def test_keys_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    config = load_config({"home": tmp_path}, environ={})
    for _ in range(2):
        runtime = await Runtime.open(config, services=[])
        await runtime.close()
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "keys").read_text().count(":") == 1


async def test_a_loop_that_does_not_stop_in_time_is_ended() -> None:
    class Deaf:
        async def run(self, stop: asyncio.Event) -> None:
            await asyncio.Event().wait()

    supervisor = Supervisor({"deaf": Deaf()}, clock=SystemClock(), stop_s=0.05)
    stop = asyncio.Event()
    task = asyncio.create_task(supervisor.run(stop))
    stop.set()
    await asyncio.wait_for(task, 30)
    assert not supervisor.status()[0].running


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_every_class_with_a_retention_can_be_swept(request: pytest.FixtureRequest, engine: str) -> None:
    models = documents_of(find_services())
    store = await open_store(request.getfixturevalue(f"{engine}_url"), models)
    await store.migrate()
    assert await Sweeper(store, models).sweep() == 0
    await store.close()


async def test_drains_at_once_share_one_set_of_loops_until_the_last_ends(tmp_path: Path) -> None:
    busy = Busy()
    config = load_config({"home": tmp_path}, environ={})
    runtime = await Runtime.open(config, services=[_service(busy)])
    try:
        short, long = asyncio.create_task(runtime.drain(0.1)), asyncio.create_task(runtime.drain(60))
        assert not await short
        assert (busy.running, busy.most) == (1, 1), "the longer one still has somebody who works"
        busy.under_way = 0
        assert await long
        assert busy.running == 0
    finally:
        await runtime.close()


def _closing(name: str, closed: list[str], *, fails: bool, starts: bool = True) -> Service:
    """A service that notes when it is closed, and may fail to."""

    def build(context: Context) -> Parts:
        async def start() -> None:
            if not starts:
                raise RuntimeError(f"{name} does not start")

        async def close() -> None:
            closed.append(name)
            if fails:
                raise OSError(f"{name} does not close")

        return Parts(start=start, close=close)

    return Service(name=name, summary="Closes.", documents=[], build=build)


async def test_every_part_is_closed_also_after_those_that_fail_and_each_failure_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    closed: list[str] = []
    services = [_closing(name, closed, fails=name != "second") for name in ("first", "second", "third")]
    runtime = await Runtime.open(load_config({"home": tmp_path}, environ={}), services=services)
    with pytest.raises(OSError, match="third does not close"):
        await runtime.close()
    assert closed == ["first", "second", "third"]
    told = capsys.readouterr().out
    assert "first does not close" in told
    assert "third does not close" in told
    with pytest.raises(HoldfastError):
        await runtime.store.get(AuditHead, "-")


async def test_why_it_did_not_start_is_raised_though_something_fails_to_close(tmp_path: Path) -> None:
    closed: list[str] = []
    service = _closing("sullen", closed, fails=True, starts=False)
    with pytest.raises(RuntimeError, match="does not start"):
        await Runtime.open(load_config({"home": tmp_path}, environ={}), services=[service])
    assert closed == ["sullen"]


async def test_two_services_can_t_handle_the_same_source(tmp_path: Path) -> None:
    async def handle(item: InboxItem, tx: Transaction) -> None:
        return None

    services = [
        Service(name=name, summary="", documents=[], build=lambda _: Parts(handlers={"github": handle}))
        for name in ("first", "second")
    ]
    config = load_config({"store": f"sqlite:///{tmp_path}/x.db", "home": tmp_path}, environ={})
    with pytest.raises(DeclarationError, match="'first' and 'second' both handle source 'github'"):
        await Runtime.open(config, services=services)


async def test_a_source_with_a_delivery_log_is_reconciled_by_a_job(tmp_path: Path) -> None:
    asked: list[str] = []

    class Log:
        async def missed(self, since: datetime) -> AsyncIterator[MissedDelivery]:
            yield MissedDelivery("m1", "attempt-1")

        async def redeliver(self, missed: MissedDelivery) -> None:
            asked.append(missed.reference)

    source = Source(name="github", verifier=Anybody(), delivery_log=Log())
    service = Service(
        name="first", summary="", documents=[],
        build=lambda _: Parts(webhooks=[Webhook(path="/hook", source=source)]),
    )  # fmt: skip
    config = load_config({"store": f"sqlite:///{tmp_path}/x.db", "home": tmp_path}, environ={})
    runtime = await Runtime.open(config, services=[service])
    await runtime.scheduler.declare()
    await runtime.scheduler.run_now("-_reconcile-github")
    await runtime.scheduler.turn()
    assert asked == ["attempt-1"]
    await runtime.close()
