"""`holdfast copy` as a person types it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from holdfast.app import open_store
from holdfast.cli import app
from holdfast.errors import HoldfastError
from holdfast.store import create
from holdfast.store.contract import models
from holdfast.store.contract.models import Note

MODELS = ("--models", "holdfast.store.contract.models")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store `old.db` of three notes."""
    monkeypatch.chdir(tmp_path)

    async def fill() -> None:
        store = await open_store("sqlite:///old.db", models.ALL)
        await store.migrate()
        await store.commit(*(create(Note(id=f"n{number}")) for number in range(3)))
        await store.close()

    asyncio.run(fill())
    return tmp_path


def _copy(*options: str, source: str = "sqlite:///old.db", target: str = "sqlite:///new.db") -> Result:
    before = structlog.get_config()
    try:
        return CliRunner().invoke(app, ["copy", "--from", source, "--to", target, *MODELS, *options])
    finally:
        structlog.configure(**before)


def _refusal(done: Result) -> str:
    assert isinstance(done.exception, HoldfastError), done.output
    return done.exception.message


def _ids(file: str) -> list[str]:
    async def read() -> list[str]:
        store = await open_store(f"sqlite:///{file}", models.ALL)
        found = await store.get_many(Note, [f"n{number}" for number in range(4)])
        await store.close()
        return [one.doc.id for one in found if one is not None]

    return asyncio.run(read())


def test_a_dry_run_says_what_would_be_copied_and_makes_nothing(here: Path) -> None:
    done = _copy("--dry-run")
    assert "3 documents would be copied" in done.output
    told = json.loads(_copy("--dry-run", "--json").stdout)
    assert (told["target"], {"collection": "notes", "documents": 3} in told["collections"]) == ("empty", True)
    assert not (here / "new.db").exists()
    _copy()
    assert json.loads(_copy("--dry-run", "--json").stdout)["target"] == "an unfinished copy of this source"


def test_a_copy_tells_its_walks_and_its_proof_as_json(here: Path) -> None:
    first = json.loads(_copy("--json").stdout)
    assert (first["state"], first["inStep"], first["written"], len(first["walks"])) == (
        "unfinished",
        True,
        3,
        2,
    )
    last = json.loads(_copy("--json", "--final").stdout)
    (notes,) = [one for one in last["proof"] if one["collection"] == "notes"]
    assert (last["state"], notes["documents"], notes["hash"]) == ("finished", 3, notes["targetHash"])
    assert _ids("new.db") == ["n0", "n1", "n2"]


def test_stores_that_differ_are_told_by_name_and_exit_code(here: Path) -> None:
    _copy("--final")

    async def change() -> None:
        store = await open_store("sqlite:///old.db", models.ALL)
        await store.commit(create(Note(id="n3")))
        await store.close()

    asyncio.run(change())
    done = _copy("--verify")
    assert (done.exit_code, done.output) == (1, "missing: notes/n3\nmissing 1, changed 0, extra 0\n")
    assert json.loads(_copy("--verify", "--json").stdout)["named"] == [
        {"collection": "notes", "id": "n3", "kind": "missing"}
    ]
    assert _ids("new.db") == ["n0", "n1", "n2"]


@pytest.mark.parametrize(
    ("source", "target", "options", "words"),
    [
        ("sqlite:///none.db", "sqlite:///new.db", (), "there is no file"),
        ("sqlite:///old.db", "sqlite:///old.db?synchronous=normal", (), "name the same store"),
        ("sqlite:///old.db", "sqlite:///new.db", ("--verify",), "there is no file"),
        ("sqlite:///old.db", "mongodb://db", (), "no engine for 'mongodb'"),
        ("old.db", "sqlite:///new.db", (), "store must be a URL"),
    ],
)
def test_a_wrong_store_is_refused_and_none_is_made(
    here: Path, source: str, target: str, options: tuple[str, ...], words: str
) -> None:
    assert words in _refusal(_copy(*options, source=source, target=target))
    assert sorted(path.name for path in here.glob("*.db")) == ["old.db"]


def test_a_source_that_is_not_as_declared_is_refused_with_the_remedy(here: Path) -> None:
    with sqlite3.connect(here / "old.db") as link:
        link.execute("DROP TABLE seats")
    link.close()
    assert "run `holdfast schema migrate`" in _refusal(_copy())


def test_contradicting_options_are_wrong_usage(here: Path) -> None:
    assert _copy("--final", "--verify").exit_code == 2
    assert _copy("--walks", "0").exit_code == 2
