"""`holdfast schema prune` drops nothing unasked, and nothing that another release is using."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from textwrap import dedent

import pytest

from holdfast.app import open_store
from holdfast.kit.processes import PROCESS_DOCUMENTS, ProcessRegistry
from holdfast.model import Document, Index, document
from tests.cli.terminal import typed

MODULE = """
from holdfast.model import Document, Index, document

@document("jars/{{id}}", indexes=[{indexes}])
class Jar(Document):
    id: str
    lid: str = ""
    size: int = 0
"""


@document("jars/{id}", indexes=[Index("lid"), Index("size")])
class Jar(Document):
    id: str
    lid: str = ""
    size: int = 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store of a release that indexed lids, and the declaration of the next one, which does not."""
    for name, indexes in {
        "jars_before": 'Index("lid"), Index("size")',
        "jars_after": 'Index("size")',
    }.items():
        (tmp_path / f"{name}.py").write_text(dedent(MODULE.format(indexes=indexes)))
    assert _schema(tmp_path, "migrate", "jars_before")[0] == 0
    return tmp_path


def _schema(folder: Path, command: str, module: str, *options: str) -> tuple[int, str]:
    arguments = ("--models", module, "--store", "sqlite:///jars.db", *options)
    done = typed(folder, "schema", command, *arguments, HOLDFAST_HOME=str(folder))
    return done.returncode, done.stdout if done.returncode == 0 else done.stderr


def test_only_a_confirmed_prune_drops_what_is_no_longer_declared(folder: Path) -> None:
    unused = ["drop column jars.lid", "drop index jars__lid"]
    assert _schema(folder, "migrate", "jars_after")[0] == 0
    told = json.loads(_schema(folder, "diff", "jars_after", "--json")[1])
    assert told == {"changes": [], "unused": unused}
    assert _schema(folder, "prune", "jars_after", "--dry-run")[1].splitlines() == unused
    assert _schema(folder, "prune", "jars_after")[0] == 1
    assert _schema(folder, "prune", "jars_after", "--yes")[1].splitlines() == unused
    assert "nothing to drop" in _schema(folder, "prune", "jars_after", "--yes")[1]
    assert "add column jars.lid" in _schema(folder, "migrate", "jars_before")[1]


async def test_a_prune_is_refused_while_another_release_is_at_work(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder}/jars.db", [Jar, *PROCESS_DOCUMENTS])
    registry = ProcessRegistry(store, version="0.0.1")
    await registry.start()
    code, told = await asyncio.to_thread(_schema, folder, "prune", "jars_after", "--yes")
    await registry.close()
    await store.close()
    assert code == 1
    assert "(Holdfast 0.0.1)" in told
    code, _ = await asyncio.to_thread(_schema, folder, "prune", "jars_after", "--yes")
    assert code == 0
