"""The page on documents runs as it is written, and its models are the ones the other tests use."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import sys
import types
from pathlib import Path

import pytest

from holdfast.cli.schema import ALL_FORMATS
from holdfast.model import Document, document, schema_of
from holdfast.model.export import export
from tests.cli.terminal import typed
from tests.examples.calendar_sync import WatchChannel
from tests.examples.gwi_runs import Run, RunStep

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "documents.md"
TEXT = PAGE.read_text(encoding="utf-8")
MODULE = "documents_page"


def _blocks(language: str) -> list[tuple[int, str]]:
    """Each block of the page with the line it begins on, so that a fault names the page's line."""
    found = re.finditer(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [(TEXT[: match.start(1)].count("\n"), match[1]) for match in found]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(MODULE)
    monkeypatch.setitem(sys.modules, MODULE, module)
    return module


async def _run(module: types.ModuleType) -> None:
    for line, source in _blocks("python"):
        code = compile(
            "\n" * line + source, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        result = eval(code, vars(module))
        if inspect.iscoroutine(result):
            await result


async def test_every_python_block_runs(
    page: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(_blocks("python")) >= 7
    await _run(page)


def test_the_pages_models_are_the_examples(
    page: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_run(page))
    examples: list[type[Document]] = [WatchChannel, Run, RunStep]
    for example in examples:
        shown = schema_of(getattr(page, example.__name__))
        assert shown.declared == schema_of(example).declared
        for format in ("json-schema", "markdown", "firestore-indexes"):
            assert export([shown], format) == export([schema_of(example)], format)


def test_every_command_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for _, source in _blocks("python"):
        name = re.match(r"# (\w+\.py)\n", source)
        if name:
            (tmp_path / name[1]).write_text(source)
    commands = [line for _, source in _blocks("sh") for line in source.splitlines()]
    assert len(commands) >= 9
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "holdfast"
        done = typed(tmp_path, *arguments, HOLDFAST_HOME=str(tmp_path))
        assert (done.returncode, done.stderr) == (0, ""), command
    written = {"run.schema.json", "firestore.indexes.json", "firestore.rules", "demo.db"}
    assert written <= {file.name for file in tmp_path.iterdir()}


def test_every_word_and_format_is_on_the_page() -> None:
    for word in inspect.signature(document).parameters:
        assert word == "path" or f"`{word}`" in TEXT, word
    for format in ALL_FORMATS:
        assert f"`{format}`" in TEXT, format
