"""Every command: its help teaches, its examples can be typed, wrong usage is told."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import structlog
import typer
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.cli.lazy_commands import LazyCommand
from holdfast.errors import HoldfastError
from holdfast.runtime import find_services
from tests.cli.terminal import Typed

# What these print is a file, a stream or a life, not data.
_WITHOUT_JSON = {
    ("serve",), ("work",), ("demo",), ("simulators", "run"), ("schema", "export"), ("audit", "export"),
    ("gwi", "audit", "export"),
}  # fmt: skip


def _walk(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(command, LazyCommand):
        command = command.itself
    if isinstance(command, TyperGroup):
        for name, sub in command.commands.items():
            yield from _walk(sub, (*words, name))
    else:
        yield words, command


_WHOLE = typer.main.get_command(app)
assert isinstance(_WHOLE, TyperGroup)
_TOLD = _WHOLE.commands
_COMMANDS = dict(_walk(_WHOLE))


@pytest.fixture(autouse=True, scope="module")
def _made_once() -> Iterator[None]:
    """The commands are the same in every test; making them anew for each takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", lambda _: _WHOLE)
        yield


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_help_teaches_by_example(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--help"])
    assert told.exit_code == 0
    assert "Example" in told.output
    assert f"holdfast {words[0]}" in told.output


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_what_prints_data_prints_json_when_asked(words: tuple[str, ...]) -> None:
    options = {option for one in getattr(_COMMANDS[words], "params", ()) for option in one.opts}
    assert ("--json" in options) == (words not in _WITHOUT_JSON)


@pytest.mark.parametrize("words", [(), *_COMMANDS], ids=lambda words: " ".join(words) or "holdfast")
def test_an_unknown_option_is_wrong_usage(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--no-such-option"])
    assert told.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["tokens", "create", "x", "--role", "king"],
        ["tokens", "create", "x", "--role", "admin", "--expires-in", "soon"],
        ["deliveries", "list", "--status", "lost"],
        ["inbox", "list", "--status", "lost"],
        ["usage", "show", "--month", "November"],
        ["jobs", "list", "--limit", "0"],
    ],
)
def test_a_wrong_value_is_wrong_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def _examples(words: tuple[str, ...]) -> list[list[str]]:
    """What a command's help tells to type: the parts of its example lines that call it."""
    told = getattr(_COMMANDS[words], "help", "") or ""
    found = []
    for line in told.splitlines():
        for part in re.split(r"\s[|>&]\s|&&|\$\(|\)", line):
            start = re.search(rf"\bholdfast {' '.join(words)}(?=\s|$)", part)
            if start is not None:
                # Two spaces and more: what follows is said to the reader.
                typed = re.split(r"\s{2,}", part[start.start() :].strip())[0]
                # Inside quotes of a larger line the closing one is left over.
                whole = typed if typed.count('"') % 2 == 0 else typed.rstrip('"')
                found.append(shlex.split(whole)[1 + len(words) :])
    return found


@pytest.mark.parametrize("words", _COMMANDS, ids=" ".join)
def test_every_example_can_be_typed_as_it_stands(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = _COMMANDS[words]
    assert isinstance(command, TyperCommand)
    examples = _examples(words)
    assert examples, "show at least one whole line to type"
    for arguments in examples:
        for folder in (Path(one) for one in arguments if one.endswith("/")):
            folder.mkdir(exist_ok=True)
        # Reads and checks every option and argument, and runs nothing.
        with command.make_context(" ".join(words), list(arguments)):
            pass


def _takes_any_number(words: tuple[str, ...]) -> bool:
    return any(one.nargs == -1 for one in getattr(_COMMANDS[words], "params", ()))


@pytest.mark.parametrize("words", [one for one in _COMMANDS if not _takes_any_number(one)], ids=" ".join)
def test_wrong_arguments_end_with_2_and_no_traceback(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, *["one-too-many"] * 9])
    assert told.exit_code == 2, told.output
    assert isinstance(told.exception, SystemExit)
    assert "Traceback" not in told.output


def test_the_whole_and_every_group_teach_by_example_and_name_what_they_hold() -> None:
    groups: dict[tuple[str, ...], set[str]] = {}
    for words in _COMMANDS:
        for depth in range(len(words)):
            groups.setdefault(words[:depth], set()).add(words[depth])
    for group, names in groups.items():
        told = CliRunner().invoke(app, [*group, "--help"]).output
        assert f"holdfast {' '.join(group)}".strip() in told.replace("\n", " "), group
        assert "Example" in told, group
        for name in names:
            assert name in told


def test_every_command_of_every_service_is_told() -> None:
    theirs = {one.address for one in find_services() if find_spec(f"holdfast.services.{one.name}.commands")}
    assert {service.address for service in find_services()} & set(_TOLD) == theirs


@pytest.mark.parametrize("name", _TOLD)
def test_the_whole_tells_of_a_command_what_the_command_tells_of_itself(name: str) -> None:
    told = _TOLD[name]
    assert isinstance(told, LazyCommand)
    assert (told.itself.help or "").splitlines()[0] == told.help


_HARBOUR = """
import typer
from holdfast.service import Parts, Service

commands = typer.Typer(help="Watch ships.")

@commands.command()
def ships() -> None:
    typer.echo("no ship today")

service = Service(
    name="old_harbour", summary="Ships.", documents=[], build=lambda _: Parts(), commands=commands
)
"""


def _announce(place: Path, module: str) -> None:
    (place / "harbour.py").write_text(module)
    info = place / "harbour-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[holdfast.services]\nold_harbour = harbour:service\n")


def _ask(place: Path, *words: str) -> Typed:
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(place)}
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True)
    return Typed(done.returncode, done.stdout, done.stderr)


def test_the_commands_of_an_outside_service_are_told_and_can_be_typed(tmp_path: Path) -> None:
    _announce(tmp_path, _HARBOUR)
    assert re.search(r"old-harbour +Watch ships\.", _ask(tmp_path, "--help").stdout)
    assert _ask(tmp_path, "old-harbour", "ships").stdout == "no ship today\n"


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("1 / 0", "division by zero"),
        ("service = 'a service'", "is no Service"),
        ("", "no attribute 'service'"),
    ],
)
def test_an_outside_service_that_can_not_be_loaded_is_told_in_one_line(
    tmp_path: Path, module: str, why: str
) -> None:
    _announce(tmp_path, module)
    told = _ask(tmp_path, "jobs", "list")
    assert (told.returncode, told.stderr.count("\n")) == (1, 1), told.stderr
    assert why in told.stderr
    assert "harbour 1.0" in told.stderr


def test_help_and_completion_load_neither_a_service_nor_a_server(tmp_path: Path) -> None:
    """What takes longest to load is loaded by the command that needs it, not by a person who looks around."""
    script = """
import sys
from holdfast.cli import main
try:
    main()
finally:
    loaded = {"holdfast.runtime", "holdfast.service", "litestar", "aiohttp", "uvicorn"} & set(sys.modules)
    sys.stderr.write(f"loaded: {sorted(loaded)}")
"""
    for arguments, variables in (
        (["--help"], {}),
        ([], {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": "holdfast de", "COMP_CWORD": "1"}),
    ):
        command = [sys.executable, "-c", script, *arguments]
        env = {"PATH": "/usr/bin:/bin", **variables}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert "deliveries" in done.stdout
        assert done.stderr == "loaded: []"


def test_shells_complete_commands_and_options(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("holdfast")

    def ask(**variables: str) -> str:
        done = subprocess.run(
            [program],
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True,
            text=True,
        )
        return done.stdout

    assert "_HOLDFAST_COMPLETE=complete_bash" in ask(_HOLDFAST_COMPLETE="source_bash")
    words = ask(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS="holdfast de", COMP_CWORD="1").split()
    assert {"deliveries", "demo"} <= set(words)
    words = ask(_HOLDFAST_COMPLETE="complete_bash", COMP_WORDS="holdfast dlq list --", COMP_CWORD="3").split()
    assert {"--tenant", "--json", "--cursor"} <= set(words)


def test_the_completion_of_ones_own_shell_is_shown(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("holdfast")
    # Found by the shell it is asked from.
    script = f"{program} --show-completion; true"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert "_HOLDFAST_COMPLETE=complete_bash" in done.stdout, done.stderr


def test_the_readme_names_every_command_and_no_other() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    services = {service.address for service in find_services()}
    there = {words[0] for words in _COMMANDS} - services
    table = readme.partition("| to | commands |")[2].partition("\n\n")[0]
    assert {named.split()[0] for named in re.findall(r"`([^`]+)`", table)} == there


# These live on, or look at what is wrong instead of failing of it.
_LIVES = {("serve",), ("work",), ("demo",), ("doctor",)}


def _needs_nothing(words: tuple[str, ...]) -> bool:
    return words not in _LIVES and not any(one.required for one in getattr(_COMMANDS[words], "params", ()))


@pytest.mark.parametrize("words", [one for one in _COMMANDS if _needs_nothing(one)], ids=" ".join)
def test_a_store_out_of_reach_is_an_error_that_is_known(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_STORE", "postgresql://127.0.0.1:1/none?retry_s=0.1")
    before = structlog.get_config()
    told = CliRunner().invoke(app, list(words))
    structlog.configure(**before)
    assert isinstance(told.exception, HoldfastError | SystemExit | None), told.exception
    assert "Traceback" not in told.output
