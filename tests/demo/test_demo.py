"""`holdfast demo` as a person meets it: a real process, its simulators, its buttons, its end."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener, urlopen

import pytest

from holdfast import __version__
from holdfast.demo.scene import find_scenes
from holdfast.runtime import find_services
from holdfast.simulators.discovery import find_simulators
from holdfast.testing.process import free_port
from tests.demo.demo_process import (
    HOLDFAST,
    DemoProcess,
    admin_token,
    environment,
    holdfast,
    list_items,
    start_demo,
    wait_for,
)


class Stand(NamedTuple):
    """A demo that several tests play with, its folder, and the token of somebody who may press."""

    home: Path
    demo: DemoProcess
    token: str


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    home = tmp_path_factory.mktemp("demo")
    with start_demo(home) as demo:
        yield Stand(home, demo, admin_token(home))


def _simulator_command(demo: DemoProcess, simulator: str, command: str, **body: Any) -> Any:
    """What a simulator answers to a command."""
    url = re.search(rf"{simulator} (http://\S+?)[,\s]", demo.output)
    assert url is not None
    status, answer = DemoProcess(demo.process, url[1], "", 0.0).ask(f"/_control/{command}", body=body)
    assert status == 200, answer
    return answer


def _run_control(demo: DemoProcess, token: str, button: str) -> str:
    status, caused = demo.ask(f"/demo/scenes/{button}", token=token, body={})
    assert status == 200, caused
    output: str = caused["said"]
    return output


def _guests(demo: DemoProcess, summary: str) -> list[set[str]]:
    """Who is on each of Alice's meetings of this name."""
    events = _simulator_command(demo, "google", "show-calendar", calendar="alice@hoge.jp")
    return [
        {guest["email"] for guest in event.get("attendees", [])}
        for event in events
        if event.get("summary") == summary and event["status"] != "cancelled"
    ]


def _second_addresses_follow(demo: DemoProcess, token: str) -> None:
    before = len(_guests(demo, "Created by you"))
    _run_control(demo, token, "calendar_sync/arrange")
    wait_for(lambda: sum("alice@fuga.jp" in one for one in _guests(demo, "Created by you")) > before)


def _enter(demo: DemoProcess) -> OpenerDirector:
    """A browser that opened the printed address."""
    browser = build_opener(HTTPCookieProcessor(CookieJar()))
    link = re.search(r"http://\S+", demo.output)
    assert link is not None
    with browser.open(link[0], timeout=60) as page:
        assert page.url == f"{demo.url}/console/demo"
    return browser


def _main_of(browser: OpenerDirector, url: str) -> str:
    with browser.open(url, timeout=60) as page:
        main = re.search(r"<main.*</main>", page.read().decode(), re.DOTALL)
    assert main is not None, url
    return main[0]


def _no_page_is_empty(demo: DemoProcess) -> None:
    """Every page of the navigation shows something to its owner, of the platform or of a demo's tenant."""
    browser = _enter(demo)
    with browser.open(f"{demo.url}/console/demo", timeout=60) as page:
        text = page.read().decode()
    paths = set(re.findall(r'href="(/console[^"?]*)', text.partition("<nav")[2].partition("</nav>")[0]))
    organisation = re.search(r"tenant=(gh-org-[0-9]+)", text)
    assert organisation is not None
    assert len(paths) > 25
    for path in sorted(paths):
        urls = [f"{demo.url}{path}{query}" for query in ("", "?tenant=demo", f"?tenant={organisation[1]}")]
        wait_for(lambda urls=urls: any('class="nothing"' not in _main_of(browser, url) for url in urls))  # type: ignore[misc]


def test_a_demo_is_ready_seeded_alive_and_ends_on_ctrl_c_and_keeps_its_data(tmp_path: Path) -> None:
    with start_demo(tmp_path) as demo:
        assert demo.ready_s < 60
        wait_for(lambda: demo.ask("/health") == (200, {"status": "ok", "version": __version__}))
        assert demo.ask("/health/ready")[0] == 200
        for service in find_services():
            assert service.address in demo.output
        dead = wait_for(lambda: list_items(tmp_path, "dlq", "list", "--tenant", "demo"))
        assert {letter["endpointId"] for letter in dead} == {"demo-old-rms"}
        # Beyond the seed: something goes on by itself.
        wait_for(lambda: _simulator_command(demo, "rms", "counts")["accepted"] > 21)
        delivered = ["deliveries", "list", "--tenant", "demo", "--status", "delivered", "--limit", "200"]
        before = {row["id"] for row in wait_for(lambda: list_items(tmp_path, *delivered))}
        _no_page_is_empty(demo)
        token = admin_token(tmp_path)
        _second_addresses_follow(demo, token)
        assert demo.interrupt() < 30
    with start_demo(tmp_path) as again:
        assert again.ready_s < 30
        assert before <= {row["id"] for row in list_items(tmp_path, *delivered)}
        assert len(list_items(tmp_path, "dlq", "list", "--tenant", "demo")) == len(dead) == 3
        wait_for(lambda: again.ask("/health")[1]["status"] == "ok")
        # The simulated Google is another one now; its pushes come all the same.
        _second_addresses_follow(again, token)
        assert again.interrupt() < 30


def test_a_demo_plays_on_postgresql_too(tmp_path: Path, postgres_url: str) -> None:
    with start_demo(tmp_path, "--port", "0", HOLDFAST_STORE=postgres_url) as demo:
        wait_for(lambda: demo.ask("/health")[1]["status"] == "ok")
        token = admin_token(tmp_path, HOLDFAST_STORE=postgres_url)
        _second_addresses_follow(demo, token)
        assert "existed already" in _run_control(demo, token, "renewals/trigger")
        accepted = _simulator_command(demo, "rms", "counts")["accepted"]
        _run_control(demo, token, "webhooks/send")
        wait_for(lambda: _simulator_command(demo, "rms", "counts")["accepted"] > accepted)
        assert demo.interrupt() < 30


def test_the_buttons_break_the_rms_and_mend_it(stand: Stand) -> None:
    home, demo, token = stand
    status, overview = demo.ask("/demo/scenes", token=token)
    assert status == 200
    assert set(overview["simulators"]) == set(find_simulators())
    controls = {one["name"] for scene in overview["scenes"] for one in scene["controls"]}
    assert {"send", "break", "flaky", "slow", "gone", "restore"} <= controls

    assert "410" in _run_control(demo, token, "webhooks/gone")
    _run_control(demo, token, "webhooks/send")
    failing = ["deliveries", "list", "--tenant", "demo", "--status", "dead"]
    wait_for(lambda: [row for row in list_items(home, *failing) if row["lastStatus"] == 410])
    assert "again" in _run_control(demo, token, "webhooks/restore")
    accepted = _simulator_command(demo, "rms", "counts")["accepted"]
    _run_control(demo, token, "webhooks/send")
    wait_for(lambda: _simulator_command(demo, "rms", "counts")["accepted"] > accepted)


def test_second_addresses_follow_what_was_there_and_what_comes_after_a_full_resync(stand: Stand) -> None:
    _, demo, token = stand
    wait_for(lambda: any("bob@fuga.jp" in one for one in _guests(demo, "Weekly planning")))
    _run_control(demo, token, "calendar_sync/expire")
    wait_for(lambda: any("alice@fuga.jp" in one for one in _guests(demo, "After the tokens expired")))


def test_residents_at_risk_are_told_of_and_a_broken_rms_leaves_dead_letters_to_replay(stand: Stand) -> None:
    _, demo, token = stand

    def counts(status: str) -> int:
        url = "/renewals/api/v1/properties/property-0002/deliveries"
        return len(demo.ask(f"{url}?status={status}&limit=200", token=token)[1]["items"])

    assert "existed already" in _run_control(demo, token, "renewals/trigger")
    wait_for(lambda: counts("delivered"))
    _run_control(demo, token, "renewals/gone")
    _run_control(demo, token, "renewals/calculate")
    # Those of the demo's own doing may come first, and switch an endpoint off.
    wait_for(lambda: _run_control(demo, token, "renewals/trigger") and counts("dlq"))
    _run_control(demo, token, "renewals/restore")
    _run_control(demo, token, "renewals/replay")
    wait_for(lambda: not counts("dlq"))


def test_mending_the_rms_leaves_what_somebody_paused_and_a_property_without_an_endpoint_alone(
    stand: Stand, tmp_path: Path
) -> None:
    home, demo, token = stand
    (tmp_path / "properties.csv").write_text("id,name\nproperty-new,New House\n", encoding="utf-8")
    assert holdfast(home, "renewals", "import", str(tmp_path)).returncode == 0
    path = "/api/v1/endpoints/renewals/property-0003"
    assert demo.ask(f"{path}/pause", token=token, body={})[0] == 200
    assert "accepts everything again" in _run_control(demo, token, "renewals/restore")
    assert demo.ask(path, token=token)[1]["status"] == "paused"
    assert demo.ask(f"{path}/resume", token=token, body={})[1]["status"] == "active"


def test_a_story_that_somebody_posts_is_near_the_top_of_every_list(stand: Stand) -> None:
    home, demo, token = stand
    assert "is posted" in _run_control(demo, token, "hackernews/post")
    for span in ("Day", "Year"):
        best = ["hackernews", "stories", "--timespan", span, "--limit", "50"]
        wait_for(lambda best=best: [one for one in list_items(home, *best) if "yourself" in one["title"]])  # type: ignore[misc]
    assert len(list_items(home, "hackernews", "stories", "--timespan", "All", "--limit", "500")) == 500
    assert "voted" in _run_control(demo, token, "hackernews/hour")


def _repository(demo: DemoProcess) -> Any:
    return _simulator_command(demo, "github", "repository", repo="kelp-works/tides")


def _pulls_of_the_app(demo: DemoProcess) -> list[str]:
    return [one["title"] for one in _repository(demo)["issues"] if one["user"]["type"] == "Bot"]


def test_a_conflict_and_its_resolution_need_a_pull_request(stand: Stand) -> None:
    assert "pull request first" in _run_control(stand.demo, stand.token, "gwi/conflict")
    assert "pull request first" in _run_control(stand.demo, stand.token, "gwi/resolve")


def test_a_command_on_a_pull_request_starts_a_run_that_answers_there(stand: Stand) -> None:
    _, demo, token = stand

    def comments() -> list[str]:
        return [one["body"] for one in _repository(demo)["comments"]]

    assert "is in the queue" in _run_control(demo, token, "gwi/pull")
    assert "no longer merges" in _run_control(demo, token, "gwi/conflict")
    wait_for(lambda: "Written on" in _run_control(demo, token, "gwi/triage"))
    wait_for(lambda: any("started triage run-" in one for one in comments()))
    wait_for(lambda: any(one.startswith("**triage** by") for one in comments()))
    assert "could not deliver" in _run_control(demo, token, "gwi/lose")
    # The newest topic is an issue now; the command is for the pull request all the same.
    assert "Written on" in _run_control(demo, token, "gwi/resolve")
    # Another run waits for its approval since the demo began.
    resolved = wait_for(
        lambda: (
            _run_control(demo, token, "gwi/approve")
            and [one for one in comments() if one.startswith("**resolve** by")]
        )
    )
    assert "1 file merged, 0 conflicts left" in resolved[0]
    assert any(title.startswith("Merge main into wider-") for title in _pulls_of_the_app(demo))


def test_a_change_is_proposed_approved_and_applied_as_a_pull_request(stand: Stand) -> None:
    _, demo, token = stand
    before = len(_pulls_of_the_app(demo))
    _run_control(demo, token, "gwi/issue")
    wait_for(lambda: "approval" in _run_control(demo, token, "gwi/propose"))
    wait_for(lambda: "first" in _run_control(demo, token, "gwi/approve"))
    assert "makes the pull request" in _run_control(demo, token, "gwi/apply")
    wait_for(lambda: len(_pulls_of_the_app(demo)) > before)


def test_a_labelled_issue_becomes_a_pull_request_that_a_language_model_wrote(stand: Stand) -> None:
    _, demo, token = stand
    _run_control(demo, token, "gwi/issue")
    assert "starts a run by itself" in _run_control(demo, token, "gwi/label")
    wait_for(lambda: "goes on" in _run_control(demo, token, "gwi/approve"))
    wait_for(lambda: "Skip stations without tides in the table" in _pulls_of_the_app(demo))


def test_the_linked_pages_of_gwi_show_its_organisation(stand: Stand) -> None:
    _, demo, token = stand
    wait_for(lambda: "Written on" in _run_control(demo, token, "gwi/triage"))
    scenes = demo.ask("/demo/scenes", token=token)[1]["scenes"]
    links = {title: path for one in scenes if one["name"] == "gwi" for path, title in one["links"]}
    assert {"Runs", "Approvals", "Members", "Policy"} <= set(links)
    for path in links.values():
        assert re.search('<option value="gh-org-[0-9]+" selected', _page(demo, token, path)), path


def test_only_those_who_may_can_press_and_an_unknown_button_is_told(stand: Stand) -> None:
    _, demo, token = stand
    assert demo.ask("/demo/scenes/webhooks/break", body={})[0] == 401
    status, told = demo.ask("/demo/scenes/webhooks/explode", token=token, body={})
    assert (status, told["error"]["code"]) == (404, "not_found")
    assert demo.ask("/demo/scenes/nowhere/break", token=token, body={})[0] == 404
    _run_control(demo, token, "webhooks/restore")
    trail = demo.ask("/api/v1/audit", token=token)[1]["items"]
    assert ("demo.caused", "webhooks/restore") in {(one["action"], one["subject"]) for one in trail}


def test_a_second_demo_in_the_same_folder_is_refused(stand: Stand) -> None:
    refused = holdfast(stand.home, "demo", "--port", "0")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "is running in" in refused.stderr
    assert stand.demo.ask("/health/ready")[0] == 200


def _page(demo: DemoProcess, token: str, path: str) -> str:
    request = Request(f"{demo.url}{path}", headers={"authorization": f"Bearer {token}"})
    with urlopen(request, timeout=60) as page:
        text: str = page.read().decode()
    return text


def _second(demo: DemoProcess, token: str) -> int | None:
    """The process number of the second worker, as the page of the demo tells it; None for a dead one."""
    told = re.search(r"running as process (\d+)", _page(demo, token, "/console/demo"))
    return int(told[1]) if told else None


def test_a_killed_worker_is_seen_to_be_dead_and_works_again_when_started(stand: Stand) -> None:
    _, demo, token = stand
    first = wait_for(lambda: _second(demo, token))
    _run_control(demo, token, "workers/kill")
    assert _second(demo, token) is None
    assert not Path(f"/proc/{first}").exists()
    accepted = _simulator_command(demo, "rms", "counts")["accepted"]
    _run_control(demo, token, "webhooks/send")
    wait_for(lambda: _simulator_command(demo, "rms", "counts")["accepted"] > accepted)
    _run_control(demo, token, "workers/revive")
    assert wait_for(lambda: _second(demo, token)) != first


def test_the_port_variable_is_honoured_and_nothing_outlives_a_killed_demo(tmp_path: Path) -> None:
    port = free_port()
    with start_demo(tmp_path, "--host", "127.0.0.1", PORT=str(port)) as demo:
        assert demo.url == f"http://127.0.0.1:{port}"
        token = admin_token(tmp_path)
        second = _second(demo, token)
        # A world that somebody emptied is told of, and is no failure of ours.
        _simulator_command(demo, "google", "reset")
        status, told = demo.ask("/demo/scenes/calendar_sync/arrange", token=token, body={})
        assert (status, told["error"]["code"]) == (409, "conflict")
        ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", demo.output)]
        assert len(set(ports)) == 1 + len(find_simulators())
        demo.process.kill()
        demo.process.wait()
    for port in set(ports):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
    wait_for(lambda: not _alive(second))


def _alive(pid: int | None) -> bool:
    """Whether a process runs; one that ended and was not asked for yet does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_every_service_has_a_scene() -> None:
    missing = {service.name for service in find_services()} - set(find_scenes())
    assert not missing, f"write src/holdfast/demo/scenes/{missing}.py"


@pytest.mark.parametrize("name", list(find_simulators()))
def test_a_simulator_runs_alone_and_ends_on_ctrl_c(tmp_path: Path, name: str) -> None:
    command = [*HOLDFAST, "simulators", "run", name, "--port", "0"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(tmp_path), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            url = re.search(r"http://\S+", line)
            assert url is not None, line
            alone = DemoProcess(process, url[0], "", 0.0)
            status, commands = alone.ask("/_control")
            assert status == 200
            assert "trouble" in commands
            assert alone.interrupt() < 30
        finally:
            process.kill()


def test_the_first_address_that_is_printed_signs_whoever_opens_it_in(stand: Stand) -> None:
    demo = stand.demo
    printed = re.search(r"http://\S+", (stand.home / "stderr").read_text() + demo.output)
    assert printed is not None
    assert printed[0].startswith(f"{demo.url}/demo/sign-in?code=")
    # It works as often as it is opened; what is guessed does not.
    for _ in range(2):
        text = _main_of(_enter(demo), printed[0])
    for scene in find_scenes().values():
        assert scene.title in text
    assert "/demo/scenes/webhooks/break" in text
    assert demo.ask("/demo/sign-in?code=guessed")[0] == 401


def _calendars(stand: Stand) -> dict[str, Any]:
    """What the health of calendar sync says, and the facts of its scene."""
    _, demo, token = stand
    health: dict[str, Any] = demo.ask("/calendar-sync/health", token=token)[1]
    page = _page(demo, token, "/console/demo").partition('id="facts-calendar_sync"')[2].partition("</dl>")[0]
    return {**health, "facts": dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page))}


def test_alice_is_back_once_her_access_is_restored_and_all_figures_say_so(stand: Stand) -> None:
    _, demo, token = stand
    wait_for(lambda: _calendars(stand)["status"] == "ok")
    _run_control(demo, token, "calendar_sync/revoke")
    lost = wait_for(lambda: (found := _calendars(stand))["calendars"]["attention"] and found)
    assert (lost["status"], lost["needsAttention"], lost["facts"]["Health"]) == ("degraded", 1, "degraded")
    assert lost["facts"]["Calendars that need attention"] == "1"
    page = _page(demo, token, "/console/calendar-sync")
    assert "needs attention, credentials are gone: alice@hoge.jp" in page
    assert not any("alice@fuga.jp" in one for one in _guests(demo, "Out of reach"))
    _run_control(demo, token, "calendar_sync/restore")
    back = wait_for(lambda: (found := _calendars(stand))["status"] == "ok" and found)
    assert (back["needsAttention"], back["channels"]["active"]) == (0, 3)
    assert back["facts"]["Calendars that need attention"] == "0"
    wait_for(lambda: all("alice@fuga.jp" in one for one in _guests(demo, "Out of reach")))
