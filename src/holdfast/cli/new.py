"""`holdfast new`: generate a service that runs: webhook, document, outgoing webhook, job, page, test."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from holdfast.cli.context import AsJson, print_result
from holdfast.errors import ConfigError
from holdfast.runtime import find_services
from holdfast.server import reserved_names

SUFFIX: Final = ".txt"
_NAME: Final = r"(?=.{2,40}$)[a-z][a-z0-9]*(_[a-z0-9]+)*"
# First words of paths that are served already; the console's pages and the commands have theirs too.
PATHS: Final = ("api", "assets", "console", "demo", "health", "metrics", "sign_in", "sign_out", "work")


def _fit(name: str) -> str:
    name = name.replace("-", "_")
    if not re.fullmatch(_NAME, name) or keyword.iskeyword(name) or name in ("test", "tests"):
        raise typer.BadParameter("take 2 to 40 of a-z, 0-9 and single _, a letter first, as in parcel_watch")
    if name in _ours():
        raise typer.BadParameter(f"{name} is a word of Holdfast's own; choose another")
    spec = find_spec(name)
    if spec is not None and spec.origin is not None:
        raise typer.BadParameter(f"{name} is a Python package that is here already; choose another")
    return name


def _ours() -> set[str]:
    """Names under which a service's path, page or commands would hide ours, or be hidden by them."""
    commands = (file.stem for file in Path(__file__).parent.glob("*.py"))
    return {"holdfast", *PATHS, *commands, *reserved_names()}


def new(
    name: Annotated[str, typer.Argument(callback=_fit, help="What to call it, as in parcel_watch.")],
    into: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make it in.")] = Path("."),
    as_json: AsJson = False,
) -> None:
    """Generate a service that runs: webhook in, document, outgoing webhook, job, audit, page, test.

    \b
    Examples:
      holdfast new parcel_watch
      holdfast new parcel_watch --into ~/code
      cd parcel-watch && pip install -e '.[test]' && pytest && holdfast serve

    It is a package of its own that announces itself to Holdfast; nothing else needs to know of it.
    """
    if name in {service.name for service in find_services()}:
        raise ConfigError(f"there is a service called {name} already; choose another name", "name")
    target = into.expanduser() / name.replace("_", "-")
    made = make_project(name, target)
    steps = f"made {len(made)} files in {target}; next: cd {target} && pip install -e '.[test]' && pytest"
    print_result({"folder": str(target), "files": made}, steps, as_json=as_json)


def make_project(name: str, target: Path) -> list[str]:
    """Write the project, all of it or nothing; gives the files' paths in it."""
    if target.exists():
        raise ConfigError(f"{target} is there already; nothing was changed", "into")
    words = _words(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".holdfast-new-") as folder:
            whole = Path(folder) / target.name
            for path, text in _rendered(words):
                file = whole / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            shutil.move(whole, target)
    except OSError as fault:
        raise ConfigError(f"can't write {target}: {fault.strerror or fault}", "into") from None
    return sorted(str(path) for path, _ in _rendered(words))


def _words(name: str) -> dict[str, str]:
    parts = name.split("_")
    return {
        "name": name, "package": name, "address": name.replace("_", "-"), "upper": name.upper(),
        "title": " ".join(parts).capitalize(), "kind": "".join(part.capitalize() for part in parts),
    }  # fmt: skip


def _rendered(words: dict[str, str]) -> Iterator[tuple[Path, str]]:
    scaffold = files("holdfast.cli") / "scaffold"
    package = Path("src") / words["package"]
    yield Path("tests") / f"test_{words['name']}.py", _fill(scaffold / f"test.py{SUFFIX}", words)
    for place, folder in ((Path(), "project"), (package, "package"), (package / "pages", "package/pages")):
        for file in sorted((scaffold / folder).iterdir(), key=lambda one: one.name):
            if file.name.endswith(SUFFIX):
                yield place / file.name.removesuffix(SUFFIX), _fill(file, words)


def _fill(file: Traversable, words: dict[str, str]) -> str:
    return Template(file.read_text(encoding="utf-8")).substitute(words)
